//! Descriptions of calls for the sanitizer, in plain numbers.

use core::panic::Location;

use crate::abi::CtxParts;
use crate::scope::FenceScope;

/// A range of a PE's symmetric memory or local buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeRange {
    /// The PE that owns the memory.
    pub pe: u32,
    /// Offset in bytes, as in handles.
    pub offset: u64,
    /// The length in bytes.
    pub bytes: u64,
}

impl PeRange {
    /// Creates a range of `bytes` bytes at `offset` on `pe`.
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
    /// Distance between the starts of two ranges, in bytes.
    pub stride: u64,
}

/// How an operation changes a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// A signal that sets.
    Set,
    /// An atomic, or a signal that adds.
    Update,
    /// An atomic that sets. Unlike an update, it does not carry on what earlier writes of the word have published.
    Replace,
}

/// An operation that a call posts.
#[derive(Clone, Copy, Debug)]
pub enum Operation {
    /// A put, with its signal if any.
    Put {
        /// Memory that is read; `None` for a value.
        src: Option<PeRange>,
        /// Memory that is written.
        dst: PeRange,
        /// Word that is changed after the data.
        signal: Option<(PeRange, Change)>,
    },
    /// A get.
    Get {
        /// Memory that is read.
        src: PeRange,
        /// Memory that is written; `None` for a value.
        dst: Option<PeRange>,
    },
    /// A strided put.
    PutBlocks {
        /// Memory that is read.
        src: Blocks,
        /// Memory that is written.
        dst: Blocks,
        /// The number of ranges.
        count: u64,
    },
    /// A strided get.
    GetBlocks {
        /// Memory that is read.
        src: Blocks,
        /// Memory that is written.
        dst: Blocks,
        /// The number of ranges.
        count: u64,
    },
    /// A signal, or an atomic without a result.
    Change {
        /// The word it changes.
        word: PeRange,
        /// How the word changes.
        change: Change,
    },
    /// An atomic with a result.
    Fetch {
        /// The word it reads and changes.
        word: PeRange,
        /// Whether it only reads the word.
        is_read: bool,
        /// Memory that receives the result; `None` if the call returns it.
        result: Option<PeRange>,
    },
}

/// How far an operation has got when its call returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completion {
    /// It has been posted.
    Posted,
    /// Its source may be reused.
    SourceFree,
    /// It is complete.
    Done,
}

/// An operation and the queues it uses.
#[derive(Clone, Copy, Debug)]
pub struct Posting {
    /// Index of the context: its first queue set.
    pub context: u32,
    /// The operation.
    pub operation: Operation,
    /// How far it has got when the call returns.
    pub completion: Completion,
    /// Whether it is ordered after all earlier operations to its PE.
    pub after_all: bool,
}

/// Which ordering call was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ordering {
    /// `fence`.
    Fence,
    /// `quiet`.
    Quiet,
    /// `flush`.
    Flush,
}

/// An ordering call: what it orders, and for which PEs.
#[derive(Clone, Copy, Debug)]
pub struct Order {
    /// Index of the context: its first queue set.
    pub context: u32,
    /// Which call it is.
    pub ordering: Ordering,
    /// The PE it is limited to; `None` for all.
    pub pe: Option<u32>,
}

/// Which part of a collective call this call is.
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
    /// Which part of the call this is.
    pub meeting: Meeting,
    /// Whether the call moves data and thus only synchronises its buffers. Other calls are barriers.
    pub moves: bool,
    /// The context whose earlier operations the call completes, if any.
    pub completes: Option<u32>,
    /// The member whose source is the only one read; `None` if all have one.
    pub root: Option<u32>,
    /// Offset and length of what the call reads on each PE. Unused entries have length 0.
    pub reads: [(u64, u64); 5],
    /// Offset and length of what the call writes on each PE.
    pub writes: (u64, u64),
}

/// Memory of this PE used by the collective call in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Whether the call writes it.
    pub is_written: bool,
    /// Offset in bytes.
    pub offset: u64,
    /// The length in bytes.
    pub bytes: u64,
}

pub(crate) const NOTHING: (u64, u64) = (0, 0);

impl Collective {
    /// Describes a call that only synchronises.
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

    /// Describes a call that moves `src` to `dst`.
    #[inline(always)]
    pub(crate) const fn moves(team: (u32, u32), dst: (u64, u64), src: (u64, u64)) -> Self {
        let reads = [src, NOTHING, NOTHING, NOTHING, NOTHING];
        Self { moves: true, reads, writes: dst, ..Self::sync(team, Meeting::Whole) }
    }
}

/// A step of a thread.
#[derive(Clone, Copy, Debug)]
pub enum Event {
    /// A strong load through a view.
    StrongLoad {
        /// Address of the first byte.
        address: u64,
        /// Length in bytes.
        bytes: u64,
    },
    /// A strong store through a view.
    StrongStore {
        /// Address of the first byte.
        address: u64,
        /// Length in bytes.
        bytes: u64,
    },
    /// A memory fence.
    MemoryFence {
        /// Whether it is a release.
        releases: bool,
        /// Whether it is an acquire.
        acquires: bool,
        /// The observers it covers.
        scope: FenceScope,
    },
    /// A posted operation.
    Post(Posting),
    /// An ordering call.
    Order(Order),
    /// A call that announces this thread's earlier stores to peers.
    OwnStores,
    /// This thread's part of its group's ordering call, which another thread reports. When the call returns, it has
    /// released for this thread too, and acquired if `acquires`.
    OwnOrder {
        /// Whether it is an acquire as well.
        acquires: bool,
        /// The observers it covers.
        scope: FenceScope,
    },
    /// A word has been polled or waited for.
    Look {
        /// The word that was read.
        word: PeRange,
        /// Whether the comparison held.
        is_seen: bool,
        /// The value in the low bits; `None` where the hook does not know it.
        value: Option<u64>,
    },
    /// A collective call of a team.
    Collective(Collective),
    /// The barrier of the grid.
    Grid,
    /// A wait for the operations of a ticket has returned.
    Complete(u64),
    /// A wait for a word has started. It may take long.
    Wait {
        /// The word waited for.
        word: PeRange,
        /// The comparison, as in reports.
        cmp: &'static str,
        /// The value to compare with, in the low bits.
        value: u64,
    },
    /// A collective call that another thread of the group reports.
    Member(Collective),
    /// Memory of a collective call, reported by the thread inside the call that knows it.
    Part(Part),
    /// A lock that this PE has acquired or is about to clear.
    Lock {
        /// The memory of the lock.
        lock: PeRange,
        /// Whether this PE holds it now.
        is_held: bool,
    },
    /// Part of a call that another thread of the group reports.
    Silent,
}

impl Event {
    #[inline(always)]
    pub(crate) const fn post(parts: &CtxParts, operation: Operation, completion: Completion) -> Self {
        Self::Post(Posting { context: parts.first_set, operation, completion, after_all: false })
    }

    #[inline(always)]
    pub(crate) const fn reads((offset, bytes): (u64, u64)) -> Self {
        Self::Part(Part { is_written: false, offset, bytes })
    }

    #[inline(always)]
    pub(crate) const fn writes((offset, bytes): (u64, u64)) -> Self {
        Self::Part(Part { is_written: true, offset, bytes })
    }

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
    /// Address of the first byte.
    pub address: u64,
    /// Length in bytes.
    pub bytes: u64,
}

/// The sanitizer, as seen by the code of one lane. An executor gives each lane its watcher.
pub trait Watcher {
    /// Called when a call of the program starts. Calls nested in it are silent.
    fn begin(&self, name: &'static str, event: Event, site: &'static Location<'static>);
    /// Called when the innermost call returns.
    fn end(&self);
    /// Reports a plain load or store: a call without nested calls, and by far the most frequent one. Returns whether
    /// other lanes of the block should run now.
    fn access(&self, name: &'static str, access: Access, site: &'static Location<'static>) -> bool;
    /// Reports that the lane is still waiting in a call and will poll again.
    fn waits(&self);
    /// Reports the value of the word that the lane waits for, at each poll.
    fn sees(&self, value: u64);
    /// Returns a ticket for the last operation of this lane.
    fn ticket(&self) -> u64;
    /// Returns a ticket for all earlier operations of a context to a PE.
    fn ticket_of(&self, context: u32, pe: u32) -> u64;
}
