//! The wait loop: every wait of the device crate goes through [`Watch`], and every test that fails through
//! [`test_failed`]. So waits and loops of tests end at a deadline or when the job ends.
#![allow(unsafe_code, reason = "reads the control page")]

use crate::abi::{ControlPage, DevAddr, DeviceState};
use crate::arch::{self, FailedTests, SysWord};
use crate::error::{Error, Result, outcome};
use crate::watch;

/// The watch of a wait loop: it observes the deadline and the job's abort word.
pub(crate) struct Watch {
    state: DevAddr,
    /// Time when the wait began; 0 until the first look, since most waits end before it.
    since: u64,
    turns: u32,
    /// Rest in each turn, in nanoseconds.
    rest_ns: u32,
    /// Deadline of this wait in nanoseconds; `None` for the PE's deadline.
    within: Option<u64>,
}

/// A rest is longer than the one before by the reciprocal of this. So it takes about this share of the whole wait.
const SHARE: u32 = 32;

/// Rest of the second turn in nanoseconds. Later ones are longer.
const SHORTEST_REST_NS: u32 = 16;

/// Longest rest in a turn.
const LONGEST_REST_NS: u32 = 64_000;

/// Rest that counts like a turn, in nanoseconds, where a wait has a deadline of its own. Others look less often: thousands
/// of threads that read a word of host memory would delay each other.
const TURN_NS: u32 = 512;

/// Turns of [`poll_briefly`].
const BRIEF_TURNS: u32 = 16;

impl Watch {
    /// Returns a watch with the PE's deadline.
    #[inline(always)]
    pub(crate) fn new(state: DevAddr) -> Self {
        Self::within(state, None)
    }

    /// Returns a watch with a deadline of its own, in nanoseconds.
    #[inline(always)]
    pub(crate) fn within(state: DevAddr, within: Option<u64>) -> Self {
        arch::wait_begins();
        Self { state, since: 0, turns: 0, rest_ns: 0, within }
    }

    /// Takes one turn of the loop. It looks at the clock and the abort word, which lies in host memory, once every
    /// [`arch::TURNS`] turns.
    ///
    /// The turns contain rests, which grow with the wait: each takes about 3 % of the time before it. Many threads that
    /// poll would slow down the accesses to memory of all others.
    ///
    /// # Errors
    /// - [`Error::Timeout`] after the deadline.
    /// - [`Error::Aborted`] after an abort.
    ///
    /// Nothing is recorded: only the caller knows its target.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn turn(&mut self) -> Result {
        if self.rest_ns > 0 {
            arch::rest(self.rest_ns);
            if self.within.is_some() {
                self.turns += self.rest_ns / TURN_NS;
            }
        }
        self.rest_ns = (self.rest_ns + self.rest_ns / SHARE + SHORTEST_REST_NS).min(LONGEST_REST_NS);
        self.turn_awake()
    }

    /// Takes one turn like [`Watch::turn`], without a rest: others wait for this thread.
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

    /// Returns whether the wait takes longer than `ns` nanoseconds, after [`Error::Timeout`].
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

/// Polls for a short time; returns the last value read, which is `wanted` if it arrived. A wait begins with this, since
/// most end so soon. Longer waits continue in an outlined function, with [`poll_until`].
///
/// The loop has one exit. With several, the threads of a warp would have to reconverge for each.
#[inline(always)]
#[track_caller]
pub(crate) fn poll_briefly<V: Copy>(read: impl Fn() -> V, wanted: impl Fn(V) -> bool) -> V {
    arch::wait_begins();
    let mut turns = BRIEF_TURNS;
    loop {
        let found = read();
        if (turns == 0) | wanted(found) {
            return found;
        }
        arch::spin();
        turns -= 1;
    }
}

/// Polls until the value that `read` returns is `wanted`. Returns 0, or the code of [`Error::Timeout`] or
/// [`Error::Aborted`], and the last value read.
///
/// The deadline is `within`, in nanoseconds, or the PE's. Nothing is recorded, as in [`Watch::turn`].
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

/// log2 of the nanoseconds between two looks at the abort word, which lies in host memory.
const LOOKS: u32 = 17;

/// Counts a failed test that began at `begin`, in ticks. Returns 0, or the code of [`Error::Timeout`] or [`Error::Aborted`]: a
/// loop of tests is a wait, and ends like one.
///
/// The time that tests wait adds up to the deadline. Time for something else between two tests is subtracted, so a thread that
/// works and tests now and then does not wait. A test that succeeds starts again. Nothing is recorded, as in [`Watch::turn`].
#[inline(always)]
#[track_caller]
pub(crate) fn test_failed(state: DevAddr, begin: u64) -> u32 {
    arch::spin();
    count_failed_test(state, begin)
}

/// Continues [`test_failed`]. Outlined, since most tests are followed by something else.
#[cold]
#[inline(never)]
fn count_failed_test(state: DevAddr, begin: u64) -> u32 {
    let before = arch::failed_tests();
    let now = arch::now_ns().max(1);
    let pause = begin.wrapping_sub(before.ticks);
    let waited = if before.last == 0 {
        0
    } else if pause > arch::PAUSE {
        before.waited.saturating_sub(pause)
    } else {
        before.waited + now.saturating_sub(before.last)
    };
    if before.last >> LOOKS != now >> LOOKS {
        let (abort, deadline_ns) = limits(state);
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

/// Records that a test of a group returns. Its threads synchronise after [`test_failed`], and that time belongs to the test.
#[inline(always)]
pub(crate) fn test_returns() {
    arch::set_failed_tests(FailedTests { ticks: arch::ticks(), ..arch::failed_tests() });
}

/// Returns the abort word and the PE's deadline in nanoseconds.
#[inline(always)]
fn limits(state: DevAddr) -> (u32, u64) {
    // SAFETY: the host made the state and the control page, which live as long as the kernel.
    unsafe {
        let state = state.ptr::<DeviceState>();
        let control = (*state).control.ptr::<ControlPage>();
        (<u32 as SysWord>::load_acquire(&raw const (*control).abort), (*state).deadline_ns)
    }
}

/// Looks at the clock and the abort word; returns an error's code or 0, and the time when the wait began. Outlined, so
/// that the loops stay short.
#[cold]
#[inline(never)]
fn look(state: DevAddr, since: u64, within: Option<u64>) -> (u32, u64) {
    let (abort, deadline_ns) = limits(state);
    let now = arch::now_ns();
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
