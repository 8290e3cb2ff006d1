//! The heaps of this process, by random name.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};

use rushmem_base::lock;
use rushmem_machine::Region;

static TABLE: Mutex<Option<HashMap<String, Region>>> = Mutex::new(None);

fn table() -> MutexGuard<'static, Option<HashMap<String, Region>>> {
    lock(&TABLE)
}

/// A table entry of a heap. The heap can be found as long as the entry lives.
pub(super) struct LocalHeap(String);

impl LocalHeap {
    pub(super) fn new(name: &str, heap: &Region) -> Self {
        table().get_or_insert_default().insert(name.into(), heap.clone());
        Self(name.into())
    }
}

impl Drop for LocalHeap {
    fn drop(&mut self) {
        if let Some(heaps) = &mut *table() {
            heaps.remove(&self.0);
        }
    }
}

/// Returns the heap of this process with that name.
pub(super) fn find(name: &str) -> Option<Region> {
    table().as_ref()?.get(name).cloned()
}
