//! Encodes litmus tests as words, which the interpreter kernel decodes.

use rushmem_device::View;

/// Number of words per operation: code, PE, `a`, `b`, `n`, `v`, `s`, `r`, `k`, `by`.
pub const OP_WORDS: usize = 10;
/// Maximum number of operations in a program.
pub const MAX_OPS: usize = 24;
/// Number of words per program: the PE of its actor, followed by the operations.
pub const PROGRAM_WORDS: usize = 1 + MAX_OPS * OP_WORDS;
/// Number of words in a plan: rounds, actors, acting group, rounds between synchronizations (a power of two), seed,
/// jitter.
pub const PLAN_WORDS: usize = 6;

/// The group of threads that is one actor of a litmus test and makes its group calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Who {
    /// Each actor is one thread.
    Thread,
    /// Each actor is a warp of 32 threads.
    Warp,
    /// Each actor is a block.
    Block,
}

/// The code of an operation in a litmus test.
///
/// `a`, `b` and `s` are word indices, `n` is a length or another number, and `r` is the register for the result. The
/// value is `v` plus `k` times the round, or plus the register that `k` names. Single-thread operations are performed
/// by the thread with rank `by`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Code {
    /// Terminates the actor's program.
    End,
    /// Pauses each thread for a random number of spin turns, up to `n`.
    Delay,
    /// Enters a barrier of the actor's threads.
    GroupSync,
    /// Stores the value to words `a..a + n` by plain stores of all threads.
    Fill,
    /// Loads words `a..a + n` by plain loads of all threads, then enters a barrier. The register becomes 1 if a word
    /// differs from the value.
    Expect,
    /// Calls `put` of words `b..b + n` to `a` of the PE, by all threads together.
    Put,
    /// Calls `put_nbi` of words `b..b + n` to `a` of the PE, by all threads together.
    PutNbi,
    /// Calls `get` of words `b..b + n` of the PE to `a`, by all threads together.
    Get,
    /// Calls `get_nbi` of words `b..b + n` of the PE to `a`, by all threads together.
    GetNbi,
    /// Calls `put_signal` of words `b..b + n` to `a` of the PE, by all threads together. Sets signal `s` to the value,
    /// or adds the value if `r` is 1.
    PutSignal,
    /// Calls `put_signal_nbi`, with the operands of `PutSignal`.
    PutSignalNbi,
    /// Calls `quiet` by all threads together.
    QuietAll,
    /// Calls `flush` by all threads together.
    FlushAll,
    /// Calls `signal_strong` by all threads together: adds the value to signal `s` of the PE.
    StrongSignal,
    /// Calls `signal_wait_until` by all threads together, until signal `s` compares with the value as `n` says.
    SignalWaitAll,
    /// Calls `barrier_all` by all threads together.
    Barrier,
    /// Calls `sync_all` by all threads together.
    Sync,
    /// Calls `put_nbi` in each thread, of word `b + rank`, which first gets the value plus the thread's rank, to word
    /// `a + rank` of the PE.
    EachPut,
    /// Loads word `a + rank` in each thread. The register becomes 1 if a word differs from the value plus the thread's
    /// rank.
    EachExpect,
    /// Calls `p` in each thread, for word `a + rank` of the PE if the thread's rank is odd, otherwise of PE `n`.
    Diverge,

    /// Stores the value to word `a` by a plain store.
    Store,
    /// Loads word `a` by a plain load.
    Load,
    /// Loads word `a` by plain loads until it equals the value. The register becomes 1 if it never does.
    SpinUntil,
    /// Calls `p` of the value to word `a` of the PE.
    P,
    /// Calls `p` of the value to words `a..a + n` of the PE, in order.
    Flood,
    /// Calls `g` of word `a` of the PE.
    G,
    /// Calls `signal_op` on signal `s` of the PE: sets it to the value, or adds the value if `n` is 1.
    SignalOp,
    /// Calls `signal_wait_until`, until signal `s` compares with the value as `n` says.
    SignalWait,
    /// Calls `signal_fetch` of signal `s`.
    SignalFetch,
    /// Calls `wait_until`, until word `a` compares with the value as `n` says.
    Wait,
    /// Calls `test` in a loop until it succeeds. The register becomes 1 if it never does.
    TestUntil,
    /// Calls `atomic_add` on word `a` of the PE.
    Add,
    /// Calls `atomic_fetch_add` on word `a` of the PE.
    FetchAdd,
    /// Calls `atomic_set` on word `a` of the PE.
    Set,
    /// Calls `atomic_swap` on word `a` of the PE.
    Swap,
    /// Calls `atomic_compare_swap` on word `a` of the PE, from `n` to the value.
    CompareSwap,
    /// Calls `atomic_fetch` on word `a` of the PE.
    Fetch,
    /// Calls `atomic_compare_swap` on word `a` of the PE, from 0 to the value, in a loop until it succeeds.
    Lock,
    /// Calls `fence` in one thread.
    Fence,
    /// Calls `quiet` in one thread.
    Quiet,
    /// Calls `fence_system`, then adds 1 to signal `s` of this PE, to tell its other actors that the preceding
    /// operations are done.
    Hand,
    /// Calls `p` through the exclusive queues with index `b`.
    PrivateP,
    /// Calls `fence` of the exclusive queues with index `b`.
    PrivateFence,
    /// Calls `quiet` of the exclusive queues with index `b`.
    PrivateQuiet,

    /// Calls `quiet_pe` for the PE.
    QuietPe,
    /// Stores the value to word `a` of the PE through `ptr`. The register becomes 1 if the PE is not a P2P peer.
    PtrStore,
    /// Calls `p` to word `a` of the PE, `quiet`, and `p` to word `b`, in one batch.
    Batch,
    /// Calls `fence_release` at GPU scope.
    ReleaseGpu,
    /// Calls `fence_acquire` at GPU scope.
    AcquireGpu,
    /// Calls `store_relaxed` of the value to word `a`.
    StoreRelaxed,
    /// Calls `load_relaxed` of word `a` until it equals the value. The register becomes 1 if it never does.
    SpinRelaxed,
    /// Counts an arrival at word `s + 1`. The `v`-th arrival puts words `b..b + n` to `a` of the PE and sets signal `s`
    /// to 1. If `k` is not 0, it first performs an acquire fence at GPU scope.
    LastPut,
    /// Calls `wait_until_any` of words `a..a + 4` until each has been returned. Word 0 is set again as soon as it is
    /// returned. The register becomes 1 if a word is never returned.
    AnyEach,
    /// Waits for and tests an empty set of words. The register becomes 1 if one of the calls returns a wrong result.
    NoWords,
    /// Calls `set_lock` on the round's lock.
    SetLock,
    /// Calls `clear_lock` on the round's lock.
    ClearLock,
    /// Calls `atomic_add` of 1.0 to the float at `a` of the PE.
    AddFloat,
    /// Calls `atomic_fetch` of the float at `a` of the PE. The register gets its value as an integer.
    FetchFloat,

    /// Stores the value to half word `a` (4 bytes) by a plain store.
    StoreHalf,
    /// Loads half word `a` (4 bytes) by a plain load.
    LoadHalf,
    /// Calls `atomic_add` to half word `a` (4 bytes) of the PE.
    AddHalf,
    /// Calls `wait_until` on half word `a`, as a `u32`.
    WaitHalf,
    /// Calls `p` to byte `a` of the PE.
    PByte,
    /// Loads byte `a` by a plain load.
    LoadByte,
    /// Calls `put` of a number of bytes, to an address, that both depend on the round.
    PutPiece,
    /// Checks the destination of `PutPiece`. The register becomes 1 if bytes of this round's piece are missing, or if
    /// other bytes have changed.
    ExpectPiece,
}

/// Parameters of a launch of the interpreter.
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
