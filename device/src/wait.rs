//! Waiting that ends: every spin of the device crate goes through [`Watch`].
#![allow(unsafe_code, reason = "reads the control page")]

use crate::abi::{ControlPage, DevAddr, DeviceState};
use crate::arch::{self, SysWord};
use crate::error::{Error, Result, outcome};

/// Watches a waiting loop: its deadline and the job's abort word.
pub(crate) struct Watch {
    state: DevAddr,
    /// When the wait began: 0 until the first look, since most waits end before it.
    since: u64,
    turns: u32,
    /// The deadline of this wait alone, in nanoseconds; the PE's if it has none.
    within: Option<u64>,
}

impl Watch {
    #[inline(always)]
    pub(crate) fn new(state: DevAddr) -> Self {
        Self::within(state, None)
    }

    /// A watch with a deadline of its own.
    #[inline(always)]
    pub(crate) fn within(state: DevAddr, within: Option<u64>) -> Self {
        arch::wait_begins();
        Self { state, since: 0, turns: 0, within }
    }

    /// One turn of the loop. The clock and the abort word, which lies in host memory, are looked at once every
    /// [`arch::TURNS`] turns.
    ///
    /// # Errors
    /// [`Error::Timeout`] after the deadline, [`Error::Aborted`] after an abort. Nothing is recorded: the caller
    /// knows what was waited for.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn turn(&mut self) -> Result {
        arch::spin();
        self.turns += 1;
        if self.turns < arch::TURNS { Ok(()) } else { self.look() }
    }

    #[inline(always)]
    fn look(&mut self) -> Result {
        self.turns = 0;
        let (code, since) = look(self.state, self.since, self.within);
        self.since = since;
        outcome(code)
    }
}

/// Looks for a while: what `read` gave last, which is `wanted` if it came. Waiting begins with this, since most of it is over so
/// soon; what then takes longer is in a function that is not inlined, and uses [`poll_until`].
///
/// There is one way out of the loop: threads of a warp that leave it at several places would have to meet for each.
#[inline(always)]
#[track_caller]
pub(crate) fn poll_briefly<V: Copy>(read: impl Fn() -> V, wanted: impl Fn(V) -> bool) -> V {
    arch::wait_begins();
    let mut turns = arch::TURNS;
    loop {
        let found = read();
        if (turns == 0) | wanted(found) {
            return found;
        }
        arch::spin();
        turns -= 1;
    }
}

/// Waits until what `read` gives is `wanted`: 0, or the code of [`Error::Timeout`] or [`Error::Aborted`], and what was read last.
/// With a deadline of its own in nanoseconds, or the PE's. As [`Watch::turn`], nothing is recorded.
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

/// Looks at the clock and the abort word: an error's code, or 0, and when the wait began. Not inlined: waiting loops are
/// short, and what is on the way in them takes time.
#[cold]
#[inline(never)]
fn look(state: DevAddr, since: u64, within: Option<u64>) -> (u32, u64) {
    // SAFETY: the host made the state and the control page, which live as long as the kernel.
    let (abort, deadline_ns) = unsafe {
        let state = state.ptr::<DeviceState>();
        let control = (*state).control.ptr::<ControlPage>();
        (<u32 as SysWord>::load_acquire(&raw const (*control).abort), (*state).deadline_ns)
    };
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
