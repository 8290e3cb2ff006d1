//! Wait loops that return when a deadline expires, a PE that they need is lost, or the job is aborted.
//!
//! Every wait of this crate goes through [`Watch`], and every failed test through [`test_failed`].
#![allow(unsafe_code, reason = "reads the control page")]

use crate::abi::{ControlPage, DevAddr, DeviceState, LOST_TEAMS, MAX_LIVE_TEAMS, RECORDS};
use crate::arch::{self, FailedTests, Gpu, Scope, SysWord};
use crate::error::{Detail, Error, Result, Site, outcome, record};
use crate::watch;

/// Observes the deadline and the abort word of the job for one wait.
pub(crate) struct Watch {
    state: DevAddr,
    /// Time when the wait started, in nanoseconds. 0 until the first check, since most waits are over by then.
    since: u64,
    turns: u32,
    /// Duration of the next rest, in nanoseconds. A rest suspends the thread between two polls.
    rest_ns: u32,
    until: Until,
}

/// When an unsuccessful wait gives up: at the PE's deadline or when what it needs is lost, or after a separate time
/// limit. A single word, because registers are scarce.
#[derive(Clone, Copy)]
pub(crate) struct Until(u64);

impl Until {
    /// Bit of a wait with the PE's deadline. The other bits are its [`Needs`], or the time limit in nanoseconds.
    const DEADLINE_BIT: u64 = 1 << 63;

    pub(crate) const DEADLINE: Self = Self::lost(Needs::NOBODY);

    #[inline(always)]
    pub(crate) const fn lost(needs: Needs) -> Self {
        Self(Self::DEADLINE_BIT | needs.0 as u64)
    }

    #[inline(always)]
    pub(crate) const fn elapsed(ns: u64) -> Self {
        Self(if ns < Self::DEADLINE_BIT { ns } else { Self::DEADLINE_BIT - 1 })
    }

    #[inline(always)]
    pub(crate) const fn has_limit(self) -> bool {
        self.0 < Self::DEADLINE_BIT
    }

    #[inline(always)]
    pub(crate) const fn needs(self) -> Needs {
        if self.has_limit() { Needs::NOBODY } else { Needs(self.0 as u32) }
    }
}

/// What a wait cannot do without: a PE, all members of a team, or nobody in particular. An index in
/// [`ControlPage::lost`].
#[derive(Clone, Copy)]
pub(crate) struct Needs(u32);

impl Needs {
    pub(crate) const NOBODY: Self = Self(u32::MAX);

    #[inline(always)]
    pub(crate) const fn pe(pe: u32) -> Self {
        Self(pe)
    }

    #[inline(always)]
    pub(crate) const fn members(slot: u32) -> Self {
        Self(LOST_TEAMS + slot)
    }

    /// Returns whether the PE, or a member of the team, was lost.
    #[inline(always)]
    pub(crate) fn is_lost(self, state: DevAddr) -> bool {
        // SAFETY: the host made the state, and nobody changes this field while kernels run.
        let lost = unsafe { (*state.ptr::<DeviceState>()).lost };
        if lost.0 == 0 || self.0 >= LOST_TEAMS + MAX_LIVE_TEAMS {
            return false;
        }
        // SAFETY: the address is that of the control page's words, which live as long as the kernel. There is one for this
        // index.
        let word = unsafe { <u32 as SysWord>::load_acquire(lost.ptr::<u32>().add(self.0 as usize / 32)) };
        word >> (self.0 % 32) & 1 != 0
    }
}

/// Divisor of the growth of rests: each is longer than the previous one by 1/32. A rest thus takes about the same
/// fraction of the whole wait.
const REST_DIVISOR: u32 = 32;

/// Duration of the first rest of a waiting thread, in nanoseconds.
const SHORTEST_REST_NS: u32 = 16;

/// Maximum duration of a rest of a waiting thread, in nanoseconds.
const LONGEST_REST_NS: u32 = 64_000;

/// Nanoseconds of rest that count as an iteration in a wait with its own deadline, which needs more frequent checks.
/// Other waits check less often: thousands of threads reading a word of host memory would delay each other.
const TURN_NS: u32 = 512;

/// Number of iterations for which [`poll_briefly`] polls before it gives up.
const BRIEF_TURNS: u32 = 16;

impl Watch {
    #[inline(always)]
    pub(crate) fn new(state: DevAddr) -> Self {
        Self::until(state, Until::DEADLINE)
    }

    #[inline(always)]
    pub(crate) fn needing(state: DevAddr, needs: Needs) -> Self {
        Self::until(state, Until::lost(needs))
    }

    #[inline(always)]
    pub(crate) fn until(state: DevAddr, until: Until) -> Self {
        arch::wait_begins();
        Self { state, since: 0, turns: 0, rest_ns: 0, until }
    }

    /// Runs one iteration of a wait loop. The clock and the abort word, which is in host memory, are only checked every
    /// [`arch::TURNS`] iterations.
    ///
    /// An iteration includes a rest, which grows to about 3 % of the time waited so far: many polling threads would
    /// slow down the memory accesses of all others.
    ///
    /// # Errors
    /// - [`Error::Timeout`]: the deadline has expired.
    /// - [`Error::Aborted`]: the job is being aborted.
    /// - [`Error::PeerLost`]: what the wait needs was lost.
    ///
    /// Nothing is recorded, because only the caller knows what it waits for.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn turn(&mut self) -> Result {
        if self.rest_ns > 0 {
            arch::rest(self.rest_ns);
            // Rests count as turns, so a long rest does not delay the check of the caller's deadline.
            if self.until.has_limit() {
                self.turns += self.rest_ns / TURN_NS;
            }
        }
        self.rest_ns = (self.rest_ns + self.rest_ns / REST_DIVISOR + SHORTEST_REST_NS).min(LONGEST_REST_NS);
        self.turn_awake()
    }

    /// Runs one iteration of a wait loop like [`Watch::turn`], without a rest. For threads for which others wait.
    ///
    /// # Errors
    /// - The errors of [`Watch::turn`].
    #[inline(always)]
    #[track_caller]
    pub(crate) fn turn_awake(&mut self) -> Result {
        arch::spin();
        self.turns += 1;
        if self.turns < arch::TURNS { Ok(()) } else { self.look() }
    }

    /// Returns whether the last iteration has checked the clock.
    #[inline(always)]
    pub(crate) fn has_just_looked(&self) -> bool {
        self.turns == 0
    }

    /// Returns whether the wait has lasted longer than `ns` nanoseconds. Only valid once an iteration has checked the clock.
    #[inline(always)]
    pub(crate) fn has_lasted(&self, ns: u64) -> bool {
        arch::now_ns().wrapping_sub(self.since) > ns
    }

    #[inline(always)]
    fn look(&mut self) -> Result {
        self.turns = 0;
        watch::waits();
        // Inlined waits know their `until`. A function with fewer arguments costs them fewer registers.
        let (code, since) = if self.until.0 == Until::DEADLINE.0 {
            look_at_deadline(self.state, self.since)
        } else {
            look(self.state, self.since, self.until)
        };
        self.since = since;
        outcome(code)
    }
}

/// Polls for a short time, and returns the last value read, for which `wanted` holds if it has arrived. Every wait
/// starts with a brief poll, because most waits are that short. Longer ones continue in an outlined function, with
/// [`poll_until`](crate::tend::poll_until).
///
/// The loop has a single exit. With several, the threads of a warp would have to reconverge for each.
#[inline(always)]
#[track_caller]
pub(crate) fn poll_briefly<V: Copy>(read: impl Fn() -> V, wanted: impl Fn(V) -> bool) -> V {
    arch::wait_begins();
    let mut turns = BRIEF_TURNS;
    loop {
        let found = read();
        // `|`, because `||` would add an exit.
        if (turns == 0) | wanted(found) {
            return found;
        }
        arch::spin();
        turns -= 1;
    }
}

/// log2 of the time between two reads of the abort word, in nanoseconds. Reads are rare because the word is in host
/// memory.
const LOG_ABORT_READ_NS: u32 = 17;

/// Counts a failed test that started at tick `begin`. Returns 0 or the code of an error of [`Watch::turn`]: a loop of
/// tests is a wait and fails like one.
///
/// The time spent in tests adds up to the deadline. Time spent on other work between two tests is subtracted, so a
/// thread that works and tests occasionally is not waiting. A successful test resets the count. As with
/// [`Watch::turn`], nothing is recorded.
#[inline(always)]
#[track_caller]
pub(crate) fn test_failed(state: DevAddr, needs: Needs, begin: u64) -> u32 {
    arch::spin();
    count_failed_test(state, needs, begin)
}

/// Continues [`test_failed`] after the iteration. Outlined, because most tests are followed by other work.
#[cold]
#[inline(never)]
fn count_failed_test(state: DevAddr, needs: Needs, begin: u64) -> u32 {
    let before = arch::failed_tests();
    // 0 means "never", so a clock of 0 is stored as 1.
    let now = arch::now_ns().max(1);
    let pause = begin.wrapping_sub(before.ticks);
    let waited = if before.last == 0 {
        0
    } else if pause > arch::PAUSE {
        // The thread did something else between the two tests.
        before.waited.saturating_sub(pause)
    } else {
        before.waited + now.saturating_sub(before.last)
    };
    // True once per period: the abort word is too slow to read on every test.
    if before.last >> LOG_ABORT_READ_NS != now >> LOG_ABORT_READ_NS {
        let (abort, deadline_ns) = limits(state);
        // An abort takes precedence over the deadline.
        if abort != 0 {
            return Error::Aborted as u32;
        }
        if needs.is_lost(state) {
            arch::clear_failed_tests();
            return Error::PeerLost as u32;
        }
        if waited > deadline_ns {
            arch::clear_failed_tests();
            return Error::Timeout as u32;
        }
    }
    arch::set_failed_tests(FailedTests { waited, last: now, ticks: arch::ticks() });
    0
}

/// Called when a test by a group returns. The threads synchronise after [`test_failed`], and this time must not count
/// as work between two tests.
#[inline(always)]
pub(crate) fn test_returns() {
    arch::set_failed_tests(FailedTests { ticks: arch::ticks(), ..arch::failed_tests() });
}

#[inline(always)]
fn limits(state: DevAddr) -> (u32, u64) {
    // SAFETY: the host made the state and the control page, which live as long as the kernel.
    unsafe {
        let state = state.ptr::<DeviceState>();
        let control = (*state).control.ptr::<ControlPage>();
        (<u32 as SysWord>::load_acquire(&raw const (*control).abort), (*state).deadline_ns)
    }
}

/// Records the loss of what a wait needs. Returns the error.
///
/// For a team, the host looks up which member was lost.
#[cold]
#[inline(never)]
pub(crate) fn lost(state: DevAddr, needs: Needs, site: Site) -> Error {
    let peer = if needs.0 < LOST_TEAMS { needs.0 } else { Detail::NONE.peer };
    // A program that survives losses may meet many. Keep room for records of other errors.
    // SAFETY: the host made the state, and only atomics touch the word.
    let records = unsafe { Gpu::load_relaxed(&raw mut (*state.ptr::<DeviceState>()).records.word) };
    if records >= RECORDS as u64 / 2 {
        return Error::PeerLost;
    }
    record(state, Error::PeerLost, Detail { peer, found: needs.0 as u64, ..Detail::NONE }, site)
}

#[cold]
#[inline(never)]
fn look_at_deadline(state: DevAddr, since: u64) -> (u32, u64) {
    look(state, since, Until::DEADLINE)
}

/// Checks the clock, the abort word and the needs of a wait. Returns an error code or 0, and the time when the wait
/// started. Outlined to keep the loops short.
#[cold]
#[inline(never)]
fn look(state: DevAddr, since: u64, until: Until) -> (u32, u64) {
    let (abort, deadline_ns) = limits(state);
    let now = arch::now_ns();
    // The first check starts the clock.
    let since = if since == 0 { now } else { since };
    let late = now.wrapping_sub(since) > if until.has_limit() { until.0 } else { deadline_ns };
    let code = if abort != 0 {
        Error::Aborted as u32
    } else if until.needs().is_lost(state) {
        Error::PeerLost as u32
    } else if late {
        Error::Timeout as u32
    } else {
        0
    };
    (code, since)
}
