//! Wait loops that return when a deadline expires or the job is aborted.
//!
//! Every wait of this crate goes through [`Watch`], and every failed test through [`test_failed`].
#![allow(unsafe_code, reason = "reads the control page")]

use crate::abi::{ControlPage, DevAddr, DeviceState};
use crate::arch::{self, FailedTests, SysWord};
use crate::error::{Error, Result, outcome};
use crate::watch;

/// Observes the deadline and the abort word of the job for one wait.
pub(crate) struct Watch {
    state: DevAddr,
    /// Time when the wait started, in nanoseconds. 0 until the first check, since most waits are over by then.
    since: u64,
    turns: u32,
    /// Duration of the next rest, in nanoseconds. A rest suspends the thread between two polls.
    rest_ns: u32,
    /// Deadline of this wait, in nanoseconds; `None` for the PE's deadline.
    within: Option<u64>,
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
        Self::within(state, None)
    }

    /// Returns a watch with the deadline `within`, in nanoseconds, or with the PE's deadline.
    #[inline(always)]
    pub(crate) fn within(state: DevAddr, within: Option<u64>) -> Self {
        arch::wait_begins();
        Self { state, since: 0, turns: 0, rest_ns: 0, within }
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
    ///
    /// Nothing is recorded, because only the caller knows what it waits for.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn turn(&mut self) -> Result {
        if self.rest_ns > 0 {
            arch::rest(self.rest_ns);
            // Rests count as turns, so a long rest does not delay the check of the caller's deadline.
            if self.within.is_some() {
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

    /// Returns whether the wait has lasted longer than `ns` nanoseconds. Only valid after [`Error::Timeout`].
    #[inline(always)]
    pub(crate) fn has_lasted(&self, ns: u64) -> bool {
        arch::now_ns().wrapping_sub(self.since) > ns
    }

    #[inline(always)]
    fn look(&mut self) -> Result {
        self.turns = 0;
        watch::waits();
        let (code, since) = look(self.state, self.since, self.within);
        self.since = since;
        outcome(code)
    }
}

/// Polls for a short time, and returns the last value read, for which `wanted` holds if it has arrived. Every wait
/// starts with a brief poll, because most waits are that short. Longer ones continue in an outlined function, with
/// [`poll_until`].
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

/// Polls until `wanted` holds for the value that `read` returns. Returns 0, or the code of [`Error::Timeout`] or
/// [`Error::Aborted`], and the last value read.
///
/// The deadline is `within`, in nanoseconds, or the PE's. As with [`Watch::turn`], nothing is recorded.
#[inline(always)]
#[track_caller]
pub(crate) fn poll_until<V: Copy>(
    state: DevAddr,
    within: Option<u64>,
    read: impl Fn() -> V,
    wanted: impl Fn(V) -> bool,
) -> (u32, V) {
    let mut watch = Watch::within(state, within);
    loop {
        let found = read();
        if wanted(found) {
            return (0, found);
        }
        if let Err(error) = watch.turn() {
            return (error as u32, found);
        }
    }
}

/// log2 of the time between two reads of the abort word, in nanoseconds. Reads are rare because the word is in host
/// memory.
const LOG_ABORT_READ_NS: u32 = 17;

/// Counts a failed test that started at tick `begin`. Returns 0, or the code of [`Error::Timeout`] or
/// [`Error::Aborted`]: a loop of tests is a wait and fails like one.
///
/// The time spent in tests adds up to the deadline. Time spent on other work between two tests is subtracted, so a
/// thread that works and tests occasionally is not waiting. A successful test resets the count. As with
/// [`Watch::turn`], nothing is recorded.
#[inline(always)]
#[track_caller]
pub(crate) fn test_failed(state: DevAddr, begin: u64) -> u32 {
    arch::spin();
    count_failed_test(state, begin)
}

/// Continues [`test_failed`] after the iteration. Outlined, because most tests are followed by other work.
#[cold]
#[inline(never)]
fn count_failed_test(state: DevAddr, begin: u64) -> u32 {
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

/// Checks the clock and the abort word for a wait. Returns an error code or 0, and the time when the wait started.
/// Outlined to keep the loops short.
#[cold]
#[inline(never)]
fn look(state: DevAddr, since: u64, within: Option<u64>) -> (u32, u64) {
    let (abort, deadline_ns) = limits(state);
    let now = arch::now_ns();
    // The first check starts the clock.
    let since = if since == 0 { now } else { since };
    let late = now.wrapping_sub(since) > within.unwrap_or(deadline_ns);
    let code = if abort != 0 {
        Error::Aborted as u32
    } else if late {
        Error::Timeout as u32
    } else {
        0
    };
    (code, since)
}
