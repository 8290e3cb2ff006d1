//! The wait channel of a PE, between its waiting lanes and the NIC and threads that they wait for.

use std::fmt;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, OnceLock};
use std::time::Duration;

use rushmem_base::{lock, wait_timeout};

/// Ends sleeps of the workers of a PE, and tells others when its lanes begin to wait.
///
/// Without a channel, workers look again after sleeps that grow with their wait. With one, a NIC ends the sleep when it
/// has changed memory of the PE. Only workers that share their core sleep on the channel.
#[derive(Default)]
pub struct WaitChannel {
    /// Number of calls of [`wake`](Self::wake).
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
    /// Sets the function that workers call when all their lanes have begun to wait, and at their end. Only the first call
    /// has an effect.
    pub fn on_wait(&self, hook: impl Fn() + Send + Sync + 'static) {
        // The channel of a PE has one owner.
        let _ = self.on_wait.set(Box::new(hook));
    }

    /// Ends the sleeps of the workers, because memory has changed.
    pub fn wake(&self) {
        self.wakes.fetch_add(1, Ordering::SeqCst);
        if self.sleepers.load(Ordering::SeqCst) != 0 {
            // A worker that counts as a sleeper holds the lock until it sleeps.
            drop(lock(&self.lock));
            self.woken.notify_all();
        }
    }

    /// Tells others that the lanes of a worker wait, or have ended. Other workers may wait for their stores.
    pub(crate) fn begin_wait(&self) {
        self.wake();
        if let Some(hook) = self.on_wait.get() {
            hook();
        }
    }

    /// Returns the number of wakes. A worker reads it before it looks at memory.
    pub(crate) fn wakes(&self) -> u64 {
        self.wakes.load(Ordering::Acquire)
    }

    /// Sleeps for `time`, or until a wake after the first `seen` ones.
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
    fn a_wake_ends_or_prevents_a_sleep() {
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
