//! A table of the heaps whose PEs are threads of this process. The keys are random names.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};

use rushmem_base::lock;
use rushmem_machine::Region;

static TABLE: Mutex<Option<HashMap<String, Region>>> = Mutex::new(None);

fn table() -> MutexGuard<'static, Option<HashMap<String, Region>>> {
    lock(&TABLE)
}

/// A heap's entry in the table, removed on drop.
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

/// Returns the heap named `name`, if its PE is a thread of this process.
pub(super) fn find(name: &str) -> Option<Region> {
    table().as_ref()?.get(name).cloned()
}
