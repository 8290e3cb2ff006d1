//! Translates the device calls and memory accesses of a GPU thread (a lane) into requests to the sanitizer engine.

use std::cell::{Cell, RefCell};
use std::panic::Location;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rushmem_device::FenceScope;
use rushmem_device::watch::{
    Access, Blocks, Change, Collective, Completion, Event, Meeting, Operation, Order, Ordering, Part,
    PeRange, Posting, Watcher,
};
use rushmem_sanitizer::{
    Accesses, Acquire, ActorId, Buffers, Call, Context, Done, Kind, MeetingId, Noted, Post, Request, Scope,
    Span, Until, Wait,
};

use super::launch::LaunchWatch;
use super::link::Link;
use super::polls::{MIN_READS, Polls};

/// A request to the engine that is deferred until the current device call returns.
#[derive(Debug)]
enum AtEnd {
    /// The result of a fetching atomic has arrived.
    Fetched { operation: ActorId, word: Span, call: Call },
    /// A member leaves a barrier or another collective call. A barrier also fences, with scope `fence`.
    Leave { meeting: MeetingId, member: u32, buffers: Buffers, fence: Option<Scope>, call: Call },
    /// The call was a fence with release and acquire semantics.
    Fence(Scope),
    /// The call was a fence with release semantics.
    Release(Scope),
}

/// Observes one GPU thread of a launch and reports its steps to the sanitizer engine.
pub(super) struct LaneWatch {
    launch: Arc<LaunchWatch>,
    actor: ActorId,
    block: u32,
    thread: u32,
    /// Plain accesses of all threads in the block that have not been passed to the engine yet.
    accesses: Arc<Accesses>,
    /// Number of plain accesses that the thread may make before it yields to the others of its block.
    turn_left: Cell<usize>,
    /// Nesting depth of the device calls in progress.
    depth: Cell<u32>,
    at_end: RefCell<Option<AtEnd>>,
    /// The last operation posted by this thread.
    last: Cell<Option<ActorId>>,
    /// Whether this thread has stored to memory of other PEs since its last `quiet` or fence.
    has_stored: Cell<bool>,
    /// What the current call waits for.
    awaited: RefCell<Option<Awaited>>,
    /// Last value read from the word for which this thread is waiting.
    value: Cell<Option<u64>>,
    polls: Polls,
}

#[derive(Clone, Debug)]
struct Awaited {
    call: Call,
    until: AwaitedEvent,
    /// When the call started, or when its wait was last reported to the engine.
    told: Instant,
}

impl Awaited {
    fn new(call: Call, until: AwaitedEvent) -> Self {
        Self { call, until, told: Instant::now() }
    }
}

/// Minimum time between two reports of the same wait to the engine. Deadlock detection is far slower.
const TELL_AFTER: Duration = Duration::from_millis(10);

/// The event that satisfies a wait.
#[derive(Clone, Debug)]
enum AwaitedEvent {
    /// A word in memory reaches the value described by `wanted`.
    Word { word: Span, wanted: String },
    /// The other members arrive at a collective call.
    Members(MeetingId),
    /// The other blocks arrive at the grid barrier.
    Blocks,
}

impl Watcher for LaneWatch {
    fn begin(&self, name: &'static str, event: Event, site: &'static Location<'static>) {
        let depth = self.depth.get();
        self.depth.set(depth + 1);
        // The memory of a collective call is known only inside it, so this is reported at any depth. Other calls that a
        // public call makes are not the program's own.
        if let Event::Part(part) = event {
            self.add_part(part);
        } else if depth == 0 {
            self.note(event, self.launch.name(name, site));
        }
    }

    fn end(&self) {
        let depth = self.depth.get().saturating_sub(1);
        self.depth.set(depth);
        // First: the wait is over before the step that satisfied it is reported.
        if depth == 0 && self.awaited.take().is_some() {
            self.tell(Request::Wake(self.actor));
        }
        if depth == 0
            && let Some(step) = self.at_end.take()
        {
            self.tell_end(step);
        }
    }

    fn access(&self, name: &'static str, access: Access, site: &'static Location<'static>) -> bool {
        // An access inside a call belongs to that call, whose event has described it.
        if self.depth.get() > 0 {
            return false;
        }
        let Access { is_store, address, bytes } = access;
        let noted = match is_store {
            true => self.accesses.store(self.thread, (address, bytes), name, site),
            false => self.accesses.load(self.thread, (address, bytes), name, site),
        };
        match noted {
            Noted::Waits => {}
            // `link` takes the list, and nothing else has to be reported.
            Noted::Full => drop(self.link()),
            Noted::ToPeer => {
                self.has_stored.set(true);
                // Peers may see the store as soon as it is made, so an engine in another process must have it first.
                self.launch.watched.link().take_stores(&self.accesses);
            }
        }
        if is_store {
            self.stop_polls();
        } else if self.polls.load(address) {
            self.poll_plainly(address, bytes, self.launch.name(name, site));
        }
        // Yielding fills the list with the accesses of all lanes, so neighboring ones form rows.
        self.turn_left.set(self.turn_left.get() - 1);
        let is_over = self.turn_left.get() == 0;
        if is_over {
            self.turn_left.set(self.accesses.turn());
        }
        is_over
    }

    fn waits(&self) {
        let mut awaited = self.awaited.borrow_mut();
        let Some(Awaited { call, until, told }) = &mut *awaited else { return };
        // A spinning wait calls this millions of times.
        if told.elapsed() < TELL_AFTER {
            return;
        }
        *told = Instant::now();
        let (actor, call) = (self.actor, *call);
        let until = match until {
            AwaitedEvent::Word { word, wanted } => {
                Until::Word { word: *word, wanted: wanted.clone(), value: self.value.get() }
            }
            AwaitedEvent::Members(meeting) => {
                let (meeting, member, at) = (*meeting, self.pe(), format!("`{}`", call.name));
                return self.tell(Request::WaitForMembers { actor, call, meeting, member, at });
            }
            // Every block may have arrived since.
            AwaitedEvent::Blocks => match self.launch.missing_blocks(self.block) {
                none if none.is_empty() => return,
                actors => Until::Arrivals { at: "the barrier of the grid".into(), actors },
            },
        };
        self.tell(Request::Wait { actor, wait: Wait { call, until } });
    }

    fn sees(&self, value: u64) {
        self.value.set(Some(value));
    }

    fn ticket(&self) -> u64 {
        self.last.get().map_or(0, |operation| self.launch.add_ticket(vec![operation]))
    }

    fn ticket_of(&self, context: u32, pe: u32) -> u64 {
        let queues = self.queues(context);
        self.launch.add_ticket(self.link().earlier(self.actor, queues, Some(pe)))
    }
}

impl Drop for LaneWatch {
    fn drop(&mut self) {
        // The stores outlive the lane, so a later fence of another lane has to cover them.
        if self.has_stored.get() {
            self.launch.watched.ends_with_stores(self.launch.number, self.actor);
        }
    }
}

impl LaneWatch {
    pub(super) fn new(
        launch: Arc<LaunchWatch>,
        accesses: Arc<Accesses>,
        (block, thread): (u32, u32),
    ) -> Self {
        Self {
            launch,
            actor: accesses.lanes()[thread as usize],
            block,
            thread,
            turn_left: Cell::new(accesses.turn()),
            accesses,
            depth: Cell::new(0),
            at_end: RefCell::new(None),
            last: Cell::new(None),
            has_stored: Cell::new(false),
            awaited: RefCell::new(None),
            value: Cell::new(None),
            polls: Polls::default(),
        }
    }

    fn pe(&self) -> u32 {
        self.launch.watched.pe
    }

    /// Returns the link to the engine, after passing on the block's pending plain accesses, which precede the next
    /// request.
    fn link(&self) -> &Link {
        let link = self.launch.watched.link();
        link.take_accesses(&self.accesses);
        link
    }

    fn tell(&self, request: Request) {
        self.link().tell(request);
    }

    fn tell_all(&self, requests: impl IntoIterator<Item = Request>) {
        self.link().tell_all(requests);
    }

    fn queues(&self, context: u32) -> Context {
        Context::Queues { pe: self.pe(), context }
    }

    fn span(&self, range: PeRange) -> Option<Span> {
        self.launch.addresses.span(range)
    }

    /// Translates an address used by this thread, or returns `None` if it is not in symmetric memory.
    fn word(&self, address: u64, bytes: u64) -> Option<Span> {
        self.launch.addresses.regions().at(address, bytes)
    }

    /// Records whether an event reads a word, which may continue a polling loop, or does something else, which ends it.
    fn note_poll(&self, event: &Event, call: Call) {
        let word = match *event {
            Event::StrongLoad { address, bytes } => self.word(address, bytes),
            Event::Look { word, .. } => self.span(word),
            Event::Post(Posting { operation: Operation::Fetch { word, is_read: true, .. }, .. }) => {
                self.span(word)
            }
            _ => None,
        };
        match word {
            Some(word) => self.polls.read(word, call),
            None => self.stop_polls(),
        }
    }

    /// Records that the thread is polling `address` with plain loads.
    fn poll_plainly(&self, address: u64, bytes: u64, call: Call) {
        if let Some(word) = self.word(address, bytes) {
            // Each plain load is too fast to report, so they count as the reads that make a wait.
            (0..=MIN_READS).for_each(|_| self.polls.read(word, call));
            self.value.set(None);
            self.tell_all(self.poll());
        }
    }

    fn stop_polls(&self) {
        if self.polls.stop() {
            self.tell(Request::Wake(self.actor));
        }
    }

    /// Reports a read of a word and, if the thread only polls this word, that it is waiting. The two requests are sent
    /// atomically.
    fn tell_read(&self, read: Request) {
        self.tell_all([read].into_iter().chain(self.poll()));
    }

    /// Returns a request that reports this thread as waiting, if it only polls one word. Unwinds the kernel if the
    /// waits of the job have been aborted.
    fn poll(&self) -> Option<Request> {
        let (word, call) = self.polls.waits_for()?;
        if self.launch.watched.is_over() {
            // The program leaves such a loop by unwinding only.
            std::panic::resume_unwind(Box::new("the sanitizer has ended a loop that waits".to_string()));
        }
        let until = Until::Word { word, wanted: "another value".into(), value: self.value.get() };
        Some(Request::Wait { actor: self.actor, wait: Wait { call, until } })
    }

    fn note(&self, event: Event, call: Call) {
        self.note_poll(&event, call);
        self.value.set(if let Event::Look { value, .. } = event { value } else { None });
        match event {
            Event::StrongLoad { address, bytes } => self.load_strongly(address, bytes, call),
            Event::StrongStore { address, bytes } => self.store_strongly(address, bytes, call),
            Event::MemoryFence { releases, acquires, scope } => {
                let scope = scope_of(scope);
                let release = releases.then_some(Request::FenceRelease(self.actor, scope));
                let acquire = acquires.then_some(Request::FenceAcquire(self.actor, scope));
                self.tell_all(release.into_iter().chain(acquire));
            }
            Event::Post(posting) => self.post(posting, call),
            Event::Order(order) => self.order(order, call),
            Event::OwnStores => self.complete_stores(),
            // A narrower fence does not order stores to peers.
            Event::OwnOrder { acquires, scope } => {
                if scope == FenceScope::System {
                    self.complete_stores();
                }
                let scope = scope_of(scope);
                let end = if acquires { AtEnd::Fence(scope) } else { AtEnd::Release(scope) };
                self.at_end.replace(Some(end));
            }
            Event::Look { word, is_seen, value } => self.look(word, is_seen, value, call),
            Event::Wait { word, cmp, value } => {
                let until =
                    self.span(word).map(|word| AwaitedEvent::Word { word, wanted: format!("{cmp} {value}") });
                self.wait_for(until, call);
            }
            Event::Lock { lock, is_held } => self.lock(lock, is_held, call),
            // A member that is not the leader: the leader reports the arrival for all.
            Event::Member(Collective { team, meeting, moves, .. }) => {
                if meeting == Meeting::Whole {
                    let whole = self.launch.watched.team(team).map(|team| team.whole);
                    self.wait_for(whole.map(AwaitedEvent::Members), call);
                }
                self.at_end.replace((!moves).then_some(AtEnd::Fence(Scope::System)));
            }
            Event::Collective(collective) => self.arrive(collective, call),
            Event::Grid => self.arrive_at_grid(call),
            Event::Complete(ticket) => self.complete(ticket),
            Event::Part(_) | Event::Silent => {}
        }
    }

    /// Records the event for which the current call waits, or `None` if the engine does not track this kind of wait.
    fn wait_for(&self, until: Option<AwaitedEvent>, call: Call) {
        self.awaited.replace(until.map(|until| Awaited::new(call, until)));
    }

    fn look(&self, word: PeRange, is_seen: bool, value: Option<u64>, call: Call) {
        let Some(word) = self.span(word) else { return };
        let actor = self.actor;
        self.tell_read(match is_seen {
            true => Request::Observe { actor, word, value, acquire: Acquire::Now, call },
            false => Request::Look { actor, word, call },
        });
    }

    fn lock(&self, lock: PeRange, is_held: bool, call: Call) {
        let Some(lock) = self.span(lock) else { return };
        self.tell(match is_held {
            true => Request::Hold { actor: self.actor, lock, call },
            false => Request::LetGo(lock),
        });
    }

    fn arrive_at_grid(&self, call: Call) {
        let (meeting, member) = (self.launch.grid, self.block);
        self.tell(Request::Arrive { actor: self.actor, meeting, member });
        self.wait_for(Some(AwaitedEvent::Blocks), call);
        let (buffers, fence) = (Buffers::default(), Some(Scope::Gpu));
        self.at_end.replace(Some(AtEnd::Leave { meeting, member, buffers, fence, call }));
    }

    fn tell_end(&self, step: AtEnd) {
        let actor = self.actor;
        match step {
            // Other atomics may have come between the event and the atomic itself, so read what the word carries once
            // more.
            AtEnd::Fetched { operation, word, call } => {
                self.tell(Request::Complete { actor, operation });
                let acquire = Acquire::AtFence;
                self.tell_read(Request::Observe { actor, word, value: None, acquire, call });
            }
            AtEnd::Leave { meeting, member, buffers, fence, call } => {
                let leave = Request::Leave { actor, meeting, member, buffers, call };
                self.tell_all(
                    [leave].into_iter().chain(fence.into_iter().flat_map(|scope| fences(actor, scope))),
                );
            }
            AtEnd::Fence(scope) => self.tell_all(fences(actor, scope)),
            AtEnd::Release(scope) => self.tell(Request::FenceRelease(actor, scope)),
        }
    }

    fn load_strongly(&self, address: u64, bytes: u64, call: Call) {
        if let Some(word) = self.word(address, bytes) {
            // The load is relaxed, so it acquires at the next fence.
            let (actor, acquire) = (self.actor, Acquire::AtFence);
            self.tell_read(Request::Observe { actor, word, value: None, acquire, call });
        }
    }

    /// Reports a relaxed store of a word. A store to another PE's memory is in flight, like a put, until a fence or
    /// `quiet` completes it.
    fn store_strongly(&self, address: u64, bytes: u64, call: Call) {
        let Some(word) = self.word(address, bytes) else { return };
        let actor = self.actor;
        let is_remote = word.memory.pe != self.pe();
        self.tell(match is_remote {
            true => Request::StoreToPeer { actor, span: word, call },
            false => Request::StoreRelaxed { actor, word, call },
        });
        self.has_stored.set(self.has_stored.get() || is_remote);
    }

    /// Completes the stores to peers made by this thread and by threads that have returned.
    fn complete_stores(&self) {
        let earlier = self.launch.watched.ended_with_stores();
        if !self.has_stored.take() && earlier.is_empty() {
            return;
        }
        let actor = self.actor;
        let quiet = |lane| Request::Quiet { actor, context: Context::Stores(lane), pe: None };
        self.tell_all(earlier.into_iter().chain([actor]).map(quiet));
    }

    fn post(&self, posting: Posting, call: Call) {
        let Posting { context, operation, .. } = posting;
        let queues = self.queues(context);
        match operation {
            // The call will fail.
            Operation::Put { src: Some(src), dst, .. } | Operation::Get { src, dst: Some(dst) }
                if src.bytes != dst.bytes => {}
            Operation::Put { src, dst, signal } => self.put(posting, (src, dst), signal, call),
            Operation::Get { src, dst } => {
                let dst_span = dst.and_then(|dst| self.span(dst));
                if let Some(src) = self.span(src).filter(|_| dst.is_none() || dst_span.is_some()) {
                    self.issue(Post::get(queues, src, dst_span, call), posting);
                }
            }
            Operation::PutBlocks { src, dst, count } => {
                for (src, dst) in pairs(src, dst, count) {
                    if let (Some(src), Some(dst)) = (self.span(src), self.span(dst)) {
                        self.issue(Post::put(queues, Some(src), dst, call), posting);
                    }
                }
            }
            Operation::GetBlocks { src, dst, count } => {
                for (src, dst) in pairs(src, dst, count) {
                    if let (Some(src), Some(dst)) = (self.span(src), self.span(dst)) {
                        self.issue(Post::get(queues, src, Some(dst), call), posting);
                    }
                }
            }
            Operation::Change { word, change } => {
                if let Some(word) = self.span(word) {
                    let signal = Post::signal(queues, word, kind_of(change), call);
                    let replaces = change == Change::Replace;
                    self.issue(if replaces { signal.replacing() } else { signal }, posting);
                }
            }
            Operation::Fetch { word, is_read, result } => {
                let kind = if is_read { Kind::Fetch } else { Kind::Atomic };
                let Some(word) = self.span(word) else { return };
                let Some(result) = result else {
                    let operation = self.issue(Post::fetch(queues, word, kind, call), posting);
                    self.at_end.replace(Some(AtEnd::Fetched { operation, word, call }));
                    return;
                };
                self.issue(Post::fetch_nbi(queues, word, kind, self.span(result), call), posting);
            }
        }
    }

    fn put(
        &self,
        posting: Posting,
        (src, dst): (Option<PeRange>, PeRange),
        signal: Option<(PeRange, Change)>,
        call: Call,
    ) {
        let queues = self.queues(posting.context);
        let signal = signal.and_then(|(word, change)| Some((self.span(word)?, kind_of(change))));
        let src_span = src.and_then(|src| self.span(src));
        let is_whole = src.is_none() || src_span.is_some();
        match (self.span(dst).filter(|_| is_whole), signal) {
            (Some(dst), Some((word, kind))) => {
                let put = Post::put(queues, src_span, dst, call);
                self.issue(put.with_signal(word, kind), posting);
            }
            (Some(dst), None) => {
                self.issue(Post::put(queues, src_span, dst, call), posting);
            }
            // Without data, the signal remains.
            (None, Some((word, kind))) if dst.bytes == 0 => {
                self.issue(Post::signal(queues, word, kind, call).releasing(), posting);
            }
            _ => {}
        }
    }

    /// Reports an operation as posted and delivered, since the native emulator delivers it in the thread that posts it.
    /// Returns its ID.
    fn issue(&self, post: Post, Posting { completion, after_all, .. }: Posting) -> ActorId {
        let post = if after_all { post.after_all() } else { post };
        let completion = match completion {
            Completion::Posted => Done::Nothing,
            Completion::SourceFree => Done::Source,
            Completion::Done => Done::All,
        };
        let operation = self.link().post(self.actor, post, completion);
        self.last.set(Some(operation));
        operation
    }

    fn order(&self, Order { context, ordering, pe }: Order, call: Call) {
        let (actor, context) = (self.actor, self.queues(context));
        // Fences of the context also cover the lane's stores to peers, and the calls are fences themselves.
        let order = match ordering {
            Ordering::Fence => Request::Fence { actor, context, pe, call },
            Ordering::Quiet => Request::Quiet { actor, context, pe },
            Ordering::Flush => return self.tell(Request::Flush { actor, context, pe }),
        };
        self.tell(order);
        self.complete_stores();
        let end = if ordering == Ordering::Quiet { AtEnd::Release } else { AtEnd::Fence };
        self.at_end.replace(Some(end(Scope::System)));
    }

    fn complete(&self, ticket: u64) {
        let operations = self.launch.ticket(ticket).into_iter();
        self.tell_all(operations.map(|operation| Request::Complete { actor: self.actor, operation }));
    }

    /// Adds a range of memory to the source or destination buffers of the collective call in progress.
    fn add_part(&self, Part { is_written, offset, bytes }: Part) {
        let span = self.span(PeRange { pe: self.pe(), offset, bytes });
        if let (Some(AtEnd::Leave { buffers, .. }), Some(span)) = (&mut *self.at_end.borrow_mut(), span) {
            let list = if is_written { &mut buffers.writes } else { &mut buffers.reads };
            list.push(span);
        }
    }

    fn arrive(&self, collective: Collective, call: Call) {
        let (pe, actor, part) = (self.pe(), self.actor, collective.meeting);
        let Some(team) = self.launch.watched.team(collective.team) else { return };
        let meeting = if part == Meeting::Whole { team.whole } else { team.split };
        // A barrier completes the operations of its context before the member arrives.
        let quiet = collective.completes.map(|context| {
            let context = self.queues(context);
            Request::Quiet { actor, context, pe: None }
        });
        // Waiting for a split barrier is not an arrival: that was an earlier call.
        let arrive = (part != Meeting::SplitWait).then_some(Request::Arrive { actor, meeting, member: pe });
        self.tell_all(quiet.into_iter().chain(arrive));
        let fence = (!collective.moves).then_some(Scope::System);
        // The split arrival releases, but only the wait leaves the meeting.
        if part == Meeting::SplitArrive {
            self.at_end.replace(fence.map(AtEnd::Fence));
        } else {
            let own = |(offset, bytes): (u64, u64)| self.span(PeRange { pe, offset, bytes });
            let root = collective.root.and_then(|root| team.members.get(root as usize).copied());
            // Of a rooted call, only the root reads its source.
            let reads_here = collective.root.is_none() || root == Some(pe);
            let reads = collective.reads.into_iter().filter(|_| reads_here).filter_map(own).collect();
            let (writes, moves) = (own(collective.writes).into_iter().collect(), collective.moves);
            let buffers = Buffers { reads, writes, root, moves };
            self.at_end.replace(Some(AtEnd::Leave { meeting, member: pe, buffers, fence, call }));
            self.wait_for(Some(AwaitedEvent::Members(meeting)), call);
        }
    }
}

fn kind_of(change: Change) -> Kind {
    match change {
        Change::Set => Kind::Set,
        Change::Update | Change::Replace => Kind::Atomic,
    }
}

fn scope_of(scope: FenceScope) -> Scope {
    match scope {
        FenceScope::Block => Scope::Block,
        FenceScope::Gpu => Scope::Gpu,
        FenceScope::System => Scope::System,
    }
}

fn fences(actor: ActorId, scope: Scope) -> [Request; 2] {
    [Request::FenceRelease(actor, scope), Request::FenceAcquire(actor, scope)]
}

/// Returns the source and destination of each block of a strided transfer.
fn pairs(src: Blocks, dst: Blocks, count: u64) -> impl Iterator<Item = (PeRange, PeRange)> {
    let at = |side: Blocks, i: u64| {
        let offset = side.first.offset.saturating_add(side.stride.saturating_mul(i));
        PeRange { offset, ..side.first }
    };
    (0..count).map(move |i| (at(src, i), at(dst, i)))
}
