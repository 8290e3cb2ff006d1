//! A pool of indices, each of which has one owner at a time.

use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use rushmem_base::{lock, wait_timeout};

/// The free indices of a pool. [`IndexPool::take`] lends them.
pub(crate) struct IndexPool {
    free: Mutex<Vec<u32>>,
    changed: Condvar,
}

/// An index borrowed from an [`IndexPool`], returned on drop.
pub(crate) struct PooledIndex {
    pool: Arc<IndexPool>,
    pub(crate) index: u32,
}

impl IndexPool {
    /// Creates a pool that hands out the indices `first..end`.
    pub(crate) fn new(first: u32, end: u32) -> Arc<Self> {
        Arc::new(Self { free: Mutex::new((first..end).rev().collect()), changed: Condvar::new() })
    }

    fn lock(&self) -> MutexGuard<'_, Vec<u32>> {
        lock(&self.free)
    }

    /// Borrows a free index. If there is none, waits for at most `within`, and then returns `None`.
    pub(crate) fn take(self: &Arc<Self>, within: Duration) -> Option<PooledIndex> {
        let begin = Instant::now();
        let mut free = self.lock();
        loop {
            if let Some(index) = free.pop() {
                return Some(PooledIndex { pool: Arc::clone(self), index });
            }
            let left = within.saturating_sub(begin.elapsed());
            if left.is_zero() {
                return None;
            }
            free = wait_timeout(&self.changed, free, left);
        }
    }
}

impl PartialEq for PooledIndex {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.pool, &other.pool) && self.index == other.index
    }
}

impl Drop for PooledIndex {
    fn drop(&mut self) {
        self.pool.lock().push(self.index);
        self.pool.changed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn returned_index_is_lent_again() {
        let pool = IndexPool::new(3, 5);
        let (a, b) = (pool.take(Duration::ZERO).unwrap(), pool.take(Duration::ZERO).unwrap());
        assert_eq!((a.index, b.index), (3, 4));
        assert!(pool.take(Duration::from_millis(1)).is_none());
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| pool.take(Duration::from_secs(60)).map(|lent| lent.index));
            drop(b);
            assert_eq!(waiting.join().unwrap(), Some(4));
        });
    }
}
