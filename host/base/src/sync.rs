//! Locks that ignore poisoning.
//!
//! A panic poisons the mutexes that its thread holds. The data in the runtime's mutexes is consistent after every
//! statement, so other threads keep using it: a single panicked thread must not take the job down. Use these functions
//! instead of repeating `unwrap_or_else(PoisonError::into_inner)`.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Locks `mutex`, even if a thread has panicked while holding the lock.
///
/// ```
/// use std::sync::Mutex;
/// let numbers = Mutex::new(vec![1]);
/// rushmem_base::lock(&numbers).push(2);
/// assert_eq!(rushmem_base::into_inner(numbers), [1, 2]);
/// ```
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until `changed` is notified, and locks the mutex of `guard` again. May return spuriously.
pub fn wait<'a, T>(changed: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    changed.wait(guard).unwrap_or_else(PoisonError::into_inner)
}

/// Like [`wait`], but for at most `timeout`.
///
/// The result does not say whether the wait timed out, so callers must check both their condition and their deadline.
pub fn wait_timeout<'a, T>(
    changed: &Condvar,
    guard: MutexGuard<'a, T>,
    timeout: Duration,
) -> MutexGuard<'a, T> {
    changed.wait_timeout(guard, timeout).unwrap_or_else(PoisonError::into_inner).0
}

/// Returns the value of `mutex`, even if a thread has panicked while holding the lock.
pub fn into_inner<T>(mutex: Mutex<T>) -> T {
    mutex.into_inner().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_after_a_panic() {
        let mutex = Mutex::new(1);
        let panicked = std::thread::scope(|scope| {
            let holder = scope.spawn(|| {
                let _guard = lock(&mutex);
                panic!("while the lock is held");
            });
            holder.join().is_err()
        });
        assert!(panicked && mutex.is_poisoned());
        *lock(&mutex) += 1;
        assert_eq!(into_inner(mutex), 2);
    }

    #[test]
    fn timed_wait_returns_without_a_notification() {
        let (mutex, changed) = (Mutex::new(7), Condvar::new());
        assert_eq!(*wait_timeout(&changed, lock(&mutex), Duration::from_millis(1)), 7);
    }
}
