//! Stacks of lanes, kept between launches: making one costs two system calls and its first page faults.

use std::collections::BTreeMap;
use std::sync::{LazyLock, Mutex, MutexGuard};

use corosensei::stack::DefaultStack;

use crate::Error;
use rushmem_base::lock;

/// Stacks that stay behind for later launches, at most.
const KEPT: usize = 4096;

/// Stacks that a worker takes from the store at a time.
const BATCH: usize = 64;

/// The stacks of this process.
///
/// It holds a quarter of the mappings that the system grants a process: a stack and its guard page are two.
pub(crate) static STORE: LazyLock<Store> = LazyLock::new(|| {
    let maps = std::fs::read_to_string("/proc/sys/vm/max_map_count").ok();
    Store::new(maps.and_then(|text| text.trim().parse().ok()).unwrap_or(65_530) / 4)
});

/// Free stacks, and a bound on those that exist.
pub(crate) struct Store {
    limit: usize,
    shelf: Mutex<Shelf>,
}

#[derive(Default)]
struct Shelf {
    /// Free stacks by size in bytes.
    free: BTreeMap<usize, Vec<DefaultStack>>,
    /// Stacks in `free`.
    kept: usize,
    /// Stacks that exist, free or in use.
    exist: usize,
}

impl Store {
    fn new(limit: usize) -> Self {
        Self { limit, shelf: Mutex::default() }
    }

    /// Stacks that can exist at once.
    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    fn shelf(&self) -> MutexGuard<'_, Shelf> {
        lock(&self.shelf)
    }
}

/// The stacks of one worker during one launch. Dropping it gives them to later launches.
pub(crate) struct Stacks<'a> {
    store: &'a Store,
    bytes: usize,
    free: Vec<DefaultStack>,
}

impl<'a> Stacks<'a> {
    pub(crate) fn new(store: &'a Store, bytes: usize) -> Self {
        Self { store, bytes, free: Vec::new() }
    }

    pub(crate) fn take(&mut self) -> Result<DefaultStack, Error> {
        if let Some(stack) = self.free.pop() {
            return Ok(stack);
        }
        let mut shelf = self.store.shelf();
        let kept = shelf.free.entry(self.bytes).or_default();
        self.free = kept.split_off(kept.len().saturating_sub(BATCH));
        shelf.kept -= self.free.len();
        if let Some(stack) = self.free.pop() {
            return Ok(stack);
        }
        let limit = self.store.limit;
        if shelf.exist >= limit {
            // Those of other sizes make room.
            shelf.free.clear();
            shelf.exist -= shelf.kept;
            shelf.kept = 0;
        }
        if shelf.exist >= limit {
            return Err(Error::TooManyLanes { limit });
        }
        let made = DefaultStack::new(self.bytes);
        let stack = made.map_err(|source| Error::Stack { bytes: self.bytes, source })?;
        shelf.exist += 1;
        Ok(stack)
    }

    pub(crate) fn put(&mut self, stack: DefaultStack) {
        self.free.push(stack);
    }
}

impl Drop for Stacks<'_> {
    fn drop(&mut self) {
        let mut shelf = self.store.shelf();
        let keep = self.free.len().min(KEPT.saturating_sub(shelf.kept));
        let surplus = self.free.split_off(keep);
        shelf.exist -= surplus.len();
        shelf.kept += keep;
        shelf.free.entry(self.bytes).or_default().append(&mut self.free);
        drop(shelf);
        drop(surplus);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(stacks: &mut Stacks<'_>, count: usize) -> Vec<DefaultStack> {
        (0..count).map(|_| stacks.take().unwrap()).collect()
    }

    #[test]
    fn stacks_come_back_to_the_next_launch() {
        let store = Store::new(1000);
        for _ in 0..5 {
            let mut launch = Stacks::new(&store, 64 << 10);
            for stack in take(&mut launch, 100) {
                launch.put(stack);
            }
        }
        let shelf = store.shelf();
        assert_eq!((shelf.exist, shelf.kept), (100, 100));
    }

    #[test]
    fn a_process_has_no_more_than_its_limit() {
        let store = Store::new(3);
        let mut launch = Stacks::new(&store, 64 << 10);
        let taken = take(&mut launch, 3);
        let error = launch.take().err().unwrap();
        assert!(matches!(error, Error::TooManyLanes { limit: 3 }), "{error}");
        for stack in taken {
            launch.put(stack);
        }
        assert!(launch.take().is_ok());
    }

    #[test]
    fn idle_stacks_make_room_for_another_size() {
        let store = Store::new(3);
        let mut launch = Stacks::new(&store, 64 << 10);
        for stack in take(&mut launch, 3) {
            launch.put(stack);
        }
        drop(launch);
        let mut launch = Stacks::new(&store, 128 << 10);
        take(&mut launch, 3);
        assert_eq!(store.shelf().kept, 0);
    }

    #[test]
    fn what_a_large_launch_leaves_is_bounded() {
        let store = Store::new(KEPT + 50);
        let mut launch = Stacks::new(&store, 16 << 10);
        for stack in take(&mut launch, KEPT + 50) {
            launch.put(stack);
        }
        drop(launch);
        let shelf = store.shelf();
        assert_eq!((shelf.exist, shelf.kept), (KEPT, KEPT));
    }
}
