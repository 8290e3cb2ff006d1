//! The table of one opened device: its objects by number.

use crate::errno::Errno;
use crate::inventory::{Inventory, Record};
use std::collections::BTreeMap;

impl Object {
    /// Returns what other processes can know about it. Only objects that the kernel tracks, too, have a record.
    fn record(&self) -> Option<Record> {
        Some(match self {
            Object::Pd(pd) => pd.record(),
            Object::Cq(cq) => cq.record(),
            Object::Qp(qp) => qp.record(),
            Object::Dct(dct) => dct.record(),
            Object::Mr(mr) => mr.record(),
            Object::Srq(srq) => srq.record(),
            _ => return None,
        })
    }
}

/// Objects of an opened device. All kinds share one row of numbers, as in the kernel.
#[derive(Default)]
pub(crate) struct Handles {
    objects: BTreeMap<u32, Object>,
    next: u32,
    /// Handles of objects that are new, changed or gone since the last call of [`Handles::record`].
    changed: Vec<u32>,
}

/// Makes the enum of all kinds of objects, and how each is taken out of it.
macro_rules! kinds {
    ($($kind:ident($type:ty),)*) => {
        /// An object of any kind.
        pub(crate) enum Object {
            $($kind($type),)*
        }

        /// A kind of object.
        pub(crate) trait Kind: Sized {
            fn of(object: &Object) -> Option<&Self>;
            fn of_mut(object: &mut Object) -> Option<&mut Self>;
            fn wrap(self) -> Object;
            fn unwrap(object: Object) -> Option<Self>;
        }

        $(impl Kind for $type {
            fn of(object: &Object) -> Option<&Self> {
                if let Object::$kind(it) = object { Some(it) } else { None }
            }

            fn of_mut(object: &mut Object) -> Option<&mut Self> {
                if let Object::$kind(it) = object { Some(it) } else { None }
            }

            fn wrap(self) -> Object {
                Object::$kind(self)
            }

            fn unwrap(object: Object) -> Option<Self> {
                if let Object::$kind(it) = object { Some(it) } else { None }
            }
        })*
    };
}

kinds! {
    Pd(crate::verbs::pd::Pd),
    Mr(crate::verbs::mr::Mr),
    Cq(crate::verbs::cq::Cq),
    Qp(crate::verbs::qp::Qp),
    Dct(crate::verbs::dct::Dct),
    Srq(crate::verbs::srq::Srq),
    Xrcd(crate::verbs::xrc::Xrcd),
    Dm(crate::verbs::dm::Dm),
    Ah(crate::verbs::ah::Ah),
    Devx(crate::devx::obj::Devx),
    Umem(crate::devx::umem::Umem),
    Uar(crate::devx::uar::Uar),
}

/// Most objects of an opened device.
const LIMIT: usize = 1 << 20;

impl Handles {
    /// Stores an object and returns its handle.
    pub(crate) fn insert(&mut self, object: impl Kind) -> Result<u32, Errno> {
        if self.objects.len() >= LIMIT {
            return Err(Errno::ENOMEM);
        }
        // Numbers are not reused soon, so a stale handle finds no object.
        while self.objects.contains_key(&self.next) {
            self.next = self.next.wrapping_add(1);
        }
        let handle = self.next;
        self.next = self.next.wrapping_add(1) & 0x7fff_ffff;
        self.objects.insert(handle, object.wrap());
        self.changed.push(handle);
        Ok(handle)
    }

    /// Returns the object behind a handle, `ENOENT` if there is none, or `EINVAL` if it is of another kind.
    pub(crate) fn get<K: Kind>(&self, handle: u32) -> Result<&K, Errno> {
        K::of(self.any(handle)?).ok_or(Errno::EINVAL)
    }

    /// Returns a mutable reference, with the same errors as [`Handles::get`].
    pub(crate) fn get_mut<K: Kind>(&mut self, handle: u32) -> Result<&mut K, Errno> {
        self.changed.push(handle);
        let object = self.objects.get_mut(&handle).ok_or(Errno::ENOENT)?;
        K::of_mut(object).ok_or(Errno::EINVAL)
    }

    /// Returns the object behind a handle, of any kind.
    pub(crate) fn any(&self, handle: u32) -> Result<&Object, Errno> {
        self.objects.get(&handle).ok_or(Errno::ENOENT)
    }

    /// Records the objects that have changed.
    pub(crate) fn record(&mut self, inventory: &mut Inventory) {
        for handle in self.changed.drain(..) {
            inventory.set(handle, self.objects.get(&handle).and_then(Object::record));
        }
    }

    /// Returns all objects of a kind.
    pub(crate) fn all<'a, K: Kind + 'a>(&'a self) -> impl Iterator<Item = &'a K> {
        self.objects.values().filter_map(K::of)
    }

    /// Takes an object out.
    pub(crate) fn remove<K: Kind>(&mut self, handle: u32) -> Result<K, Errno> {
        self.get::<K>(handle)?;
        self.changed.push(handle);
        self.objects.remove(&handle).and_then(K::unwrap).ok_or(Errno::ENOENT)
    }
}
