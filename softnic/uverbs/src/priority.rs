//! How the engine thread gets the processor while programs poll on every core.
//!
//! A program that waits by polling never sleeps, so that on a machine with few cores an engine like any other thread
//! waits for its turn: milliseconds for each message. Hardware would not wait. Where the system permits it (root, or a
//! limit on real-time priority) the engine is therefore scheduled before all ordinary threads. Else it asks for the
//! shortest turns, which a thread that mostly sleeps gets at once. In both cases it has to sleep as soon as it has
//! nothing to do.

use rushmem_softnic::Idle;
use std::time::Duration;

/// Cores from which on one may be kept busy for a moment without anybody waiting for it.
const MANY_CORES: usize = 4;

/// Shortest turn that can be asked for, nanoseconds.
const SHORTEST_TURN: u64 = 100_000;

/// How the engine idles. It never yields: that would make it the last of all. It sleeps about as long as it has been
/// idle, so that a doorbell waits no longer than the program has; the limit is what keeps an idle device cheap. Packets
/// wake it at once.
pub(crate) fn idle() -> Idle {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let spin = if cores < MANY_CORES { 2 } else { 50 };
    Idle::Shared {
        spin: Duration::from_micros(spin),
        yielding: Duration::ZERO,
        max_sleep: Duration::from_micros(500),
    }
}

/// What `sched_setattr` takes, in its first version.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

/// Runs `start` so that threads which it starts get the processor soon.
pub(crate) fn soon<T>(start: impl FnOnce() -> T) -> T {
    let Some(own) = get() else { return start() };
    if own.policy != libc::SCHED_OTHER as u32 {
        // A program that has chosen a policy of its own has reasons.
        return start();
    }
    let first = Attributes { policy: libc::SCHED_FIFO as u32, nice: 0, priority: 1, runtime: 0, ..own };
    let brief = Attributes { runtime: SHORTEST_TURN, ..own };
    let before_all = set(&first);
    let briefly = !before_all && set(&brief);
    tracing::debug!(before_all, briefly, "scheduling of the engine");
    let result = start();
    if !set(&own) {
        tracing::error!("the scheduling of this thread cannot be set back");
    }
    result
}

/// How this thread is scheduled.
fn get() -> Option<Attributes> {
    let size = size_of::<Attributes>() as u32;
    let mut attributes = Attributes::default();
    // SAFETY: 0 is this thread, and a live local variable of the size given.
    let rc = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, size, 0) };
    (rc == 0).then_some(Attributes { size, flags: 0, ..attributes })
}

fn set(attributes: &Attributes) -> bool {
    // SAFETY: 0 is this thread, and the struct says its size.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const *attributes, 0) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_started_is_hastened() {
        let own = get().unwrap();
        let theirs = soon(|| std::thread::spawn(get).join().unwrap().unwrap());
        let after = get().unwrap();
        assert_eq!((after.policy, after.nice, after.priority), (own.policy, own.nice, own.priority));
        // As the system permits: before all, or in short turns, or no different.
        assert!([libc::SCHED_FIFO as u32, own.policy].contains(&theirs.policy));
        let other = std::thread::spawn(get).join().unwrap().unwrap();
        assert_eq!((other.policy, other.runtime), (own.policy, own.runtime));
    }
}
