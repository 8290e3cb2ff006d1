//! Places that are given out and come back.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Places numbered from `first` on.
pub(crate) struct Pool {
    free: Mutex<Vec<u32>>,
    changed: Condvar,
}

/// A place, until this is dropped.
pub(crate) struct Place {
    pool: Arc<Pool>,
    pub(crate) index: u32,
}

impl Pool {
    pub(crate) fn new(first: u32, end: u32) -> Arc<Self> {
        Arc::new(Self { free: Mutex::new((first..end).rev().collect()), changed: Condvar::new() })
    }

    fn lock(&self) -> MutexGuard<'_, Vec<u32>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place; waits at most this long for one to come back.
    pub(crate) fn take(self: &Arc<Self>, within: Duration) -> Option<Place> {
        let begin = Instant::now();
        let mut free = self.lock();
        loop {
            if let Some(index) = free.pop() {
                return Some(Place { pool: Arc::clone(self), index });
            }
            let left = within.saturating_sub(begin.elapsed());
            if left.is_zero() {
                return None;
            }
            free = self.changed.wait_timeout(free, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.pool.lock().push(self.index);
        self.pool.changed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_anothers_once_it_is_back() {
        let pool = Pool::new(3, 5);
        let (a, b) = (pool.take(Duration::ZERO).unwrap(), pool.take(Duration::ZERO).unwrap());
        assert_eq!((a.index, b.index), (3, 4));
        assert!(pool.take(Duration::from_millis(1)).is_none());
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| pool.take(Duration::from_secs(60)).map(|place| place.index));
            drop(b);
            assert_eq!(waiting.join().unwrap(), Some(4));
        });
    }
}
