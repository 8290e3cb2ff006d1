//! Waiting that ends: every spin of the device crate goes through [`Watch`].

use crate::abi::{ControlPage, DevAddr, DeviceState};
use crate::arch::{self, SysWord};
use crate::error::{Error, Result};

/// Watches a waiting loop: its deadline and the job's abort word.
pub(crate) struct Watch {
    state: DevAddr,
    /// When the wait began; taken at the first look, since most waits end before it.
    since: Option<u64>,
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
        Self { state, since: None, turns: 0, within }
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

    #[cold]
    #[inline(always)]
    fn look(&mut self) -> Result {
        self.turns = 0;
        // SAFETY: the host made the state and the control page, which live as long as the kernel.
        let (abort, deadline_ns) = unsafe {
            let state = self.state.ptr::<DeviceState>();
            let control = (*state).control.ptr::<ControlPage>();
            (<u32 as SysWord>::load_acquire(&raw const (*control).abort), (*state).deadline_ns)
        };
        if abort != 0 {
            return Err(Error::Aborted);
        }
        let now = arch::now_ns();
        let since = *self.since.get_or_insert(now);
        if now.wrapping_sub(since) > self.within.unwrap_or(deadline_ns) {
            Err(Error::Timeout)
        } else {
            Ok(())
        }
    }
}
