//! Encoding of programs as words.

use rushmem_device::View;

/// Words per operation: code, PE, `a`, `b`, `n`, `v`, `s`, `r`, `k`, `by`.
pub const OP_WORDS: usize = 10;
/// Maximum number of operations in a program.
pub const MAX_OPS: usize = 24;
/// Words per program: the PE of its actor, followed by the operations.
pub const PROGRAM_WORDS: usize = 1 + MAX_OPS * OP_WORDS;
/// Words of a plan: rounds, actors, acting group, rounds between synchronizations (a power of two), seed, jitter.
pub const PLAN_WORDS: usize = 6;

/// The group of threads that acts as one actor and makes the group calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Who {
    /// One thread.
    Thread,
    /// A warp of 32 threads.
    Warp,
    /// A block.
    Block,
}

/// The code of an operation.
///
/// `a`, `b` and `s` are word indices, `n` is a length or another number, and `r` is the register for the result. The
/// value is `v` plus `k` times the round, or plus the register that `k` names. Single-thread operations are performed
/// by the thread with rank `by`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Code {
    /// Terminates the program.
    End,
    /// A pause of up to `n` turns.
    Delay,
    /// A barrier of the actor's threads.
    GroupSync,
    /// Plain stores of the value to words `a..a + n`, by all threads.
    Fill,
    /// Plain loads of words `a..a + n` by all threads, then a barrier. The register becomes 1 if a word differs from
    /// the value.
    Expect,
    /// `put` of words `b..b + n` to `a` of the PE, by all threads together.
    Put,
    /// `put_nbi` of words `b..b + n` to `a` of the PE, by all threads together.
    PutNbi,
    /// `get` of words `b..b + n` of the PE to `a`, by all threads together.
    Get,
    /// `get_nbi` of words `b..b + n` of the PE to `a`, by all threads together.
    GetNbi,
    /// `put_signal` of the same words. Sets signal `s` to the value, or adds the value if `r` is 1.
    PutSignal,
    /// `put_signal_nbi`, with the operands of `PutSignal`.
    PutSignalNbi,
    /// `quiet` by all threads together.
    QuietAll,
    /// `flush` by all threads together.
    FlushAll,
    /// `signal_strong` by all threads together: adds the value to signal `s` of the PE.
    StrongSignal,
    /// `signal_wait_until` by all threads together, until signal `s` compares with the value as `n` says.
    SignalWaitAll,
    /// `barrier_all` by all threads together.
    Barrier,
    /// `sync_all` by all threads together.
    Sync,
    /// Each thread: `put_nbi` of word `b + rank`, after filling it with the value plus its rank, to word `a + rank` of
    /// the PE.
    EachPut,
    /// Each thread: the register becomes 1 if word `a + rank` differs from the value plus the rank.
    EachExpect,
    /// Each thread: `p` to word `a + rank`, of the PE if the rank is odd, otherwise of PE `n`.
    Diverge,

    /// A plain store of the value to word `a`.
    Store,
    /// A plain load of word `a`.
    Load,
    /// Plain loads of word `a` until it equals the value. The register becomes 1 if it never does.
    SpinUntil,
    /// `p` of the value to word `a` of the PE.
    P,
    /// `p` to words `a..a + n`, in order.
    Flood,
    /// `g` of word `a` of the PE.
    G,
    /// `signal_op` on signal `s` of the PE: set, or add if `n` is 1.
    SignalOp,
    /// `signal_wait_until`, until signal `s` compares with the value as `n` says.
    SignalWait,
    /// `signal_fetch` of signal `s`.
    SignalFetch,
    /// `wait_until`, until word `a` compares with the value as `n` says.
    Wait,
    /// `test` in a loop until it succeeds. The register becomes 1 if it never does.
    TestUntil,
    /// `atomic_add` to word `a` of the PE.
    Add,
    /// `atomic_fetch_add`.
    FetchAdd,
    /// `atomic_set`.
    Set,
    /// `atomic_swap`.
    Swap,
    /// `atomic_compare_swap` from `n` to the value.
    CompareSwap,
    /// `atomic_fetch`.
    Fetch,
    /// `atomic_compare_swap` from 0 to the value, in a loop until it succeeds.
    Lock,
    /// `fence`.
    Fence,
    /// `quiet` by one thread.
    Quiet,
    /// Signals other actors on this PE, through signal `s`, that the preceding operations are done.
    Hand,
    /// `p` through the exclusive queues with index `b`.
    PrivateP,
    /// `fence` of the exclusive queues with index `b`.
    PrivateFence,
    /// `quiet` of the exclusive queues with index `b`.
    PrivateQuiet,

    /// `quiet_pe`.
    QuietPe,
    /// A store of the value to word `a` of the PE through `ptr`. The register becomes 1 if the PE is not a P2P peer.
    PtrStore,
    /// In one batch: `p` to word `a` of the PE, `quiet`, `p` to word `b`.
    Batch,
    /// `fence_release` at GPU scope.
    ReleaseGpu,
    /// `fence_acquire` at GPU scope.
    AcquireGpu,
    /// `store_relaxed` of the value to word `a`.
    StoreRelaxed,
    /// `load_relaxed` of word `a` until it equals the value. The register becomes 1 if it never does.
    SpinRelaxed,
    /// Counts an arrival at word `s + 1`. The `v`-th arrival puts words `b..b + n` to `a` of the PE and sets signal `s`
    /// to 1; with `k`, it first performs an acquire fence at GPU scope.
    LastPut,
    /// `wait_until_any` of words `a..a + 4` until each has been returned. Word 0 is set again as soon as it is
    /// returned. The register becomes 1 if a word is never returned.
    AnyEach,
    /// Waits and tests of an empty set. The register becomes 1 if one of them returns a wrong result.
    NoWords,
    /// `set_lock`.
    SetLock,
    /// `clear_lock`.
    ClearLock,
    /// `atomic_add` of 1.0 to the float at `a` of the PE.
    AddFloat,
    /// `atomic_fetch` of the float at `a` of the PE, returned as an integer.
    FetchFloat,

    /// A plain store to half word `a`.
    StoreHalf,
    /// A plain load of half word `a`.
    LoadHalf,
    /// `atomic_add` to half word `a` of the PE.
    AddHalf,
    /// `wait_until` on half word `a`, as `u32`.
    WaitHalf,
    /// `p` to byte `a` of the PE.
    PByte,
    /// A plain load of byte `a`.
    LoadByte,
    /// `put` of a number of bytes, to an address, that depend on the round.
    PutPiece,
    /// The register becomes 1 if the bytes of this round's `PutPiece` are missing, or if others have changed.
    ExpectPiece,
}

/// The parameters of a launch.
#[derive(Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) rounds: u64,
    pub(crate) actors: u64,
    pub(crate) who: u64,
    pub(crate) every: u64,
    pub(crate) seed: u64,
    pub(crate) jitter: u64,
}

impl Plan {
    #[inline(always)]
    pub(crate) fn read(view: View<u64>) -> Self {
        let [rounds, actors, who, every, seed, jitter] = [0, 1, 2, 3, 4, 5].map(|i| view.load(i));
        Self { rounds, actors, who, every, seed, jitter }
    }
}

/// One operation.
#[derive(Clone, Copy)]
pub(crate) struct Op {
    pub(crate) code: u64,
    pub(crate) pe: u32,
    pub(crate) a: u64,
    pub(crate) b: u64,
    pub(crate) n: u64,
    pub(crate) v: u64,
    pub(crate) s: u64,
    pub(crate) r: u64,
    pub(crate) k: u64,
    pub(crate) by: u64,
}

impl Op {
    #[inline(always)]
    pub(crate) fn read(program: View<u64>, at: usize) -> Self {
        let from = 1 + at * OP_WORDS;
        let [code, pe, a, b, n, v, s, r, k, by] =
            [0, 1, 2, 3, 4, 5, 6, 7, 8, 9].map(|i| program.load(from + i));
        Self { code, pe: pe as u32, a, b, n, v, s, r, k, by }
    }

    #[inline(always)]
    pub(crate) fn is(&self, code: Code) -> bool {
        self.code == code as u64
    }
}
