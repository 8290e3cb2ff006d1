//! How the engine thread gets the processor while programs poll on every core.
//!
//! A program that waits by polling never sleeps, so that on a machine with few cores an engine of the same priority
//! waits for its time slice: milliseconds for each message. Hardware would not wait. Where the system permits it (root,
//! or a limit on real-time priority above 0) the engine is therefore scheduled before all ordinary threads, and sleeps
//! as soon as it has nothing to do.

use rushmem_softnic::Idle;
use std::time::Duration;

/// An engine that goes before everyone must not spin.
const BEFORE_ALL: Idle = Idle::Shared {
    spin: Duration::from_micros(2),
    yielding: Duration::ZERO,
    max_sleep: Duration::from_micros(50),
};

/// An engine among equals.
const AMONG_EQUALS: Idle = Idle::Shared {
    spin: Duration::from_micros(5),
    yielding: Duration::from_micros(100),
    max_sleep: Duration::from_micros(80),
};

/// Runs `start` so that threads which it starts go before all ordinary ones, where the system permits that; it gets
/// the way in which such a thread should idle.
pub(crate) fn before_all<T>(start: impl FnOnce(Idle) -> T) -> T {
    let mut old = libc::sched_param { sched_priority: 0 };
    // SAFETY: 0 is this thread, and `old` a live local variable.
    let policy = unsafe { libc::sched_getparam(0, &raw mut old).min(libc::sched_getscheduler(0)) };
    // A program that has chosen a policy of its own has reasons.
    let raised = policy == libc::SCHED_OTHER && set(libc::SCHED_FIFO, 1);
    tracing::debug!(raised, "priority of the engine");
    let result = start(if raised { BEFORE_ALL } else { AMONG_EQUALS });
    if raised && !set(policy, old.sched_priority) {
        tracing::error!("the priority of this thread cannot be set back");
    }
    result
}

fn set(policy: libc::c_int, sched_priority: libc::c_int) -> bool {
    let parameters = libc::sched_param { sched_priority };
    // SAFETY: 0 is this thread, and `parameters` a live local variable.
    unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) == 0 }
}
