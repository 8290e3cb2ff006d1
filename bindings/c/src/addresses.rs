//! Translates addresses of the caller to handles of the runtime.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::Mutex;

use rushmem::{Error, Result};
use rushmem_base::lock;
use rushmem_device::{Local, Signal, Sym, SymSlice};

use crate::caller_memory::local_side;

/// The memory of a PE that calls may name, by its first address on this PE.
///
/// An entry exists as long as its memory, so a stale address is an error unless the memory has been allocated again.
#[derive(Default)]
pub(crate) struct Addresses(Mutex<BTreeMap<u64, Known>>);

#[derive(Clone, Copy)]
pub(crate) enum Known {
    /// An object of the symmetric heap.
    Object(SymSlice<u8>),
    /// A buffer of the caller that is symmetric memory.
    Window(SymSlice<u8>),
    /// A buffer of the caller that only this PE has registered.
    Local(Local<u8>),
}

impl Known {
    fn bytes(self) -> u64 {
        match self {
            Self::Object(object) | Self::Window(object) => object.bytes(),
            Self::Local(buffer) => buffer.bytes(),
        }
    }
}

impl Addresses {
    pub(crate) fn add(&self, address: u64, known: Known) {
        lock(&self.0).insert(address, known);
    }

    pub(crate) fn remove(&self, address: u64) {
        lock(&self.0).remove(&address);
    }

    /// Returns the object of the heap that starts at `address`.
    ///
    /// # Errors
    /// - [`Error::Misuse`] if there is none.
    pub(crate) fn object(&self, call: &'static str, address: u64) -> Result<SymSlice<u8>> {
        match lock(&self.0).get(&address) {
            Some(&Known::Object(object)) => Ok(object),
            _ => {
                let what = format!("{address:#x} is not the start of an allocation, or has been freed");
                Err(Error::misuse(call, what))
            }
        }
    }

    /// Returns the `bytes` bytes of symmetric memory at `address`. `name` is that of the argument.
    ///
    /// # Errors
    /// - [`Error::Misuse`] if they are not inside one object or window.
    pub(crate) fn symmetric(
        &self,
        (call, name): (&'static str, &str),
        address: *const c_void,
        bytes: usize,
    ) -> Result<SymSlice<u8>> {
        match self.find((call, name), address, bytes)? {
            (Known::Object(object) | Known::Window(object), at) => Ok(object.slice(at..at + bytes)),
            (Known::Local(_), _) => {
                let what = format!("`{name}` ({address:p}) is a local buffer, which other PEs cannot access");
                Err(Error::misuse(call, what))
            }
        }
    }

    /// Returns the `bytes` bytes of symmetric memory, or of a local buffer, at `address`.
    ///
    /// # Errors
    /// - [`Error::Misuse`] if they are not inside one object, window or buffer.
    pub(crate) fn local(
        &self,
        argument: (&'static str, &str),
        address: *const c_void,
        bytes: usize,
    ) -> Result<SymSlice<u8>> {
        match self.find(argument, address, bytes)? {
            (Known::Object(object) | Known::Window(object), at) => Ok(object.slice(at..at + bytes)),
            (Known::Local(buffer), at) => Ok(local_side(buffer.slice(at..at + bytes))),
        }
    }

    /// Returns the signal at `address`.
    ///
    /// # Errors
    /// - [`Error::Misuse`] if it is not in symmetric memory, or misaligned.
    pub(crate) fn signal(&self, call: &'static str, address: *const u64) -> Result<Sym<Signal>> {
        if !address.is_aligned() {
            let what = format!("`signal` ({address:p}) is not a multiple of {} bytes", align_of::<Signal>());
            return Err(Error::misuse(call, what));
        }
        let bytes = self.symmetric((call, "signal"), address.cast(), size_of::<Signal>())?;
        Ok(bytes.cast::<Signal>().at(0))
    }

    /// Returns the memory that contains the `bytes` bytes at `address`, and their position in it.
    fn find(
        &self,
        (call, name): (&'static str, &str),
        address: *const c_void,
        bytes: usize,
    ) -> Result<(Known, usize)> {
        let known = lock(&self.0);
        let below = known.range(..=address as u64).next_back();
        let found = below.map(|(&start, &known)| (known, address as u64 - start));
        let Some((known, at)) = found.filter(|&(known, at)| at < known.bytes() || at == 0) else {
            let what = format!("`{name}` ({address:p}) is not in allocated or registered memory of this PE");
            return Err(Error::misuse(call, what));
        };
        let left = known.bytes() - at;
        if bytes as u64 > left {
            let what = format!("`{name}` ({address:p}) has {left} bytes up to its object's end, not {bytes}");
            return Err(Error::misuse(call, what));
        }
        Ok((known, at as usize))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[allow(unsafe_code, reason = "handles of memory that nothing accesses")]
    fn object(offset: u64, bytes: usize) -> Known {
        // SAFETY: the tests only compare handles.
        Known::Object(unsafe { SymSlice::stamped(offset, bytes, 9) })
    }

    fn find(addresses: &Addresses, address: usize, bytes: usize) -> Result<(u64, u64), String> {
        let found = addresses.symmetric(("put", "dst"), std::ptr::without_provenance(address), bytes);
        found.map(|part| (part.offset(), part.bytes())).map_err(|error| error.to_string())
    }

    #[test]
    fn addresses_inside_an_object_are_parts_of_it() {
        let addresses = Addresses::default();
        addresses.add(0x1000, object(256, 64));
        addresses.add(0x1040, object(512, 32));
        assert_eq!(find(&addresses, 0x1000, 64), Ok((256, 64)));
        assert_eq!(find(&addresses, 0x103f, 1), Ok((256 + 63, 1)));
        assert_eq!(find(&addresses, 0x1040, 0), Ok((512, 0)));
        for (address, bytes) in [(0xfff, 1), (0x1060, 0), (0x1000, 65), (0x1050, 17), (0, 0)] {
            assert!(find(&addresses, address, bytes).is_err(), "{address:#x}, {bytes}");
        }
    }

    #[test]
    fn freed_address_is_an_error() {
        let addresses = Addresses::default();
        addresses.add(0x1000, object(256, 64));
        assert!(addresses.object("free", 0x1008).is_err(), "only a part");
        assert_eq!(addresses.object("free", 0x1000).unwrap().offset(), 256);
        addresses.remove(0x1000);
        assert!(addresses.object("free", 0x1000).is_err());
        let told = find(&addresses, 0x1000, 8).unwrap_err();
        assert!(
            told.contains("`dst` (0x1000) is not in allocated or registered memory of this PE"),
            "{told}"
        );
    }

    #[test]
    fn signals_are_aligned() {
        let addresses = Addresses::default();
        addresses.add(0x1000, object(256, 64));
        let signal = |address: usize| addresses.signal("op", std::ptr::without_provenance(address));
        assert_eq!(signal(0x1008).unwrap().offset(), 264);
        assert!(signal(0x1004).unwrap_err().to_string().contains("is not a multiple of 8 bytes"));
    }
}
