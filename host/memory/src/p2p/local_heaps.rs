//! The heaps of PEs that are threads of this process, by random name.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};

use rushmem_base::lock;
use rushmem_machine::Region;

static TABLE: Mutex<Option<HashMap<String, Region>>> = Mutex::new(None);

fn table() -> MutexGuard<'static, Option<HashMap<String, Region>>> {
    lock(&TABLE)
}

/// An entry in the table of heaps. The heap can be found until this is dropped.
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

/// Returns the heap with that name, if it belongs to this process.
pub(super) fn find(name: &str) -> Option<Region> {
    table().as_ref()?.get(name).cloned()
}
