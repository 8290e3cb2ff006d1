//! Plain accesses of a block that the engine has not seen yet.
//!
//! A plain access orders nothing, so nobody learns of it before its block makes another step. The accesses in between wait in a
//! list. The engine then takes them page by page: neighbouring threads mostly use neighbouring words, and their records are
//! then in the caches.
//!
//! A wait may see a store to a peer at once. So the engine takes all lists with such stores before it looks at a word.

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

/// The most accesses that a list holds.
const MOST: usize = 4096;

/// The fewest accesses of another process that are worth a list.
const MIN_LIST: usize = 16;

/// The bits of a number in the list, in a key.
const NUMBER_BITS: u32 = MOST.ilog2();

/// The bits of a place in a page, in a key.
const PLACE_BITS: u32 = PAGE.ilog2();

/// The bits of a kind of memory and of a PE, in a key.
const MEMORY_BITS: (u32, u32) = (2, 8);

/// The accesses of the threads of a block that wait for the engine.
#[derive(Debug)]
pub struct Accesses {
    pe: u32,
    /// The threads of the block.
    lanes: Vec<ActorId>,
    regions: Arc<Regions>,
    /// The call of the host that the kernel makes, if it makes one.
    operation: Option<Call>,
    list: Mutex<List>,
    /// The largest of [`LOADS`] and [`STORES`] that the list has; 0 if it is empty.
    content: AtomicU8,
}

/// The list has accesses that only its block knows.
const LOADS: u8 = 1;

/// The list has stores to peers.
const STORES: u8 = 2;

/// The effect of a noted access, or of a noted end of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Noted {
    /// The engine may have it later.
    Waits,
    /// The engine must have the list now.
    Full,
    /// The access is a store to a peer.
    ToPeer,
}

/// The accesses of a block for the engine in another process.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Batch {
    /// The first thread of the block. The others have the numbers that follow.
    first: ActorId,
    /// Plain accesses with the threads that made them: [`Kind::Read`], [`Kind::Write`], or [`Kind::Put`] for a store to a peer.
    accesses: Vec<(u32, Span, Kind, Call)>,
    /// The threads that have returned, after their last access.
    ended: Vec<ActorId>,
}

impl Batch {
    /// Returns whether it has stores to peers.
    pub fn has_stores(&self) -> bool {
        self.accesses.iter().any(|(_, _, kind, _)| *kind == Kind::Put)
    }

    /// Returns whether a list costs more than it saves: most stores to peers come one by one.
    pub(crate) fn is_short(&self) -> bool {
        self.accesses.len() < MIN_LIST
    }

    /// Returns the accesses with their threads.
    pub(crate) fn accesses(&self) -> impl Iterator<Item = (ActorId, Span, Kind, Call)> {
        let first = self.first.0;
        self.accesses.iter().map(move |&(thread, span, kind, call)| {
            (ActorId(first.saturating_add(thread.into())), span, kind, call)
        })
    }

    /// Returns the threads that have returned, after their last access.
    pub(crate) fn ended(&self) -> &[ActorId] {
        &self.ended
    }
}

/// A list of accesses in the order of execution.
#[derive(Debug, Default)]
pub(crate) struct List {
    pub(crate) entries: Vec<Entry>,
    /// The threads that have ended behind their last access.
    ended: Vec<ActorId>,
    /// The number of threads that have ended so far.
    ends: usize,
    /// A key of each access: its page, its place in the page, and its number in the list.
    keys: Vec<u64>,
    /// Whether an access lies in two pages, so that the pages depend on each other.
    crosses_pages: bool,
    calls: Calls,
}

/// An access of a thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) actor: ActorId,
    pub(crate) span: Span,
    pub(crate) kind: Kind,
    call: CallId,
}

impl Accesses {
    /// Returns an empty list for the block of these threads of `pe`.
    pub fn new(pe: u32, lanes: Vec<ActorId>, regions: Arc<Regions>, operation: Option<Call>) -> Self {
        let (list, content) = (Mutex::default(), AtomicU8::new(0));
        Self { pe, lanes, regions, operation, list, content }
    }

    /// Returns the threads of the block.
    pub fn lanes(&self) -> &[ActorId] {
        &self.lanes
    }

    /// Returns the number of accesses after which a thread should let the others run. So the list has accesses of all threads,
    /// to neighbouring words.
    pub fn turn(&self) -> usize {
        (MOST / self.lanes.len().max(1)).max(1)
    }

    /// Adds a load of a thread.
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

    /// Adds a store of a thread. A store to a peer is in flight like a put.
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
            // The memory has the new value later, so a wait that sees it sees this, too.
            self.content.store(STORES, Ordering::SeqCst);
        } else if list.entries.len() == 1 {
            self.content.store(LOADS, Ordering::SeqCst);
        }
        if list.entries.len() >= MOST { Noted::Full } else { Noted::Waits }
    }

    /// Adds the end of a thread. The last one of a block must not wait.
    pub fn end(&self, thread: u32) -> Noted {
        let list = &mut *self.list();
        list.ended.extend(self.lanes.get(thread as usize));
        list.ends += 1;
        let _ = self.content.compare_exchange(0, LOADS, Ordering::SeqCst, Ordering::SeqCst);
        if list.ends == self.lanes.len() { Noted::Full } else { Noted::Waits }
    }

    /// Returns whether no accesses wait. The block itself always gets the right answer.
    pub fn is_empty(&self) -> bool {
        self.content.load(Ordering::SeqCst) == 0
    }

    /// Returns whether stores to peers wait.
    pub(crate) fn has_stores(&self) -> bool {
        self.content.load(Ordering::SeqCst) == STORES
    }

    /// Sorts the accesses, which the engine needs. So its lock is held for a shorter time.
    pub fn sort(&self) {
        self.list().keys.sort_unstable();
    }

    /// Returns the accesses so far, for the engine of another process. Empties the list.
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

    /// Empties a list that [`Accesses::list`] has returned. Returns the threads that have ended.
    pub(crate) fn clear(&self, list: &mut List) -> Vec<ActorId> {
        list.entries.clear();
        list.keys.clear();
        list.crosses_pages = false;
        self.content.store(0, Ordering::SeqCst);
        std::mem::take(&mut list.ended)
    }
}

impl List {
    /// Returns lists of these accesses.
    pub(crate) fn of(
        accesses: impl Iterator<Item = (ActorId, Span, Kind, Call)>,
    ) -> impl Iterator<Item = Self> {
        let mut accesses = accesses.peekable();
        std::iter::from_fn(move || {
            accesses.peek()?;
            let mut list = Self::default();
            for (actor, span, kind, call) in accesses.by_ref().take(MOST) {
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

    /// Returns the call of an access.
    pub(crate) fn call(&self, entry: &Entry) -> Call {
        self.calls.call(entry.call)
    }

    /// Returns the numbers of the accesses, page by page, as rows. `steps` are the steps of the accesses. Accesses with bytes in
    /// common keep their order.
    pub(crate) fn rows(&mut self, steps: &[Epoch]) -> Rows {
        let most = self.entries.len();
        let mut rows = Rows { numbers: Vec::with_capacity(most), ends: Vec::with_capacity(most) };
        if self.crosses_pages {
            (0..self.entries.len()).for_each(|number| rows.add(number, false));
            return rows;
        }
        self.keys.sort_unstable();
        let entries = &self.entries;
        for page in self.keys.chunk_by_mut(|a, b| page_of(*a) == page_of(*b)) {
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

/// Returns the key of an access without its number. Memory far apart may have the same page here.
fn key_of(Span { memory: Memory { pe, space }, bytes: Bytes { start, .. } }: Span) -> u64 {
    let (space_bits, pe_bits) = MEMORY_BITS;
    let memory = ((u64::from(pe) % (1 << pe_bits)) << space_bits) | space as u64;
    let page = ((start / PAGE) << (space_bits + pe_bits)) | memory;
    ((page << PLACE_BITS) | (start % PAGE)) << NUMBER_BITS
}

/// Returns the page of a key.
fn page_of(key: u64) -> u64 {
    key >> (NUMBER_BITS + PLACE_BITS)
}

/// Returns the number of an access in the list.
fn number_of(key: u64) -> usize {
    (key % (1 << NUMBER_BITS)) as usize
}

/// Returns whether any two accesses of these keys are to the same bytes, or have no byte in common.
fn is_regular(entries: &[Entry], keys: &[u64]) -> bool {
    keys.windows(2).all(|pair| {
        let (a, b) = (entries[number_of(pair[0])].span, entries[number_of(pair[1])].span);
        let (x, y) = (a.bytes, b.bytes);
        a.memory == b.memory && x.start / PAGE == y.start / PAGE && (x == y || x.end <= y.start)
    })
}

/// Accesses in an order, divided into rows.
#[derive(Debug)]
pub(crate) struct Rows {
    numbers: Vec<usize>,
    /// The end of each row in `numbers`.
    ends: Vec<usize>,
}

impl Rows {
    /// Adds an access, to the last row or as a new one.
    fn add(&mut self, number: usize, continues_row: bool) {
        self.numbers.push(number);
        match self.ends.last_mut() {
            Some(end) if continues_row => *end += 1,
            _ => self.ends.push(self.numbers.len()),
        }
    }

    /// Adds the accesses of a page: first the first one of each word, then the second one of each word, and so on.
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

    /// Returns the numbers of each row.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &[usize]> {
        let begins = std::iter::once(0).chain(self.ends.iter().copied());
        begins.zip(&self.ends).map(|(begin, &end)| &self.numbers[begin..end])
    }
}

/// Returns whether `b` continues a row that ends with `a`.
fn entries_are_alike(a: &Entry, b: &Entry) -> bool {
    (a.kind, a.call) == (b.kind, b.call)
        && a.kind != Kind::Put
        && a.actor.0 + 1 == b.actor.0
        && a.span.bytes.end == b.span.bytes.start
        && a.span.bytes.len() == b.span.bytes.len()
}
