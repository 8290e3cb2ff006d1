//! Descriptions of calls for the sanitizer, in plain numbers.

use core::panic::Location;

use crate::abi::CtxParts;
use crate::scope::FenceScope;

/// A range of the symmetric memory or of the local buffers of a PE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeRange {
    /// The PE.
    pub pe: u32,
    /// The offset, as in handles.
    pub offset: u64,
    /// The length in bytes.
    pub bytes: u64,
}

impl PeRange {
    /// Returns `bytes` bytes of `pe` from `offset` on.
    #[inline(always)]
    pub const fn new(pe: u32, offset: u64, bytes: u64) -> Self {
        Self { pe, offset, bytes }
    }
}

/// Ranges at equal distances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blocks {
    /// The first range.
    pub first: PeRange,
    /// The distance from one to the next, in bytes.
    pub stride: u64,
}

/// The change that an operation makes to a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// A signal that sets.
    Set,
    /// An atomic, or a signal that adds.
    Update,
    /// An atomic that sets. Unlike an update, it does not pass on what earlier writes of the word have published.
    Replace,
}

/// An operation that a call posts.
#[derive(Clone, Copy, Debug)]
pub enum Operation {
    /// A put, and its signal.
    Put {
        /// The memory that it reads; `None` for a value.
        src: Option<PeRange>,
        /// The memory that it writes.
        dst: PeRange,
        /// The word that it then changes.
        signal: Option<(PeRange, Change)>,
    },
    /// A get.
    Get {
        /// The memory that it reads.
        src: PeRange,
        /// The memory that it writes; `None` for a value.
        dst: Option<PeRange>,
    },
    /// A strided put.
    PutBlocks {
        /// The memory that it reads.
        src: Blocks,
        /// The memory that it writes.
        dst: Blocks,
        /// The number of ranges.
        count: u64,
    },
    /// A strided get.
    GetBlocks {
        /// The memory that it reads.
        src: Blocks,
        /// The memory that it writes.
        dst: Blocks,
        /// The number of ranges.
        count: u64,
    },
    /// A signal or an atomic without a result.
    Change {
        /// The word.
        word: PeRange,
        /// The change.
        change: Change,
    },
    /// An atomic with a result.
    Fetch {
        /// The word.
        word: PeRange,
        /// Whether it only reads the word.
        is_read: bool,
        /// The memory that it writes; `None` if the call returns the result.
        result: Option<PeRange>,
    },
}

/// The progress of an operation at the end of its call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completion {
    /// It is posted.
    Posted,
    /// Its source is free.
    SourceFree,
    /// It is complete.
    Done,
}

/// An operation with its queues.
#[derive(Clone, Copy, Debug)]
pub struct Posting {
    /// The number of the context.
    pub context: u32,
    /// The operation.
    pub operation: Operation,
    /// Its progress at the end of the call.
    pub completion: Completion,
    /// Whether it follows all earlier operations to its PE.
    pub after_all: bool,
}

/// The kind of an ordering call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ordering {
    /// `fence`.
    Fence,
    /// `quiet`.
    Quiet,
    /// `flush`.
    Flush,
}

/// An ordering call.
#[derive(Clone, Copy, Debug)]
pub struct Order {
    /// The number of the context.
    pub context: u32,
    /// The kind.
    pub ordering: Ordering,
    /// The PE; `None` for all.
    pub pe: Option<u32>,
}

/// The part of a collective call that a call makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meeting {
    /// A whole collective call.
    Whole,
    /// An arrival at the split barrier.
    SplitArrive,
    /// A wait at the split barrier.
    SplitWait,
}

/// A collective call of a team.
#[derive(Clone, Copy, Debug)]
pub struct Collective {
    /// The slot and the generation of the team.
    pub team: (u32, u32),
    /// The part of the call.
    pub meeting: Meeting,
    /// Whether the call moves data, and so promises only its buffers. Other calls are barriers.
    pub moves: bool,
    /// The context of a call that completes earlier operations.
    pub completes: Option<u32>,
    /// The member that has the only source; `None` if all have one.
    pub root: Option<u32>,
    /// Offsets and lengths that the call reads in each PE. Unused entries have no bytes.
    pub reads: [(u64, u64); 5],
    /// The offset and length that the call writes in each PE.
    pub writes: (u64, u64),
}

/// Memory of this PE that the collective call in progress uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Whether the call writes it.
    pub is_written: bool,
    /// The offset.
    pub offset: u64,
    /// The length in bytes.
    pub bytes: u64,
}

/// No bytes.
pub(crate) const NOTHING: (u64, u64) = (0, 0);

impl Collective {
    /// Returns a call that only synchronises.
    #[inline(always)]
    pub(crate) const fn sync(team: (u32, u32), meeting: Meeting) -> Self {
        Self {
            team,
            meeting,
            moves: false,
            completes: None,
            root: None,
            reads: [NOTHING; 5],
            writes: NOTHING,
        }
    }

    /// Returns a call that moves `src` to `dst`.
    #[inline(always)]
    pub(crate) const fn moves(team: (u32, u32), dst: (u64, u64), src: (u64, u64)) -> Self {
        let reads = [src, NOTHING, NOTHING, NOTHING, NOTHING];
        Self { moves: true, reads, writes: dst, ..Self::sync(team, Meeting::Whole) }
    }
}

/// A step of a thread.
#[derive(Clone, Copy, Debug)]
pub enum Event {
    /// A strong load of a view.
    StrongLoad {
        /// The address.
        address: u64,
        /// The length.
        bytes: u64,
    },
    /// A strong store of a view.
    StrongStore {
        /// The address.
        address: u64,
        /// The length.
        bytes: u64,
    },
    /// A memory fence.
    MemoryFence {
        /// Whether it releases.
        releases: bool,
        /// Whether it acquires.
        acquires: bool,
        /// The observers that it covers.
        scope: FenceScope,
    },
    /// A posted operation.
    Post(Posting),
    /// An ordering call.
    Order(Order),
    /// A call that announces the earlier stores of this thread to peers.
    OwnStores,
    /// The part of this thread in an ordering call of its group, which another thread tells. When the call returns, it has
    /// released for this thread, too, and acquired if `acquires`.
    OwnOrder {
        /// Whether it acquires.
        acquires: bool,
        /// The observers that it covers.
        scope: FenceScope,
    },
    /// A wait for a word, or a look at it.
    Look {
        /// The word.
        word: PeRange,
        /// Whether the value was as wanted.
        is_seen: bool,
        /// The value in the low bits; `None` where the hook does not know it.
        value: Option<u64>,
    },
    /// A collective call of a team.
    Collective(Collective),
    /// The barrier of the grid.
    Grid,
    /// A wait for operations by their ticket, which has ended.
    Complete(u64),
    /// A wait for a word, which may take long.
    Wait {
        /// The word.
        word: PeRange,
        /// The comparison.
        cmp: &'static str,
        /// The value to compare with, in the low bits.
        value: u64,
    },
    /// A collective call that another thread of the group tells.
    Member(Collective),
    /// Memory of a collective call, which only its thread inside of the call knows.
    Part(Part),
    /// A lock that this PE has taken or is about to clear.
    Lock {
        /// The lock.
        lock: PeRange,
        /// Whether this PE holds it now.
        is_held: bool,
    },
    /// A part of a call that another thread of the group tells.
    Silent,
}

impl Event {
    /// Returns the posting of an operation by a context.
    #[inline(always)]
    pub(crate) const fn post(parts: &CtxParts, operation: Operation, completion: Completion) -> Self {
        Self::Post(Posting { context: parts.first_set, operation, completion, after_all: false })
    }

    /// Returns memory that the collective call in progress reads.
    #[inline(always)]
    pub(crate) const fn reads((offset, bytes): (u64, u64)) -> Self {
        Self::Part(Part { is_written: false, offset, bytes })
    }

    /// Returns memory that the collective call in progress writes.
    #[inline(always)]
    pub(crate) const fn writes((offset, bytes): (u64, u64)) -> Self {
        Self::Part(Part { is_written: true, offset, bytes })
    }

    /// Returns an ordering call.
    #[inline(always)]
    pub(crate) const fn order(parts: &CtxParts, ordering: Ordering, pe: Option<u32>) -> Self {
        Self::Order(Order { context: parts.first_set, ordering, pe })
    }
}

/// A plain load or store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Whether it is a store.
    pub is_store: bool,
    /// The address.
    pub address: u64,
    /// The length.
    pub bytes: u64,
}

/// The sanitizer as the code of one lane sees it. An executor gives a lane its watcher.
pub trait Watcher {
    /// Begins a call of the program. Calls that begin before its end are silent.
    fn begin(&self, name: &'static str, event: Event, site: &'static Location<'static>);
    /// Ends the last call that has begun.
    fn end(&self);
    /// Notes a plain load or store: a call without calls inside, and by far the most frequent one. Returns whether other lanes
    /// of the block should run now.
    fn access(&self, name: &'static str, access: Access, site: &'static Location<'static>) -> bool;
    /// Notes that the lane still waits in a call. It looks again after this.
    fn waits(&self);
    /// Records the value of the word that the lane waits for, at each poll.
    fn sees(&self, value: u64);
    /// Returns a ticket for the last operation of this lane.
    fn ticket(&self) -> u64;
    /// Returns a ticket for all earlier operations of a context to a PE.
    fn ticket_of(&self, context: u32, pe: u32) -> u64;
}
