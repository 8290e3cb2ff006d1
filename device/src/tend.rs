//! Waits for words that other PEs update.
//!
//! Whoever polls the CQ of a connection that has failed hands the queue over to the host (`sq/failover.rs`). A thread that waits
//! for another PE polls no CQ, and perhaps nobody does: after a `put_signal_nbi` in both directions, two PEs wait for each other.
//! So a thread that has waited for a while *tends* queues: it polls those that have blocks to complete.
#![allow(unsafe_code, reason = "reads the PE state and the table of QPs, at addresses from the host")]

use core::marker::PhantomData;
use core::panic::Location;

use crate::abi::{DevAddr, DeviceState, QpEntry};
use crate::arch;
use crate::ctx::Ctx;
use crate::error::{Result, Site};
use crate::sharing::{PerGpu, Sharing};
use crate::sq::{HAS_FAILOVER, Qp};
use crate::wait::{self, Needs, Until, Watch};

/// Time after which a waiting thread starts to tend queues, in nanoseconds.
const TEND_AFTER_NS: u64 = 1_000_000;

/// Queues that a waiting thread tends: those that all threads of the PE share, and those of the context with which it waits.
#[derive(Clone, Copy)]
pub(crate) struct Tended<S> {
    state: DevAddr,
    /// QPs of the context: index of the first one in the PE's table, and above 32 bits their number.
    own: u64,
    _sharing: PhantomData<S>,
}

impl<S: Sharing> Tended<S> {
    #[inline(always)]
    pub(crate) fn of(ctx: &Ctx<S>) -> Self {
        let p = ctx.parts_ref();
        let own = (ctx.n_entries() as u64) << 32 | (p.first_set * p.n_pes) as u64;
        Self { own, ..Self::shared(p.state) }
    }

    /// Returns the queues that all threads share, of the PE with this state.
    #[inline(always)]
    pub(crate) fn shared(state: DevAddr) -> Self {
        Self { state, own: 0, _sharing: PhantomData }
    }

    #[inline(always)]
    pub(crate) fn state(self) -> DevAddr {
        self.state
    }

    /// Runs one iteration of a wait loop for another PE, like [`Watch::turn`].
    ///
    /// # Errors
    /// - The errors of [`Watch::turn`].
    #[inline(always)]
    #[track_caller]
    pub(crate) fn turn(self, watch: &mut Watch) -> Result {
        let outcome = watch.turn();
        if HAS_FAILOVER && outcome.is_ok() && watch.has_just_looked() && watch.has_lasted(TEND_AFTER_NS) {
            tend::<S>(self.state, self.own, Location::caller());
        }
        outcome
    }
}

/// Polls until `wanted` holds for the value that `read` returns. Returns 0 or the code of an error of [`Watch::turn`],
/// and the last value read.
///
/// As with [`Watch::turn`], nothing is recorded.
#[inline(always)]
#[track_caller]
pub(crate) fn poll_until<S: Sharing, V: Copy>(
    tended: Tended<S>,
    until: Until,
    read: impl Fn() -> V,
    wanted: impl Fn(V) -> bool,
) -> (u32, V) {
    let (mut watch, mut code) = (Watch::until(tended.state, until), 0);
    loop {
        let found = read();
        if wanted(found) {
            return (0, found);
        }
        if code != 0 {
            return (code, found);
        }
        // An error is followed by one more read: what arrived before a loss counts.
        code = tended.turn(&mut watch).map_or_else(|error| error as u32, |()| 0);
    }
}

/// Counts a failed test, as [`wait::test_failed`] does.
#[inline(always)]
#[track_caller]
pub(crate) fn test_failed<S: Sharing>(tended: Tended<S>, begin: u64) -> u32 {
    if !HAS_FAILOVER {
        return wait::test_failed(tended.state, Needs::NOBODY, begin);
    }
    let before = arch::failed_tests();
    let code = wait::test_failed(tended.state, Needs::NOBODY, begin);
    if code == 0 {
        let now = arch::failed_tests();
        if now.waited > TEND_AFTER_NS && now.last / TEND_AFTER_NS != before.last / TEND_AFTER_NS {
            tend::<S>(tended.state, tended.own, Location::caller());
        }
    }
    code
}

/// Tends queues. `own` is [`Tended::own`].
#[cold]
#[inline(never)]
fn tend<S: Sharing>(state: DevAddr, own: u64, site: Site) {
    // SAFETY: the host made the state, and nobody changes these fields while kernels run. The table has that many QPs that all
    // threads share. Those of a context belong to threads that `S` names, one of which is the caller.
    unsafe {
        let state = state.ptr::<DeviceState>();
        let (qps, shared_qps) = ((*state).qps, (*state).shared_qps);
        // Without failover there are none.
        if shared_qps == 0 {
            return;
        }
        let entry = |i: u32| qps.ptr::<QpEntry>().wrapping_add(i as usize);
        for i in 0..shared_qps {
            Qp::<PerGpu>::new(entry(i)).tend(site);
        }
        let (first, count) = (own as u32, (own >> 32) as u32);
        // A context with the shared queues has been seen to.
        if first >= shared_qps {
            for i in first..first + count {
                Qp::<S>::new(entry(i)).tend(site);
            }
        }
    }
}
