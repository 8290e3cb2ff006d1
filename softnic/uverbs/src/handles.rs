//! Table of the objects that a program has created on an opened device.

use crate::errno::Errno;
use crate::inventory::{Inventory, Record};
use crate::registry::Registry;
use std::any::Any;
use std::collections::BTreeMap;

pub(crate) trait Object: Any + Send {
    /// Returns the object's record for other processes. Only kinds that the kernel tracks have one.
    fn record(&self) -> Option<Record> {
        None
    }

    /// Unregisters the object's events from `registry`.
    fn forget(&self, _registry: &Registry) {}
}

/// Objects of an opened device by handle. All kinds share one ID space, as in the kernel.
#[derive(Default)]
pub(crate) struct Handles {
    objects: BTreeMap<u32, Box<dyn Object>>,
    next: u32,
    /// Handles that have been created, changed or destroyed since the last [`Handles::record`].
    changed: Vec<u32>,
}

/// Maximum number of objects of an opened device.
const MAX_OBJECTS: usize = 1 << 20;

impl Handles {
    /// Inserts an object and returns its handle.
    pub(crate) fn insert(&mut self, object: impl Object) -> Result<u32, Errno> {
        if self.objects.len() >= MAX_OBJECTS {
            return Err(Errno::ENOMEM);
        }
        // Handles are not reused soon, to catch stale ones.
        while self.objects.contains_key(&self.next) {
            self.next = self.next.wrapping_add(1);
        }
        let handle = self.next;
        self.next = self.next.wrapping_add(1) & 0x7fff_ffff;
        self.objects.insert(handle, Box::new(object));
        self.changed.push(handle);
        Ok(handle)
    }

    /// Returns the object of a handle. Fails with `ENOENT` if there is none, or `EINVAL` if it is of another kind.
    pub(crate) fn get<K: Object>(&self, handle: u32) -> Result<&K, Errno> {
        let object = self.objects.get(&handle).ok_or(Errno::ENOENT)?;
        as_kind(&**object).ok_or(Errno::EINVAL)
    }

    pub(crate) fn get_mut<K: Object>(&mut self, handle: u32) -> Result<&mut K, Errno> {
        self.changed.push(handle);
        let object: &mut dyn Any = &mut **self.objects.get_mut(&handle).ok_or(Errno::ENOENT)?;
        object.downcast_mut().ok_or(Errno::EINVAL)
    }

    /// Updates the records of changed objects.
    pub(crate) fn record(&mut self, inventory: &mut Inventory) {
        for handle in self.changed.drain(..) {
            inventory.set(handle, self.objects.get(&handle).and_then(|object| object.record()));
        }
    }

    pub(crate) fn all<K: Object>(&self) -> impl Iterator<Item = &K> {
        self.objects.values().filter_map(|object| as_kind(&**object))
    }

    /// Removes an object from the table. Fails like [`Handles::get`] if it does not exist or is of another kind.
    pub(crate) fn remove<K: Object>(&mut self, handle: u32) -> Result<K, Errno> {
        self.get::<K>(handle)?;
        self.changed.push(handle);
        let object: Box<dyn Any> = self.objects.remove(&handle).ok_or(Errno::ENOENT)?;
        object.downcast().map(|object| *object).map_err(|_| Errno::EINVAL)
    }

    /// Unregisters the events of all objects.
    pub(crate) fn forget(&self, registry: &Registry) {
        self.objects.values().for_each(|object| object.forget(registry));
    }
}

fn as_kind<K: Object>(object: &dyn Object) -> Option<&K> {
    let object: &dyn Any = object;
    object.downcast_ref()
}
