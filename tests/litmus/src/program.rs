//! Operations, actors and tests of the litmus suite, as data.
//!
//! An actor is a group of threads with a program. A role is a number that stands for a PE; a cast maps roles to PEs.

pub use rushmem_litmus_kernels::Who;
use rushmem_litmus_kernels::{Code, KEPT, MAX_OPS, OP_WORDS, PROGRAM_WORDS, REG, REGS};

/// Index of the first of four words in separate cache lines.
pub const X: u64 = 0;
/// Index of the second of four words in separate cache lines.
pub const Y: u64 = 8;
/// Index of the third of four words in separate cache lines.
pub const Z: u64 = 16;
/// Index of the fourth of four words in separate cache lines.
pub const W: u64 = 24;
/// Index of an array of 32 words, usually the destination of transfers.
pub const D: u64 = 32;
/// Index of an array of 32 words, the source of transfers by the first role.
pub const S: u64 = 64;
/// Index of an array of 32 words, the source of transfers by other roles.
pub const T: u64 = 96;
/// Index of the first word that all rounds share. Their indices are `K + i` with `i` below 64.
pub const K: u64 = KEPT;

/// Code of the comparison "equal".
pub const EQ: u64 = 0;
/// Code of the comparison "not equal".
pub const NE: u64 = 1;
/// Code of the comparison "greater".
pub const GT: u64 = 2;
/// Code of the comparison "greater or equal".
pub const GE: u64 = 3;
/// Code of the comparison "less".
pub const LT: u64 = 4;
/// Code of the comparison "reached", in wrapping order.
pub const REACHED: u64 = 6;

/// One operation of an actor's program. [`Code`] describes the fields.
#[derive(Clone, Copy, Debug)]
pub struct Op {
    code: Code,
    /// Role that stands for the target PE.
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

    /// Sets which thread performs the operation, by its rank in the actor.
    pub const fn by(self, by: u64) -> Self {
        Self { by, ..self }
    }

    /// Adds the round number to the operation's value.
    pub const fn each_round(self) -> Self {
        Self { k: 1, ..self }
    }

    /// Adds register `r` to the operation's value.
    pub const fn plus_register(self, r: u64) -> Self {
        Self { k: REG + r, ..self }
    }

    /// Whether the operation is a call that all PEs of a job must make.
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
    /// Creates a pause of a random number of spin turns, up to `turns`.
    delay(turns: n) = Delay;
    /// Creates a barrier of the actor's threads.
    group_sync() = GroupSync;
    /// Creates plain stores of `value` to `n` words.
    fill(a: a, n: n, value: v) = Fill;
    /// Creates plain loads of `n` words. Register `r` becomes 1 if a word differs from `value`.
    expect(a: a, n: n, value: v, r: r) = Expect;
    /// Creates a `put` of `n` words.
    put(to: a, from: b, n: n) = Put;
    /// Creates a `put_nbi` of `n` words.
    put_nbi(to: a, from: b, n: n) = PutNbi;
    /// Creates a `get` of `n` words.
    get(to: a, from: b, n: n) = Get;
    /// Creates a `get_nbi` of `n` words.
    get_nbi(to: a, from: b, n: n) = GetNbi;
    /// Creates a `put_signal` that sets the signal.
    put_signal(to: a, from: b, n: n, signal: s, value: v) = PutSignal;
    /// Creates a `put_signal_nbi` that sets the signal.
    put_signal_nbi(to: a, from: b, n: n, signal: s, value: v) = PutSignalNbi;
    /// Creates a `quiet` of all threads together.
    quiet_all() = QuietAll;
    /// Creates a `flush` of all threads together.
    flush_all() = FlushAll;
    /// Creates a `signal_strong` that adds to the signal.
    strong_signal(signal: s, value: v) = StrongSignal;
    /// Creates a `signal_wait_until` of all threads together.
    signal_wait_all(signal: s, cmp: n, value: v, r: r) = SignalWaitAll;
    /// Creates a `barrier_all` of all threads together.
    barrier() = Barrier;
    /// Creates a `sync_all` of all threads together.
    sync() = Sync;
    /// Creates a `put_nbi` by each thread, of a separate word.
    each_put(to: a, from: b, value: v) = EachPut;
    /// Creates a check by each thread, of a separate word.
    each_expect(a: a, value: v, r: r) = EachExpect;
    /// Creates a `p` by each thread: odd ranks put to one role, even ranks to the role `other`.
    diverge(a: a, other: n, value: v) = Diverge;
    /// Creates a plain store to a word.
    store(a: a, value: v) = Store;
    /// Creates a plain load of a word.
    load(a: a, r: r) = Load;
    /// Creates plain loads of a word until it equals `value`.
    spin_until(a: a, value: v, r: r) = SpinUntil;
    /// Creates a `p` of a word.
    p(a: a, value: v) = P;
    /// Creates a `p` to each of `n` words.
    flood(a: a, n: n, value: v) = Flood;
    /// Creates a `g` of a word.
    g(a: a, r: r) = G;
    /// Creates a `signal_op` that sets the signal.
    signal_set(signal: s, value: v) = SignalOp;
    /// Creates a `signal_wait_until` by one thread.
    signal_wait(signal: s, cmp: n, value: v, r: r) = SignalWait;
    /// Creates a `signal_fetch` by one thread.
    signal_fetch(signal: s, r: r) = SignalFetch;
    /// Creates a `wait_until` by one thread.
    wait(a: a, cmp: n, value: v) = Wait;
    /// Creates a loop of `test` calls.
    test_until(a: a, cmp: n, value: v, r: r) = TestUntil;
    /// Creates an `atomic_add` to a word.
    add(a: a, value: v) = Add;
    /// Creates an `atomic_fetch_add` to a word.
    fetch_add(a: a, value: v, r: r) = FetchAdd;
    /// Creates an `atomic_set` of a word.
    set(a: a, value: v) = Set;
    /// Creates an `atomic_swap` of a word.
    swap(a: a, value: v, r: r) = Swap;
    /// Creates an `atomic_compare_swap` of a word.
    compare_swap(a: a, compare: n, value: v, r: r) = CompareSwap;
    /// Creates an `atomic_fetch` of a word.
    fetch(a: a, r: r) = Fetch;
    /// Creates a loop of `atomic_compare_swap` from 0 to `value`, until it succeeds.
    lock(a: a, value: v) = Lock;
    /// Creates a `fence` by one thread.
    fence() = Fence;
    /// Creates a `quiet` by one thread.
    quiet() = Quiet;
    /// Creates a signal to another actor on the same PE that the preceding operations are done. [`take`] waits for it.
    hand(signal: s) = Hand;
    /// Creates a `p` through exclusive queues.
    private_p(queues: b, a: a, value: v) = PrivateP;
    /// Creates a `fence` of exclusive queues.
    private_fence(queues: b) = PrivateFence;
    /// Creates a `quiet` of exclusive queues.
    private_quiet(queues: b) = PrivateQuiet;
    /// Creates a `quiet_pe` for the target PE.
    quiet_pe() = QuietPe;
    /// Creates a store through `ptr`. Register `r` becomes 1 if the target PE is not a P2P peer.
    ptr_store(a: a, value: v, r: r) = PtrStore;
    /// Creates a `p`, a `quiet` and a second `p` in one batch.
    batch(first: a, second: b, value: v) = Batch;
    /// Creates a `fence_release` at GPU scope.
    release_gpu() = ReleaseGpu;
    /// Creates a `fence_acquire` at GPU scope.
    acquire_gpu() = AcquireGpu;
    /// Creates a `store_relaxed` to a word.
    store_relaxed(a: a, value: v) = StoreRelaxed;
    /// Creates a loop of `load_relaxed` until the word equals `value`. Register `r` becomes 1 if it never does.
    spin_relaxed(a: a, value: v, r: r) = SpinRelaxed;
    /// Creates an arrival that is counted at word `signal + 1`. The last of `of` arrivals puts and signals, after an
    /// acquire fence if `fenced`.
    last_put(to: a, from: b, n: n, signal: s, of: v, fenced: k) = LastPut;
    /// Creates a loop of `wait_until_any` of 4 words until each has been returned. Register `r` becomes 1 if one never
    /// is.
    any_each(a: a, r: r) = AnyEach;
    /// Creates waits and tests of an empty set, with 4 words of scratch. Register `r` becomes 1 if a result is wrong.
    no_words(a: a, scratch: b, r: r) = NoWords;
    /// Creates a `set_lock` of the round's lock.
    set_lock() = SetLock;
    /// Creates a `clear_lock` of the round's lock.
    clear_lock() = ClearLock;
    /// Creates an `atomic_add` of 1.0 to a float.
    add_float(a: a) = AddFloat;
    /// Creates an `atomic_fetch` of a float.
    fetch_float(a: a, r: r) = FetchFloat;
    /// Creates a plain store to a half word (4 bytes).
    store_half(a: a, value: v) = StoreHalf;
    /// Creates a plain load of a half word (4 bytes).
    load_half(a: a, r: r) = LoadHalf;
    /// Creates an `atomic_add` to a half word (4 bytes).
    add_half(a: a, value: v) = AddHalf;
    /// Creates a `wait_until` on a half word, as a `u32`.
    wait_half(a: a, cmp: n, value: v) = WaitHalf;
    /// Creates a `p` of a byte.
    p_byte(a: a, value: v) = PByte;
    /// Creates a plain load of a byte.
    load_byte(a: a, r: r) = LoadByte;
    /// Creates a `put` of a piece whose length and address depend on the round.
    put_piece() = PutPiece;
    /// Creates a check of the bytes that `put_piece` transferred. Register `r` becomes 1 if one is wrong.
    expect_piece(r: r) = ExpectPiece;
}

/// Creates a `signal_op` that adds to the signal.
pub const fn signal_add(signal: u64, value: u64) -> Op {
    Op { n: 1, ..signal_set(signal, value) }
}

/// Creates a `put_signal_nbi` that adds to the signal.
pub const fn put_signal_add(to: u64, from: u64, n: u64, signal: u64, value: u64) -> Op {
    Op { r: 1, ..put_signal_nbi(to, from, n, signal, value) }
}

/// Creates a wait until other actors on this PE have performed [`hand`] `times` times.
pub const fn take(signal: u64, times: u64) -> Op {
    // The result goes to register 7, which no test reads.
    signal_wait(signal, GE, times, 7)
}

/// The placement of its roles on PEs that a test requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// Roles may be on separate PEs, or several on the same PE.
    Any,
    /// Each role must be on a separate PE.
    Apart,
    /// All roles must be on the same PE.
    OnePe,
}

/// The registers of all actors after a round of a litmus test.
#[derive(Clone, Copy, Debug)]
pub struct Outcome<'a> {
    /// Index of the round.
    pub round: u64,
    /// Final registers of each actor.
    pub registers: &'a [[u64; REGS]],
}

impl Outcome<'_> {
    /// Returns register `r` of an actor.
    pub fn r(&self, actor: usize, r: usize) -> u64 {
        self.registers[actor][r]
    }

    /// Returns register `r` of every actor, sorted.
    pub fn sorted(&self, r: usize) -> Vec<u64> {
        let mut all: Vec<u64> = self.registers.iter().map(|registers| registers[r]).collect();
        all.sort_unstable();
        all
    }
}

/// Whether the memory accesses of a test race.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Race {
    /// The memory model orders all conflicting accesses.
    None,
    /// Some conflicting accesses are unordered in every run.
    Always,
    /// Some accesses are unordered in the runs in which a certain actor wins, for the given reason.
    ByWinner(&'static str),
    /// Some accesses are unordered in runs that cannot occur through mapped memory, for the given reason.
    NotMapped(&'static str),
}

/// A predicate over the outcomes of a litmus test.
pub type Verdict = fn(&Outcome<'_>) -> bool;

/// A litmus test: a program for each actor, and the outcomes that the memory model forbids.
#[derive(Clone, Debug)]
pub struct Test {
    /// ID of the litmus test, such as `L01`.
    pub id: &'static str,
    /// The property that the test checks.
    pub name: String,
    /// The group of threads that each actor is: a thread, a warp or a block.
    pub who: Who,
    /// The role and the program of each actor.
    pub actors: Vec<(u32, Vec<Op>)>,
    /// Predicate that is true for the outcomes that the memory model forbids.
    pub forbidden: Verdict,
    /// Predicates for outcomes that are allowed but rare, with their names.
    pub weak: Vec<(&'static str, Verdict)>,
    /// The placement of roles on PEs that the test requires.
    pub needs: Needs,
    /// Whether the test's accesses race. The sanitizer must reach the same verdict.
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

    /// Adds an actor with the program `ops` on the PE of a role.
    pub fn on(mut self, role: u32, ops: impl Into<Vec<Op>>) -> Self {
        self.actors.push((role, ops.into()));
        self
    }

    /// Sets the group of threads that each actor is.
    pub fn with(self, who: Who) -> Self {
        Self { who, ..self }
    }

    /// Sets the predicate for outcomes that the memory model forbids.
    pub fn never(self, forbidden: Verdict) -> Self {
        Self { forbidden, ..self }
    }

    /// Adds a predicate for an allowed but rare outcome.
    pub fn maybe(mut self, what: &'static str, weak: Verdict) -> Self {
        self.weak.push((what, weak));
        self
    }

    /// Declares that the test races in all runs.
    pub fn races(self) -> Self {
        Self { race: Race::Always, ..self }
    }

    /// Declares in which runs the test races.
    pub fn races_if(self, race: Race) -> Self {
        Self { race, ..self }
    }

    /// Sets the placement of roles on PEs that the test requires.
    pub fn needs(self, needs: Needs) -> Self {
        Self { needs, ..self }
    }

    /// Number of roles that the actors and their operations name.
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

    /// Encodes the actors' programs as words for the interpreter kernel.
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
