//! The stacks on which lanes run, kept between launches: a new stack costs two system calls and page faults.

use std::collections::BTreeMap;
use std::sync::{LazyLock, Mutex, MutexGuard};

use corosensei::stack::DefaultStack;

use crate::Error;
use rushmem_base::lock;

/// Maximum number of free stacks that are kept for later launches.
const MAX_KEPT_STACKS: usize = 4096;

/// Number of stacks that a worker takes from the store at a time.
const BATCH: usize = 64;

/// The lane stacks of this process.
///
/// A stack and its guard page are two mappings. The limit lets all stacks together use at most half of the mappings
/// that a process may have.
pub(crate) static STORE: LazyLock<Store> = LazyLock::new(|| {
    let maps = std::fs::read_to_string("/proc/sys/vm/max_map_count").ok();
    Store::new(maps.and_then(|text| text.trim().parse().ok()).unwrap_or(65_530) / 4)
});

/// A store of free lane stacks, with a limit on the number of stacks that exist.
pub(crate) struct Store {
    limit: usize,
    shelf: Mutex<Shelf>,
}

#[derive(Default)]
struct Shelf {
    /// Free stacks of each size in bytes.
    free: BTreeMap<usize, Vec<DefaultStack>>,
    kept: usize,
    /// Number of stacks, free or in use.
    exist: usize,
}

impl Store {
    fn new(limit: usize) -> Self {
        Self { limit, shelf: Mutex::default() }
    }

    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    fn shelf(&self) -> MutexGuard<'_, Shelf> {
        lock(&self.shelf)
    }
}

/// The lane stacks that one worker holds during a launch. Dropping this returns them to the store.
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
            // Free stacks of other sizes count, too. Give them up.
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
        let keep = self.free.len().min(MAX_KEPT_STACKS.saturating_sub(shelf.kept));
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
    fn later_launches_reuse_stacks() {
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
    fn limits_the_number_of_stacks() {
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
    fn limits_the_number_of_kept_stacks() {
        let store = Store::new(MAX_KEPT_STACKS + 50);
        let mut launch = Stacks::new(&store, 16 << 10);
        for stack in take(&mut launch, MAX_KEPT_STACKS + 50) {
            launch.put(stack);
        }
        drop(launch);
        let shelf = store.shelf();
        assert_eq!((shelf.exist, shelf.kept), (MAX_KEPT_STACKS, MAX_KEPT_STACKS));
    }
}
