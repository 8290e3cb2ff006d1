//! The wait channel of a PE, through which NICs wake its waiting lanes and threads learn that lanes are waiting.

use std::fmt;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, OnceLock};
use std::time::Duration;

use rushmem_base::{lock, wait_timeout};

/// Wakes the sleeping workers of a PE, and reports when its lanes start to wait.
///
/// Without a channel, waiting workers poll memory between sleeps of growing length. With one, a NIC that has written to
/// memory of the PE interrupts the sleep. Only workers that share their core sleep on the channel.
///
/// # Ordering
/// A wake is never lost. A sleeper increments `sleepers` and then compares `wakes`; [`wake`](Self::wake) increments
/// `wakes` and then checks `sleepers`. All four accesses are sequentially consistent, so either the sleeper sees the
/// wake, or the waker sees the sleeper.
#[derive(Default)]
pub struct WaitChannel {
    /// Number of wakes so far. A worker reads it before it polls memory, to notice a wake between the poll and the
    /// sleep.
    wakes: AtomicU64,
    sleepers: AtomicU32,
    lock: Mutex<()>,
    woken: Condvar,
    on_wait: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl fmt::Debug for WaitChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WaitChannel").finish_non_exhaustive()
    }
}

impl WaitChannel {
    /// Sets the function that a worker thread calls when all its lanes are waiting, and when they have all returned.
    /// Only the first call has an effect.
    pub fn on_wait(&self, hook: impl Fn() + Send + Sync + 'static) {
        // A channel belongs to one PE, so a second call is not expected.
        let _ = self.on_wait.set(Box::new(hook));
    }

    /// Wakes all sleeping workers of the PE. To be called after memory that its lanes may poll has changed.
    pub fn wake(&self) {
        self.wakes.fetch_add(1, Ordering::SeqCst);
        if self.sleepers.load(Ordering::SeqCst) != 0 {
            // A sleeper holds the lock from before it is counted until it waits on the condition variable. Once we get
            // the lock, the notification reaches it.
            drop(lock(&self.lock));
            self.woken.notify_all();
        }
    }

    /// Reports that all lanes of a worker are waiting or have returned. Also wakes the other workers of the PE, whose
    /// lanes may be waiting for stores of these lanes.
    pub(crate) fn begin_wait(&self) {
        self.wake();
        if let Some(hook) = self.on_wait.get() {
            hook();
        }
    }

    /// Returns the number of wakes so far. A worker must read it before it polls memory.
    pub(crate) fn wakes(&self) -> u64 {
        self.wakes.load(Ordering::Acquire)
    }

    /// Sleeps for at most `time`. Returns early, or immediately, if there has been a wake since [`wakes`](Self::wakes)
    /// returned `seen`. May also return spuriously.
    pub(crate) fn sleep(&self, seen: u64, time: Duration) {
        let guard = lock(&self.lock);
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        if self.wakes.load(Ordering::SeqCst) == seen {
            drop(wait_timeout(&self.woken, guard, time));
        }
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn wake_interrupts_or_prevents_a_sleep() {
        let (channel, long) = (WaitChannel::default(), Duration::from_secs(60));
        let begin = Instant::now();
        let seen = channel.wakes();
        channel.wake();
        channel.sleep(seen, long);
        let seen = channel.wakes();
        std::thread::scope(|scope| {
            scope.spawn(|| channel.sleep(seen, long));
            channel.wake();
        });
        assert!(begin.elapsed() < long);
        channel.sleep(channel.wakes(), Duration::from_millis(1));
    }
}
