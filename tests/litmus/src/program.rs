//! Operations, actors and tests, as data.
//!
//! An actor is a group of threads with a program. A role is a number that stands for a PE; a cast maps roles to PEs.

pub use rushmem_litmus_kernels::Who;
use rushmem_litmus_kernels::{Code, KEPT, MAX_OPS, OP_WORDS, PROGRAM_WORDS, REG, REGS};

/// The first of four words in separate cache lines.
pub const X: u64 = 0;
/// The second word in a separate cache line.
pub const Y: u64 = 8;
/// The third word in a separate cache line.
pub const Z: u64 = 16;
/// The fourth word in a separate cache line.
pub const W: u64 = 24;
/// An array of 32 words.
pub const D: u64 = 32;
/// An array of 32 words, the source of transfers by the first role.
pub const S: u64 = 64;
/// An array of 32 words, the source of transfers by other roles.
pub const T: u64 = 96;
/// Words that all rounds share. Their addresses are `K + i` with `i` below 64.
pub const K: u64 = KEPT;

/// Equal.
pub const EQ: u64 = 0;
/// Not equal.
pub const NE: u64 = 1;
/// Greater.
pub const GT: u64 = 2;
/// Greater or equal.
pub const GE: u64 = 3;
/// Less.
pub const LT: u64 = 4;
/// Reached, in wrapping order.
pub const REACHED: u64 = 6;

/// One operation of an actor. [`Code`] describes the fields.
#[derive(Clone, Copy, Debug)]
pub struct Op {
    code: Code,
    /// The role that stands for the target PE.
    role: u32,
    a: u64,
    b: u64,
    n: u64,
    v: u64,
    s: u64,
    r: u64,
    k: u64,
    by: u64,
}

impl Op {
    const fn new(code: Code) -> Self {
        Self { code, role: 0, a: 0, b: 0, n: 0, v: 0, s: 0, r: 0, k: 0, by: 0 }
    }

    /// Sets the role that stands for the target PE.
    pub const fn at(self, role: u32) -> Self {
        Self { role, ..self }
    }

    /// Sets the rank of the thread that performs the operation.
    pub const fn by(self, by: u64) -> Self {
        Self { by, ..self }
    }

    /// Adds the round to the value.
    pub const fn each_round(self) -> Self {
        Self { k: 1, ..self }
    }

    /// Adds register `r` to the value.
    pub const fn plus_register(self, r: u64) -> Self {
        Self { k: REG + r, ..self }
    }

    /// Whether all PEs of a job must make the call.
    fn meets(&self) -> bool {
        matches!(self.code, Code::Barrier | Code::Sync)
    }

    /// Returns the highest role that the operation names.
    fn last_role(&self) -> u32 {
        if self.code == Code::Diverge { self.role.max(self.n as u32) } else { self.role }
    }

    fn words(&self, pe_of: impl Fn(u32) -> u32) -> [u64; OP_WORDS] {
        let Self { code, role, a, b, n, v, s, r, k, by } = *self;
        // `Diverge` names a second role.
        let n = if code == Code::Diverge { pe_of(n as u32).into() } else { n };
        [code as u64, pe_of(role).into(), a, b, n, v, s, r, k, by]
    }
}

macro_rules! ops {
    ($($(#[$doc:meta])* $name:ident($($arg:ident: $field:ident),*) = $code:ident;)*) => {$(
        $(#[$doc])*
        pub const fn $name($($arg: u64),*) -> Op {
            Op { $($field: $arg,)* ..Op::new(Code::$code) }
        }
    )*};
}

ops! {
    /// Pauses for up to `turns` turns.
    delay(turns: n) = Delay;
    /// A barrier of the actor's threads.
    group_sync() = GroupSync;
    /// Plain stores.
    fill(a: a, n: n, value: v) = Fill;
    /// Plain loads. Register `r` becomes 1 if a word differs from the value.
    expect(a: a, n: n, value: v, r: r) = Expect;
    /// `put` of `n` words.
    put(to: a, from: b, n: n) = Put;
    /// `put_nbi`.
    put_nbi(to: a, from: b, n: n) = PutNbi;
    /// `get`.
    get(to: a, from: b, n: n) = Get;
    /// `get_nbi`.
    get_nbi(to: a, from: b, n: n) = GetNbi;
    /// `put_signal` with Set.
    put_signal(to: a, from: b, n: n, signal: s, value: v) = PutSignal;
    /// `put_signal_nbi` with Set.
    put_signal_nbi(to: a, from: b, n: n, signal: s, value: v) = PutSignalNbi;
    /// `quiet` of the group.
    quiet_all() = QuietAll;
    /// `flush` of the group.
    flush_all() = FlushAll;
    /// `signal_strong` with Add.
    strong_signal(signal: s, value: v) = StrongSignal;
    /// `signal_wait_until` of the group.
    signal_wait_all(signal: s, cmp: n, value: v, r: r) = SignalWaitAll;
    /// `barrier_all`.
    barrier() = Barrier;
    /// `sync_all`.
    sync() = Sync;
    /// Each thread puts its word.
    each_put(to: a, from: b, value: v) = EachPut;
    /// Each thread checks its word.
    each_expect(a: a, value: v, r: r) = EachExpect;
    /// `p` by each thread: odd ranks to one role, even ranks to the role `other`.
    diverge(a: a, other: n, value: v) = Diverge;
    /// A plain store.
    store(a: a, value: v) = Store;
    /// A plain load.
    load(a: a, r: r) = Load;
    /// Plain loads until the word equals the value.
    spin_until(a: a, value: v, r: r) = SpinUntil;
    /// `p`.
    p(a: a, value: v) = P;
    /// `p` to `n` words.
    flood(a: a, n: n, value: v) = Flood;
    /// `g`.
    g(a: a, r: r) = G;
    /// `signal_op` Set.
    signal_set(signal: s, value: v) = SignalOp;
    /// `signal_wait_until`.
    signal_wait(signal: s, cmp: n, value: v, r: r) = SignalWait;
    /// `signal_fetch`.
    signal_fetch(signal: s, r: r) = SignalFetch;
    /// `wait_until`.
    wait(a: a, cmp: n, value: v) = Wait;
    /// `test` in a loop.
    test_until(a: a, cmp: n, value: v, r: r) = TestUntil;
    /// `atomic_add`.
    add(a: a, value: v) = Add;
    /// `atomic_fetch_add`.
    fetch_add(a: a, value: v, r: r) = FetchAdd;
    /// `atomic_set`.
    set(a: a, value: v) = Set;
    /// `atomic_swap`.
    swap(a: a, value: v, r: r) = Swap;
    /// `atomic_compare_swap`.
    compare_swap(a: a, compare: n, value: v, r: r) = CompareSwap;
    /// `atomic_fetch`.
    fetch(a: a, r: r) = Fetch;
    /// `atomic_compare_swap` from 0, in a loop until it succeeds.
    lock(a: a, value: v) = Lock;
    /// `fence`.
    fence() = Fence;
    /// `quiet` by one thread.
    quiet() = Quiet;
    /// Signals another actor on this PE.
    hand(signal: s) = Hand;
    /// `p` through exclusive queues.
    private_p(queues: b, a: a, value: v) = PrivateP;
    /// `fence` of exclusive queues.
    private_fence(queues: b) = PrivateFence;
    /// `quiet` of exclusive queues.
    private_quiet(queues: b) = PrivateQuiet;
    /// `quiet_pe`.
    quiet_pe() = QuietPe;
    /// A store through `ptr`. Register `r` becomes 1 if the PE is not a P2P peer.
    ptr_store(a: a, value: v, r: r) = PtrStore;
    /// `p`, `quiet` and `p` in one batch.
    batch(first: a, second: b, value: v) = Batch;
    /// `fence_release` at GPU scope.
    release_gpu() = ReleaseGpu;
    /// `fence_acquire` at GPU scope.
    acquire_gpu() = AcquireGpu;
    /// `store_relaxed`.
    store_relaxed(a: a, value: v) = StoreRelaxed;
    /// `load_relaxed` until the word equals the value. Register `r` becomes 1 if it never does.
    spin_relaxed(a: a, value: v, r: r) = SpinRelaxed;
    /// Counts an arrival at word `signal + 1`. The last of `of` arrivals puts and signals, after an acquire fence if
    /// `fenced`.
    last_put(to: a, from: b, n: n, signal: s, of: v, fenced: k) = LastPut;
    /// `wait_until_any` of 4 words until each has been returned. Register `r` becomes 1 if one never is.
    any_each(a: a, r: r) = AnyEach;
    /// Waits and tests of an empty set, with 4 words of scratch. Register `r` becomes 1 if a result is wrong.
    no_words(a: a, scratch: b, r: r) = NoWords;
    /// `set_lock`.
    set_lock() = SetLock;
    /// `clear_lock`.
    clear_lock() = ClearLock;
    /// `atomic_add` of 1.0.
    add_float(a: a) = AddFloat;
    /// `atomic_fetch` of a float.
    fetch_float(a: a, r: r) = FetchFloat;
    /// A plain store to a half word.
    store_half(a: a, value: v) = StoreHalf;
    /// A plain load of a half word.
    load_half(a: a, r: r) = LoadHalf;
    /// `atomic_add` to a half word.
    add_half(a: a, value: v) = AddHalf;
    /// `wait_until` as `u32`.
    wait_half(a: a, cmp: n, value: v) = WaitHalf;
    /// `p` of a byte.
    p_byte(a: a, value: v) = PByte;
    /// A plain load of a byte.
    load_byte(a: a, r: r) = LoadByte;
    /// `put` of bytes that depend on the round.
    put_piece() = PutPiece;
    /// Checks the bytes of `put_piece`.
    expect_piece(r: r) = ExpectPiece;
}

/// Creates a `signal_op` with Add.
pub const fn signal_add(signal: u64, value: u64) -> Op {
    Op { n: 1, ..signal_set(signal, value) }
}

/// Creates a `put_signal_nbi` with Add.
pub const fn put_signal_add(to: u64, from: u64, n: u64, signal: u64, value: u64) -> Op {
    Op { r: 1, ..put_signal_nbi(to, from, n, signal, value) }
}

/// Waits until other actors on this PE have handed over `times` times.
pub const fn take(signal: u64, times: u64) -> Op {
    // The result goes to register 7, which no test reads.
    signal_wait(signal, GE, times, 7)
}

/// The placement of roles on PEs that a test requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// Roles may be on separate PEs, or several on the same one.
    Any,
    /// Each role on a separate PE.
    Apart,
    /// All roles on the same PE.
    OnePe,
}

/// The registers of all actors after a round.
#[derive(Clone, Copy, Debug)]
pub struct Outcome<'a> {
    /// The round, from 0.
    pub round: u64,
    /// The registers of each actor.
    pub registers: &'a [[u64; REGS]],
}

impl Outcome<'_> {
    /// Returns register `r` of an actor.
    pub fn r(&self, actor: usize, r: usize) -> u64 {
        self.registers[actor][r]
    }

    /// Returns register `r` of all actors, sorted.
    pub fn sorted(&self, r: usize) -> Vec<u64> {
        let mut all: Vec<u64> = self.registers.iter().map(|registers| registers[r]).collect();
        all.sort_unstable();
        all
    }
}

/// Whether the accesses of a test race.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Race {
    /// The memory model orders all conflicting accesses.
    None,
    /// Some accesses are unordered in every run.
    Always,
    /// Some accesses are unordered in the runs in which a certain actor wins, for the given reason.
    ByWinner(&'static str),
    /// Some accesses are unordered in runs that cannot occur through mapped memory, for the given reason.
    NotMapped(&'static str),
}

/// A predicate over outcomes.
pub type Verdict = fn(&Outcome<'_>) -> bool;

/// A litmus test.
#[derive(Clone, Debug)]
pub struct Test {
    /// ID, such as `L01`.
    pub id: &'static str,
    /// The property that the test checks.
    pub name: String,
    /// The group that acts: a thread, a warp or a block.
    pub who: Who,
    /// The role and the program of each actor.
    pub actors: Vec<(u32, Vec<Op>)>,
    /// The outcomes that the memory model forbids.
    pub forbidden: Verdict,
    /// Named outcomes that are allowed but rare.
    pub weak: Vec<(&'static str, Verdict)>,
    /// The placement that the test requires.
    pub needs: Needs,
    /// Whether the accesses race. The sanitizer must reach the same verdict.
    pub race: Race,
}

impl Test {
    /// Creates a test without actors and without forbidden outcomes.
    pub fn new(id: &'static str, name: impl Into<String>) -> Self {
        let nothing: Verdict = |_| false;
        Self {
            id,
            name: name.into(),
            who: Who::Thread,
            actors: Vec::new(),
            forbidden: nothing,
            weak: Vec::new(),
            needs: Needs::Any,
            race: Race::None,
        }
    }

    /// Adds an actor with a role.
    pub fn on(mut self, role: u32, ops: impl Into<Vec<Op>>) -> Self {
        self.actors.push((role, ops.into()));
        self
    }

    /// Sets the group that acts.
    pub fn with(self, who: Who) -> Self {
        Self { who, ..self }
    }

    /// Sets the forbidden outcomes.
    pub fn never(self, forbidden: Verdict) -> Self {
        Self { forbidden, ..self }
    }

    /// Adds an allowed but rare outcome.
    pub fn maybe(mut self, what: &'static str, weak: Verdict) -> Self {
        self.weak.push((what, weak));
        self
    }

    /// Declares that the test races in all runs.
    pub fn races(self) -> Self {
        Self { race: Race::Always, ..self }
    }

    /// Declares that the test races in some runs.
    pub fn races_if(self, race: Race) -> Self {
        Self { race, ..self }
    }

    /// Sets the placement that the test requires.
    pub fn needs(self, needs: Needs) -> Self {
        Self { needs, ..self }
    }

    /// Number of roles.
    pub fn roles(&self) -> u32 {
        let named = self.actors.iter().flat_map(|(role, ops)| ops.iter().map(Op::last_role).chain([*role]));
        named.max().map_or(0, |last| last + 1)
    }

    /// Adds actors for PEs without a role if the test has barriers or syncs, which all PEs must join.
    pub fn with_bystanders(mut self, n_pes: u32) -> Self {
        let meetings: Vec<Op> = match self.actors.first() {
            Some((_, ops)) => ops.iter().copied().filter(Op::meets).collect(),
            None => Vec::new(),
        };
        if !meetings.is_empty() {
            self.actors.extend((self.roles()..n_pes).map(|role| (role, meetings.clone())));
        }
        self
    }

    /// Encodes the programs for the kernel.
    ///
    /// # Panics
    /// If a program is too long.
    pub fn encode(&self, pe_of: impl Fn(u32) -> u32) -> Vec<u64> {
        let mut all = Vec::with_capacity(self.actors.len() * PROGRAM_WORDS);
        for (role, ops) in &self.actors {
            assert!(ops.len() <= MAX_OPS, "{} has a program of {} operations", self.id, ops.len());
            let end = all.len() + PROGRAM_WORDS;
            all.push(pe_of(*role).into());
            all.extend(ops.iter().flat_map(|op| op.words(&pe_of)));
            all.resize(end, 0);
        }
        all
    }
}
