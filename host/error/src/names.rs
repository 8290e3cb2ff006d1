//! Finds the names of objects in the symmetric heap, for error messages.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::Location;
use std::sync::{Arc, Mutex};

use rushmem_base::lock;
use rushmem_device::Handle;
use rushmem_sanitizer::interned;

/// Names of all objects and registered buffers. A freed object keeps its name until its memory is reused, because an
/// error may report a use after free.
#[derive(Clone, Debug, Default)]
pub struct ObjectNames(Arc<Mutex<BTreeMap<u64, Object>>>);

#[derive(Clone, Copy, Debug)]
struct Object {
    end: u64,
    /// Name that the program gave the object, or empty.
    name: &'static str,
    site: &'static Location<'static>,
}

/// Position of a byte inside a named object, for messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InObject {
    name: &'static str,
    site: &'static Location<'static>,
    byte: u64,
}

impl fmt::Display for InObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, site, byte } = self;
        match *name {
            "" => write!(f, "byte {byte} of the object allocated at {}:{}", site.file(), site.line()),
            name => write!(f, "byte {byte} of `{name}`, allocated at {}:{}", site.file(), site.line()),
        }
    }
}

impl ObjectNames {
    /// Adds an object with its name, which may be empty, and the call that allocated it.
    pub fn add(&self, Handle { offset, bytes, .. }: Handle, name: &str, site: &'static Location<'static>) {
        let end = offset.saturating_add(bytes);
        let mut objects = lock(&self.0);
        // Objects never overlap, so of those that start earlier, only the last can reach into these bytes.
        let earlier = objects.range(..offset).next_back().filter(|(_, object)| object.end > offset);
        let inside = objects.range(offset..end.max(offset));
        let replaced: Vec<u64> = earlier.into_iter().chain(inside).map(|(&start, _)| start).collect();
        for start in replaced {
            objects.remove(&start);
        }
        objects.insert(offset, Object { end, name: interned(name), site });
    }

    /// Returns the object that contains the byte at `offset` in the heap, and the byte's position in it.
    pub fn at(&self, offset: u64) -> Option<InObject> {
        let objects = lock(&self.0);
        let (start, Object { end, name, site }) = objects.range(..=offset).next_back()?;
        (offset < *end).then_some(InObject { name, site, byte: offset - start })
    }

    /// Returns the name of the object that starts at `offset` in the heap. Empty if it has no name.
    pub fn name_of(&self, offset: u64) -> &'static str {
        lock(&self.0).get(&offset).map_or("", |object| object.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offset_has_the_object_that_was_allocated_last() {
        let (names, site) = (ObjectNames::default(), Location::caller());
        let object = |offset, bytes| Handle { offset, bytes, stamp: 0 };
        let text = |offset| names.at(offset).map(|place| place.to_string());
        names.add(object(128, 64), "halo", site);
        names.add(object(256, 64), "", site);
        let at = format!("{}:{}", site.file(), site.line());
        assert_eq!(text(136), Some(format!("byte 8 of `halo`, allocated at {at}")));
        assert_eq!(text(256), Some(format!("byte 0 of the object allocated at {at}")));
        assert_eq!([text(0), text(192), text(320)], [None, None, None]);
        names.add(object(0, 264), "all", site);
        assert_eq!([text(136), text(300)], [Some(format!("byte 136 of `all`, allocated at {at}")), None]);
        assert_eq!([names.name_of(0), names.name_of(8)], ["all", ""]);
    }
}
