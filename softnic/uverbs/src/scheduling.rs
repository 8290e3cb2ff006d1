//! Priority of the adapter's engine thread, which must run even while programs poll on every core.
//!
//! A polling program never sleeps. On a machine with few cores, an ordinary engine thread would wait milliseconds for
//! each message, unlike hardware. If the system permits it (root, or a limit on real-time priority), the engine has a
//! higher priority than all ordinary threads. If not, it requests the shortest time slices, which the scheduler grants
//! early to a thread that mostly sleeps. In both cases the engine must sleep as soon as it is idle.

use rushmem_softnic::Idle;
use std::time::Duration;

/// Minimum number of cores on which an idle engine spins longer before it sleeps.
const MANY_CORES: usize = 4;

/// Shortest time slice that the system grants, in nanoseconds.
const SHORTEST_SLICE: u64 = 100_000;

/// Returns the engine's idle strategy.
///
/// The engine never yields, because that would put it last, after all other threads. It sleeps about as long as it has
/// been idle, so a doorbell waits no longer than the program has. The limit keeps an idle device cheap. Packets wake it
/// immediately.
pub(crate) fn idle() -> Idle {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let spin = if cores < MANY_CORES { 2 } else { 50 };
    Idle::Shared {
        spin: Duration::from_micros(spin),
        yielding: Duration::ZERO,
        max_sleep: Duration::from_micros(500),
    }
}

/// Scheduling attributes of a thread: version 0 of C's `sched_attr`.
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

/// Runs `start` with a higher priority or shorter time slices, which threads started in it inherit.
pub(crate) fn with_priority<T>(start: impl FnOnce() -> T) -> T {
    let Some(own) = get() else { return start() };
    if own.policy != libc::SCHED_OTHER as u32 {
        // Keep the program's own policy.
        return start();
    }
    let first = Attributes { policy: libc::SCHED_FIFO as u32, nice: 0, priority: 1, runtime: 0, ..own };
    let brief = Attributes { runtime: SHORTEST_SLICE, ..own };
    let before_all = set(&first);
    let briefly = !before_all && set(&brief);
    tracing::debug!(before_all, briefly, "scheduling of the engine");
    let result = start();
    if !set(&own) {
        tracing::error!("cannot restore the scheduling of this thread");
    }
    result
}

/// Returns the scheduling attributes of this thread.
fn get() -> Option<Attributes> {
    let size = size_of::<Attributes>() as u32;
    let mut attributes = Attributes::default();
    // SAFETY: 0 is this thread, and a live local variable of the size given.
    let rc = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, size, 0) };
    (rc == 0).then_some(Attributes { size, flags: 0, ..attributes })
}

fn set(attributes: &Attributes) -> bool {
    // SAFETY: 0 is this thread, and the struct holds its size.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const *attributes, 0) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_started_threads_get_priority() {
        let own = get().unwrap();
        let theirs = with_priority(|| std::thread::spawn(get).join().unwrap().unwrap());
        let after = get().unwrap();
        assert_eq!((after.policy, after.nice, after.priority), (own.policy, own.nice, own.priority));
        // High priority, short time slices or no change, depending on the system.
        assert!([libc::SCHED_FIFO as u32, own.policy].contains(&theirs.policy));
        let other = std::thread::spawn(get).join().unwrap().unwrap();
        assert_eq!((other.policy, other.runtime), (own.policy, own.runtime));
    }
}
