//! The plain loads and stores of a block that the engine has not processed yet.
//!
//! A plain access orders nothing, so no other thread can learn of it before its block takes another step. Until then,
//! it waits in a list, which the engine takes page by page. Neighboring threads mostly access neighboring words, whose
//! records are therefore in the CPU's caches.
//!
//! A wait can see a store to a peer immediately, so the engine takes all lists with such stores before it reads a word.

use std::panic::Location;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

use crate::access::{Call, CallId, Kind, Memory, Span};
use crate::calls::Calls;
use crate::epoch::{ActorId, Epoch};
use crate::intervals::Bytes;
use crate::pages::PAGE;
use crate::regions::Regions;

/// Maximum number of accesses in a block's list before the engine must process them.
const MAX_ACCESSES: usize = 4096;

/// Minimum number of accesses in a batch from another process for which sorting them into a list pays off.
const MIN_LIST: usize = 16;

/// Number of bits of a sort key that hold the index of an access in its list.
const NUMBER_BITS: u32 = MAX_ACCESSES.ilog2();

/// Number of bits of a sort key that hold the offset in a page.
const PLACE_BITS: u32 = PAGE.ilog2();

/// Number of bits of a sort key that hold the kind of memory, and number of bits that hold the PE.
const MEMORY_BITS: (u32, u32) = (2, 8);

/// The list of plain accesses by a block's threads that the engine has not processed yet.
#[derive(Debug)]
pub struct Accesses {
    pe: u32,
    /// The actor IDs of the block's threads.
    lanes: Vec<ActorId>,
    regions: Arc<Regions>,
    /// The host call that the kernel implements, if any. Reports name it instead of calls in the kernel.
    operation: Option<Call>,
    list: Mutex<List>,
    /// [`STORES`] if the list has stores to peers, [`LOADS`] if it has only other entries, and 0 if it is empty. Read
    /// without the lock.
    content: AtomicU8,
}

/// Value of `content` for a list with only local accesses, which no other block can observe yet.
const LOADS: u8 = 1;

/// Value of `content` for a list with stores to peers, which other PEs may observe at any time.
const STORES: u8 = 2;

/// What the caller must do after adding an access, or the return of a thread, to a block's list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Noted {
    /// Nothing. The engine may process the list later.
    Waits,
    /// The caller must pass the list to the engine now.
    Full,
    /// The access is a store to a peer. A list for an engine in another process must be sent now.
    ToPeer,
}

/// Plain accesses of a block, as sent to an engine in another process.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Batch {
    /// Actor ID of the block's first thread. Those of the other threads follow.
    first: ActorId,
    /// Thread index, memory, kind and call of each access. The kind is [`Kind::Read`], [`Kind::Write`], or
    /// [`Kind::Put`] for a store to a peer.
    accesses: Vec<(u32, Span, Kind, Call)>,
    /// Threads that have returned since the last batch.
    ended: Vec<ActorId>,
}

impl Batch {
    /// Returns whether the batch contains stores to peers.
    pub fn has_stores(&self) -> bool {
        self.accesses.iter().any(|(_, _, kind, _)| *kind == Kind::Put)
    }

    /// Whether the batch is too short for sorting to pay off. Most batches are single stores to peers.
    pub(crate) fn is_short(&self) -> bool {
        self.accesses.len() < MIN_LIST
    }

    pub(crate) fn accesses(&self) -> impl Iterator<Item = (ActorId, Span, Kind, Call)> {
        let first = self.first.0;
        self.accesses.iter().map(move |&(thread, span, kind, call)| {
            (ActorId(first.saturating_add(thread.into())), span, kind, call)
        })
    }

    pub(crate) fn ended(&self) -> &[ActorId] {
        &self.ended
    }
}

/// Plain accesses of a block in the order of execution, with keys that sort them by page.
#[derive(Debug, Default)]
pub(crate) struct List {
    pub(crate) entries: Vec<Entry>,
    /// Threads that have returned since the engine last processed the list.
    ended: Vec<ActorId>,
    /// Number of the block's threads that have returned so far.
    ends: usize,
    /// The sort key of each access: memory and page, offset in the page, and index in the list.
    keys: Vec<u64>,
    /// Whether an access spans two pages, in which case the pages cannot be processed one after the other.
    crosses_pages: bool,
    calls: Calls,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) actor: ActorId,
    pub(crate) span: Span,
    pub(crate) kind: Kind,
    call: CallId,
}

impl Accesses {
    /// Creates an empty list for a block of `pe` with these threads.
    pub fn new(pe: u32, lanes: Vec<ActorId>, regions: Arc<Regions>, operation: Option<Call>) -> Self {
        let (list, content) = (Mutex::default(), AtomicU8::new(0));
        Self { pe, lanes, regions, operation, list, content }
    }

    /// Returns the actor IDs of the block's threads.
    pub fn lanes(&self) -> &[ActorId] {
        &self.lanes
    }

    /// Returns the number of accesses after which a thread should yield to the others of its block.
    ///
    /// The list then has accesses of all threads to neighboring words, which the engine processes together.
    pub fn turn(&self) -> usize {
        (MAX_ACCESSES / self.lanes.len().max(1)).max(1)
    }

    /// Adds a load by a thread. Loads outside symmetric and registered memory are ignored.
    pub fn load(
        &self,
        thread: u32,
        (address, bytes): (u64, u64),
        name: &'static str,
        site: &'static Location<'static>,
    ) -> Noted {
        self.regions
            .at(address, bytes)
            .map_or(Noted::Waits, |span| self.add(thread, span, Kind::Read, name, site))
    }

    /// Adds a store by a thread. A store to another PE's memory is in flight, like a put, until a fence or `quiet`.
    pub fn store(
        &self,
        thread: u32,
        (address, bytes): (u64, u64),
        name: &'static str,
        site: &'static Location<'static>,
    ) -> Noted {
        let Some(span) = self.regions.at(address, bytes) else { return Noted::Waits };
        if span.memory.pe == self.pe {
            return self.add(thread, span, Kind::Write, name, site);
        }
        self.add(thread, span, Kind::Put, name, site);
        Noted::ToPeer
    }

    fn add(
        &self,
        thread: u32,
        span: Span,
        kind: Kind,
        name: &'static str,
        site: &'static Location<'static>,
    ) -> Noted {
        let call = self.operation.unwrap_or_else(|| Call { name, site: site.into() });
        let list = &mut *self.list();
        let Some(&actor) = self.lanes.get(thread as usize) else { return Noted::Waits };
        list.add(actor, span, kind, call);
        if kind == Kind::Put {
            // Precedes the store itself, so a wait that sees the new value also sees this.
            self.content.store(STORES, Ordering::SeqCst);
        } else if list.entries.len() == 1 {
            self.content.store(LOADS, Ordering::SeqCst);
        }
        if list.entries.len() >= MAX_ACCESSES { Noted::Full } else { Noted::Waits }
    }

    /// Records that a thread has returned. Returns [`Noted::Full`] for the last thread of the block.
    pub fn end(&self, thread: u32) -> Noted {
        let list = &mut *self.list();
        list.ended.extend(self.lanes.get(thread as usize));
        list.ends += 1;
        // Unless the list has accesses, mark it as nonempty: somebody may be waiting for the end.
        let _ = self.content.compare_exchange(0, LOADS, Ordering::SeqCst, Ordering::SeqCst);
        if list.ends == self.lanes.len() { Noted::Full } else { Noted::Waits }
    }

    /// Returns whether the list is empty. Exact for the block itself, and a snapshot for others.
    pub fn is_empty(&self) -> bool {
        self.content.load(Ordering::SeqCst) == 0
    }

    pub(crate) fn has_stores(&self) -> bool {
        self.content.load(Ordering::SeqCst) == STORES
    }

    /// Sorts the list by page, to shorten the time for which the engine's lock is held afterwards.
    pub fn sort(&self) {
        self.list().keys.sort_unstable();
    }

    /// Removes all accesses from the list, to be sent to an engine in another process.
    pub fn take(&self) -> Batch {
        let mut list = self.list();
        let first = self.lanes.first().copied().unwrap_or(ActorId(0));
        let sent = |entry: &Entry| {
            let thread = (entry.actor.0 - first.0) as u32;
            (thread, entry.span, entry.kind, list.call(entry))
        };
        let accesses = list.entries.iter().map(sent).collect();
        Batch { first, accesses, ended: self.clear(&mut list) }
    }

    pub(crate) fn list(&self) -> MutexGuard<'_, List> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Empties a list obtained from [`Accesses::list`]. Returns the threads that have returned since it was last
    /// emptied.
    pub(crate) fn clear(&self, list: &mut List) -> Vec<ActorId> {
        list.entries.clear();
        list.keys.clear();
        list.crosses_pages = false;
        self.content.store(0, Ordering::SeqCst);
        std::mem::take(&mut list.ended)
    }
}

impl List {
    /// Splits a batch of accesses into lists of at most [`MAX_ACCESSES`].
    pub(crate) fn of(
        accesses: impl Iterator<Item = (ActorId, Span, Kind, Call)>,
    ) -> impl Iterator<Item = Self> {
        let mut accesses = accesses.peekable();
        std::iter::from_fn(move || {
            accesses.peek()?;
            let mut list = Self::default();
            for (actor, span, kind, call) in accesses.by_ref().take(MAX_ACCESSES) {
                list.add(actor, span, kind, call);
            }
            Some(list)
        })
    }

    fn add(&mut self, actor: ActorId, span: Span, kind: Kind, call: Call) {
        let (first, last) = (span.bytes.start / PAGE, span.bytes.end.saturating_sub(1) / PAGE);
        self.crosses_pages |= first != last;
        self.keys.push(key_of(span) | self.entries.len() as u64);
        self.entries.push(Entry { actor, span, kind, call: self.calls.id(call) });
    }

    pub(crate) fn call(&self, entry: &Entry) -> Call {
        self.calls.call(entry.call)
    }

    /// Groups the accesses into rows, page by page, and returns their list indices. A row is a set of equal accesses by
    /// consecutive threads to consecutive elements.
    ///
    /// `steps` has the step of each access. Accesses with common bytes stay in order.
    pub(crate) fn rows(&mut self, steps: &[Epoch]) -> Rows {
        let most = self.entries.len();
        let mut rows = Rows { numbers: Vec::with_capacity(most), ends: Vec::with_capacity(most) };
        // The accesses of different pages depend on each other, so keep the order of execution.
        if self.crosses_pages {
            (0..self.entries.len()).for_each(|number| rows.add(number, false));
            return rows;
        }
        self.keys.sort_unstable();
        let entries = &self.entries;
        for page in self.keys.chunk_by_mut(|a, b| page_of(*a) == page_of(*b)) {
            // Accesses that partly overlap would change their order, so such a page is processed in the order of
            // execution.
            if is_regular(entries, page) {
                rows.add_page(entries, steps, page);
            } else {
                page.sort_unstable_by_key(|key| number_of(*key));
                page.iter().for_each(|key| rows.add(number_of(*key), false));
            }
        }
        rows
    }
}

/// Returns the sort key of an access without its list index. Pages that are far apart may have the same page number.
fn key_of(Span { memory: Memory { pe, space }, bytes: Bytes { start, .. } }: Span) -> u64 {
    let (space_bits, pe_bits) = MEMORY_BITS;
    let memory = ((u64::from(pe) % (1 << pe_bits)) << space_bits) | space as u64;
    let page = ((start / PAGE) << (space_bits + pe_bits)) | memory;
    ((page << PLACE_BITS) | (start % PAGE)) << NUMBER_BITS
}

fn page_of(key: u64) -> u64 {
    key >> (NUMBER_BITS + PLACE_BITS)
}

fn number_of(key: u64) -> usize {
    (key % (1 << NUMBER_BITS)) as usize
}

/// Whether any two accesses with these sort keys have either the same bytes or no byte in common.
fn is_regular(entries: &[Entry], keys: &[u64]) -> bool {
    keys.windows(2).all(|pair| {
        let (a, b) = (entries[number_of(pair[0])].span, entries[number_of(pair[1])].span);
        let (x, y) = (a.bytes, b.bytes);
        a.memory == b.memory && x.start / PAGE == y.start / PAGE && (x == y || x.end <= y.start)
    })
}

/// List indices of accesses in processing order, divided into rows.
#[derive(Debug)]
pub(crate) struct Rows {
    numbers: Vec<usize>,
    /// For each row, the index in `numbers` past its last access.
    ends: Vec<usize>,
}

impl Rows {
    /// Appends an access to the last row, or starts a new row with it.
    fn add(&mut self, number: usize, continues_row: bool) {
        self.numbers.push(number);
        match self.ends.last_mut() {
            Some(end) if continues_row => *end += 1,
            _ => self.ends.push(self.numbers.len()),
        }
    }

    /// Adds the accesses of a page: first the earliest of each word, then the second of each word, and so on.
    fn add_page(&mut self, entries: &[Entry], steps: &[Epoch], page: &[u64]) {
        let words = || page.chunk_by(|a, b| a >> NUMBER_BITS == b >> NUMBER_BITS);
        let most = words().map(<[u64]>::len).max().unwrap_or(0);
        for turn in 0..most {
            let mut last: Option<usize> = None;
            for number in words().filter_map(|word| word.get(turn)).map(|key| number_of(*key)) {
                let continues = last.is_some_and(|last| {
                    let (a, b) = (&entries[last], &entries[number]);
                    entries_are_alike(a, b) && steps[last].count == steps[number].count
                });
                self.add(number, continues);
                last = Some(number);
            }
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &[usize]> {
        let begins = std::iter::once(0).chain(self.ends.iter().copied());
        begins.zip(&self.ends).map(|(begin, &end)| &self.numbers[begin..end])
    }
}

/// Whether `b` is the same access as `a` by the next thread to the next element, so it continues the row.
fn entries_are_alike(a: &Entry, b: &Entry) -> bool {
    (a.kind, a.call) == (b.kind, b.call)
        && a.kind != Kind::Put
        && a.actor.0 + 1 == b.actor.0
        && a.span.bytes.end == b.span.bytes.start
        && a.span.bytes.len() == b.span.bytes.len()
}
