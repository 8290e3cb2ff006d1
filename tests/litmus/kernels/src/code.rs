//! The encoding of programs as words.

use rushmem_device::View;

/// Words of one operation: code, PE, `a`, `b`, `n`, `v`, `s`, `r`, `k`, `by`.
pub const OP_WORDS: usize = 10;
/// The most operations of a program.
pub const MAX_OPS: usize = 24;
/// Words of one program: the PE of its actor, then the operations.
pub const PROGRAM_WORDS: usize = 1 + MAX_OPS * OP_WORDS;
/// Words of a plan: rounds, actors, the group that acts, rounds between synchronizations (a power of two), seed, jitter.
pub const PLAN_WORDS: usize = 6;

/// The group of threads that acts, and makes the calls of groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Who {
    /// One thread.
    Thread,
    /// A warp of 32.
    Warp,
    /// A block.
    Block,
}

/// The code of an operation.
///
/// `a`, `b` and `s` are indices of words, `n` is a length or another number, `r` is the register for the result. The value is
/// `v` plus `k` times the round, or plus a register if `k` names one. The thread with rank `by` does operations of one thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Code {
    /// End of the program.
    End,
    /// Pauses for up to `n` turns.
    Delay,
    /// A barrier of the actor's threads.
    GroupSync,
    /// Plain stores of the value to words `a..a + n`, by all threads.
    Fill,
    /// Plain loads of words `a..a + n`, by all threads; the register becomes 1 if one is not the value. Then a barrier.
    Expect,
    /// `put` of words `b..b + n` to `a` of the PE, by all threads together.
    Put,
    /// `put_nbi`, likewise.
    PutNbi,
    /// `get` of words `b..b + n` of the PE to `a`, by all threads together.
    Get,
    /// `get_nbi`, likewise.
    GetNbi,
    /// `put_signal`, likewise; signal `s` is set to the value, or gets it added where `r` is 1.
    PutSignal,
    /// `put_signal_nbi`, likewise.
    PutSignalNbi,
    /// `quiet` by all threads together.
    QuietAll,
    /// `flush` by all threads together.
    FlushAll,
    /// `signal_strong` by all threads together: adds the value to signal `s` of the PE.
    StrongSignal,
    /// `signal_wait_until` by all threads together: signal `s` compares with the value as `n` says.
    SignalWaitAll,
    /// `barrier_all` by all threads together.
    Barrier,
    /// `sync_all`, likewise.
    Sync,
    /// Each thread: `put_nbi` of word `b + rank` to `a + rank` of the PE, which it fills with the value plus its rank.
    EachPut,
    /// Each thread: the register becomes 1 if word `a + rank` is not the value plus its rank.
    EachExpect,
    /// Each thread: `p` to word `a + rank` of the PE if its rank is odd, or else of the PE `n`.
    Diverge,

    /// A plain store of the value to word `a`.
    Store,
    /// A plain load of word `a`.
    Load,
    /// Plain loads of word `a` until it is the value; the register becomes 1 if it never was.
    SpinUntil,
    /// `p` of the value to word `a` of the PE.
    P,
    /// `p` to words `a..a + n`, one after another.
    Flood,
    /// `g` of word `a` of the PE.
    G,
    /// `signal_op` on signal `s` of the PE: set, or add where `n` is 1.
    SignalOp,
    /// `signal_wait_until`: signal `s` compares with the value as `n` says.
    SignalWait,
    /// `signal_fetch` of signal `s`.
    SignalFetch,
    /// `wait_until`: word `a` compares with the value as `n` says.
    Wait,
    /// `test` until it is true; the register becomes 1 if it never was.
    TestUntil,
    /// `atomic_add` to word `a` of the PE.
    Add,
    /// `atomic_fetch_add`.
    FetchAdd,
    /// `atomic_set`.
    Set,
    /// `atomic_swap`.
    Swap,
    /// `atomic_compare_swap` of `n` for the value.
    CompareSwap,
    /// `atomic_fetch`.
    Fetch,
    /// `atomic_compare_swap` of 0 for the value until it succeeds.
    Lock,
    /// `fence`.
    Fence,
    /// `quiet` by one thread.
    Quiet,
    /// Signals other actors of this PE, by signal `s`, that the operations before are done.
    Hand,
    /// `p` through the exclusive queues number `b`.
    PrivateP,
    /// `fence` of those queues.
    PrivateFence,
    /// `quiet` of those queues.
    PrivateQuiet,

    /// `quiet_pe`.
    QuietPe,
    /// A store of the value to word `a` of the PE through `ptr`. The register becomes 1 if the PE is no P2P peer.
    PtrStore,
    /// In a batch: `p` to word `a` of the PE, `quiet`, `p` to word `b`.
    Batch,
    /// `fence_release` at GPU scope.
    ReleaseGpu,
    /// `fence_acquire` at GPU scope.
    AcquireGpu,
    /// `store_relaxed` of the value to word `a`.
    StoreRelaxed,
    /// `load_relaxed` of word `a` until it is the value; the register becomes 1 if it never was.
    SpinRelaxed,
    /// Counts an arrival at word `s + 1`, and on the `v`-th one puts words `b..b + n` to `a` of the PE and sets signal `s` to 1.
    /// With `k`, an acquire fence at GPU scope lies in between.
    LastPut,
    /// `wait_until_any` of words `a..a + 4` until each has been found; word 0 is set again at once when it is. The register
    /// becomes 1 if one is never found.
    AnyEach,
    /// The waits and tests of no words; the register becomes 1 if one returns a wrong result.
    NoWords,
    /// `set_lock`.
    SetLock,
    /// `clear_lock`.
    ClearLock,
    /// `atomic_add` of 1.0 to the float `a` of the PE.
    AddFloat,
    /// `atomic_fetch` of the float `a` of the PE, as an integer.
    FetchFloat,

    /// A plain store to the half word `a`.
    StoreHalf,
    /// A plain load of the half word `a`.
    LoadHalf,
    /// `atomic_add` to the half word `a` of the PE.
    AddHalf,
    /// `wait_until` as `u32`.
    WaitHalf,
    /// `p` to byte `a` of the PE.
    PByte,
    /// A plain load of byte `a`.
    LoadByte,
    /// `put` of bytes. Their address and number depend on the round.
    PutPiece,
    /// The register becomes 1 if the bytes that this round's `PutPiece` wrote are not there, or others have changed.
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
