//! Descriptions of device calls and memory accesses, which code instrumented for the sanitizer reports to it.

use core::panic::Location;

use crate::abi::CtxParts;
use crate::scope::FenceScope;

/// A range of a PE's symmetric memory or local buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeRange {
    /// PE that owns the memory.
    pub pe: u32,
    /// Offset of the first byte, in the same space as offsets of handles.
    pub offset: u64,
    /// Length of the range, in bytes.
    pub bytes: u64,
}

impl PeRange {
    /// Creates a range of `bytes` bytes at `offset` on `pe`.
    #[inline(always)]
    pub const fn new(pe: u32, offset: u64, bytes: u64) -> Self {
        Self { pe, offset, bytes }
    }
}

/// A series of memory ranges at equal distances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blocks {
    /// First range of the series.
    pub first: PeRange,
    /// Distance between the starts of two ranges, in bytes.
    pub stride: u64,
}

/// How an operation changes a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The word is set by a signal.
    Set,
    /// The word is updated by an atomic, or by a signal that adds.
    Update,
    /// The word is set by an atomic. Unlike an update, this does not carry on what earlier writes of the word have
    /// published.
    Replace,
}

/// A remote memory operation that a call posts.
#[derive(Clone, Copy, Debug)]
pub enum Operation {
    /// A put, possibly with a signal.
    Put {
        /// Memory that the put reads; `None` for a value.
        src: Option<PeRange>,
        /// Memory that the put writes.
        dst: PeRange,
        /// Word that the signal changes after the data has been written.
        signal: Option<(PeRange, Change)>,
    },
    /// A get: reads memory of another PE.
    Get {
        /// Memory that the get reads.
        src: PeRange,
        /// Memory that the get writes; `None` if the call returns a value.
        dst: Option<PeRange>,
    },
    /// A strided put: writes blocks at equal distances.
    PutBlocks {
        /// Memory that the put reads.
        src: Blocks,
        /// Memory that the put writes.
        dst: Blocks,
        /// Number of blocks.
        count: u64,
    },
    /// A strided get: reads blocks at equal distances.
    GetBlocks {
        /// Memory that the get reads.
        src: Blocks,
        /// Memory that the get writes.
        dst: Blocks,
        /// Number of blocks.
        count: u64,
    },
    /// A signal, or an atomic without a result.
    Change {
        /// Word that the operation changes.
        word: PeRange,
        /// Kind of change, which decides how the word synchronises.
        change: Change,
    },
    /// An atomic that returns the old value.
    Fetch {
        /// Word that the atomic reads or changes.
        word: PeRange,
        /// Whether the atomic only reads the word.
        is_read: bool,
        /// Memory that receives the result; `None` if the call returns it.
        result: Option<PeRange>,
    },
}

/// Progress of an operation when the call that posted it returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completion {
    /// The operation has been posted, and may read its source later.
    Posted,
    /// The source of the operation may be reused.
    SourceFree,
    /// The operation is complete.
    Done,
}

/// An operation that a call has posted, and the queues that it uses.
#[derive(Clone, Copy, Debug)]
pub struct Posting {
    /// Index of the context through which it was posted, which is that of the context's first QP set.
    pub context: u32,
    /// Operation that was posted.
    pub operation: Operation,
    /// Progress of the operation when the call returns.
    pub completion: Completion,
    /// Whether the operation is ordered after all earlier ones to its PE.
    pub after_all: bool,
}

/// Kind of an ordering call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ordering {
    /// A call of `fence`.
    Fence,
    /// A call of `quiet`.
    Quiet,
    /// A call of `flush`.
    Flush,
}

/// A call of `fence`, `quiet` or `flush`.
#[derive(Clone, Copy, Debug)]
pub struct Order {
    /// Index of the context whose operations are ordered, which is that of the context's first QP set.
    pub context: u32,
    /// Which of the three calls was made.
    pub ordering: Ordering,
    /// PE to which the call is limited; `None` if it orders operations to all PEs.
    pub pe: Option<u32>,
}

/// Part of a collective that a call performs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meeting {
    /// The call performs the whole collective.
    Whole,
    /// The call arrives at the team's split barrier.
    SplitArrive,
    /// The call waits at the team's split barrier.
    SplitWait,
}

/// A collective call of a team, as reported to the sanitizer.
#[derive(Clone, Copy, Debug)]
pub struct Collective {
    /// Slot and generation of the team.
    pub team: (u32, u32),
    /// Part of the collective that the call performs.
    pub meeting: Meeting,
    /// Whether the call moves data, which orders only accesses to its buffers. Other calls are barriers.
    pub moves: bool,
    /// Index of the context whose earlier operations the call completes, if any.
    pub completes: Option<u32>,
    /// Rank of the only member whose source is read; `None` if all sources are read.
    pub root: Option<u32>,
    /// Offset and length of the ranges that the call reads on each PE. Unused entries have length 0.
    pub reads: [(u64, u64); 5],
    /// Offset and length of the range that the call writes on each PE.
    pub writes: (u64, u64),
}

/// Memory of this PE used by the collective call in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Whether the collective writes the memory, rather than reading it.
    pub is_written: bool,
    /// Offset of the first byte, in the same space as offsets of handles.
    pub offset: u64,
    /// Length of the memory, in bytes.
    pub bytes: u64,
}

pub(crate) const NOTHING: (u64, u64) = (0, 0);

impl Collective {
    /// Describes a collective without data, which only synchronises the members.
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

    /// Describes a collective that moves `src` to `dst`.
    #[inline(always)]
    pub(crate) const fn moves(team: (u32, u32), dst: (u64, u64), src: (u64, u64)) -> Self {
        let reads = [src, NOTHING, NOTHING, NOTHING, NOTHING];
        Self { moves: true, reads, writes: dst, ..Self::sync(team, Meeting::Whole) }
    }
}

/// A step of a thread, as reported to the sanitizer.
#[derive(Clone, Copy, Debug)]
pub enum Event {
    /// A strong load through a view.
    StrongLoad {
        /// Address of the first byte loaded.
        address: u64,
        /// Number of bytes loaded.
        bytes: u64,
    },
    /// A strong store through a view.
    StrongStore {
        /// Address of the first byte stored.
        address: u64,
        /// Number of bytes stored.
        bytes: u64,
    },
    /// A memory fence of the thread.
    MemoryFence {
        /// Whether the fence is a release.
        releases: bool,
        /// Whether the fence is an acquire.
        acquires: bool,
        /// Set of observers for which the fence orders memory.
        scope: FenceScope,
    },
    /// A call has posted an operation.
    Post(Posting),
    /// A call of `fence`, `quiet` or `flush`.
    Order(Order),
    /// A call that makes this thread's earlier stores visible to peers.
    OwnStores,
    /// This thread's part of its group's ordering call, which another thread reports. When the call returns, it has
    /// released this thread's stores too, and acquired for this thread if `acquires`.
    OwnOrder {
        /// Whether the call is an acquire as well.
        acquires: bool,
        /// Set of observers for which the call orders memory.
        scope: FenceScope,
    },
    /// The thread has polled or awaited a word.
    Look {
        /// Word that was read.
        word: PeRange,
        /// Whether the comparison with the awaited value held.
        is_seen: bool,
        /// Value that was read, in the low bits; `None` if the reporting code does not know it.
        value: Option<u64>,
    },
    /// A collective call of a team.
    Collective(Collective),
    /// A barrier of all blocks of the grid.
    Grid,
    /// A wait for the operations of this ticket has returned. See [`Watcher::ticket`].
    Complete(u64),
    /// The thread starts to wait for a word, possibly for a long time.
    Wait {
        /// Word that the thread waits for.
        word: PeRange,
        /// Comparison operator, as printed in reports.
        cmp: &'static str,
        /// Value with which the word is compared, in the low bits.
        value: u64,
    },
    /// This thread's part of a collective call that another thread of its group reports.
    Member(Collective),
    /// Memory that a collective call uses, reported from inside of the call by the thread that knows it.
    Part(Part),
    /// A lock has been acquired by this PE, or is about to be cleared.
    Lock {
        /// Memory of the lock.
        lock: PeRange,
        /// Whether this PE holds the lock now.
        is_held: bool,
    },
    /// This thread's part of a call that another thread of its group reports.
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

/// A plain load or store, as reported to the sanitizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Whether the access is a store.
    pub is_store: bool,
    /// Address of the first byte accessed.
    pub address: u64,
    /// Number of bytes accessed.
    pub bytes: u64,
}

/// Receiver of the events of one lane, implemented by the sanitizer. An executor gives each lane its watcher.
pub trait Watcher {
    /// Called at the start of a call, including calls nested in another one, which the watcher ignores.
    fn begin(&self, name: &'static str, event: Event, site: &'static Location<'static>);
    /// Called when the innermost call returns.
    fn end(&self);
    /// Called for a plain load or store, by far the most frequent call, which has no nested calls. Returns whether
    /// other lanes of the block should run now.
    fn access(&self, name: &'static str, access: Access, site: &'static Location<'static>) -> bool;
    /// Called when the lane is still waiting in a call and will poll again.
    fn waits(&self);
    /// Called at each poll with the value of the word that the lane waits for.
    fn sees(&self, value: u64);
    /// Returns a ticket for the last operation of this lane, by which [`Event::Complete`] identifies it.
    fn ticket(&self) -> u64;
    /// Returns a ticket for all earlier operations of a context to a PE, by which [`Event::Complete`] identifies them.
    fn ticket_of(&self, context: u32, pe: u32) -> u64;
}
