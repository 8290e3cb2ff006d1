//! The table of one opened device: its objects by number.

use crate::errno::Errno;
use crate::inventory::{Inventory, Record};
use crate::registry::Registry;
use std::any::Any;
use std::collections::BTreeMap;

/// An object of an opened device.
pub(crate) trait Object: Any + Send {
    /// Returns what other processes can know about it. Only objects that the kernel tracks, too, have a record.
    fn record(&self) -> Option<Record> {
        None
    }

    /// Ends its events.
    fn forget(&self, _registry: &Registry) {}
}

/// Objects of an opened device. All kinds share one row of numbers, as in the kernel.
#[derive(Default)]
pub(crate) struct Handles {
    objects: BTreeMap<u32, Box<dyn Object>>,
    next: u32,
    /// Handles of objects that are new, changed or gone since the last call of [`Handles::record`].
    changed: Vec<u32>,
}

/// Most objects of an opened device.
const LIMIT: usize = 1 << 20;

impl Handles {
    /// Stores an object and returns its handle.
    pub(crate) fn insert(&mut self, object: impl Object) -> Result<u32, Errno> {
        if self.objects.len() >= LIMIT {
            return Err(Errno::ENOMEM);
        }
        // Numbers are not reused soon, so a stale handle finds no object.
        while self.objects.contains_key(&self.next) {
            self.next = self.next.wrapping_add(1);
        }
        let handle = self.next;
        self.next = self.next.wrapping_add(1) & 0x7fff_ffff;
        self.objects.insert(handle, Box::new(object));
        self.changed.push(handle);
        Ok(handle)
    }

    /// Returns the object of a handle, `ENOENT` if there is none, or `EINVAL` if it is of another kind.
    pub(crate) fn get<K: Object>(&self, handle: u32) -> Result<&K, Errno> {
        let object = self.objects.get(&handle).ok_or(Errno::ENOENT)?;
        as_kind(&**object).ok_or(Errno::EINVAL)
    }

    /// Returns a mutable reference, with the same errors as [`Handles::get`].
    pub(crate) fn get_mut<K: Object>(&mut self, handle: u32) -> Result<&mut K, Errno> {
        self.changed.push(handle);
        let object: &mut dyn Any = &mut **self.objects.get_mut(&handle).ok_or(Errno::ENOENT)?;
        object.downcast_mut().ok_or(Errno::EINVAL)
    }

    /// Records the objects that have changed.
    pub(crate) fn record(&mut self, inventory: &mut Inventory) {
        for handle in self.changed.drain(..) {
            inventory.set(handle, self.objects.get(&handle).and_then(|object| object.record()));
        }
    }

    /// Returns all objects of a kind.
    pub(crate) fn all<K: Object>(&self) -> impl Iterator<Item = &K> {
        self.objects.values().filter_map(|object| as_kind(&**object))
    }

    /// Takes an object out.
    pub(crate) fn remove<K: Object>(&mut self, handle: u32) -> Result<K, Errno> {
        self.get::<K>(handle)?;
        self.changed.push(handle);
        let object: Box<dyn Any> = self.objects.remove(&handle).ok_or(Errno::ENOENT)?;
        object.downcast().map(|object| *object).map_err(|_| Errno::EINVAL)
    }

    /// Ends the events of all objects.
    pub(crate) fn forget(&self, registry: &Registry) {
        self.objects.values().for_each(|object| object.forget(registry));
    }
}

fn as_kind<K: Object>(object: &dyn Object) -> Option<&K> {
    let object: &dyn Any = object;
    object.downcast_ref()
}
