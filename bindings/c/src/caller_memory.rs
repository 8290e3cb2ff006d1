//! Memory of the caller, for the registrations of `rushmem`, and handles made from its parts.
#![allow(unsafe_code, reason = "the caller vouches for its memory")]

use std::ffi::c_void;
use std::ptr::NonNull;

use rushmem::cuda::{Cuda, Device, KnownMemory};
use rushmem::{Buffer, Error, MemoryLocation, Pe, Result};
use rushmem_device::{Handle, Local, LocalBuffer, SymSlice, Team};

use crate::types::rushmem_team;

/// A range of bytes that the caller has allocated and frees.
pub(crate) struct CallerMemory {
    location: MemoryLocation,
    bytes: usize,
}

// SAFETY: an address range. The caller of `new` promised that any thread may use it.
unsafe impl Send for CallerMemory {}
// SAFETY: see `Send`.
unsafe impl Sync for CallerMemory {}

// SAFETY: the caller of `new` promised it. Bytes need no alignment, and all their values are valid.
unsafe impl Buffer for CallerMemory {
    type Element = u8;
    fn location(&mut self) -> MemoryLocation {
        self.location
    }
    fn len(&self) -> usize {
        self.bytes
    }
}

impl CallerMemory {
    /// Creates a buffer of the `bytes` bytes at `start`, for registration with `pe`.
    ///
    /// # Errors
    /// - [`Error::Misuse`] if `start` is null.
    /// - [`Error::Cuda`] if the driver does not answer.
    ///
    /// # Safety
    /// The bytes stay allocated until this value is dropped. Until then, any thread, kernel or NIC may access them.
    pub(crate) unsafe fn new(call: &'static str, pe: &Pe, start: *mut c_void, bytes: usize) -> Result<Self> {
        let host = NonNull::new(start.cast()).ok_or_else(|| Error::misuse(call, "`ptr` is null"))?;
        let known = match pe.gpu() {
            Some(gpu) => Device::open(Cuda::load()?, gpu)?.known_memory(start as u64)?,
            None => None,
        };
        let location = match known {
            None => MemoryLocation::Host(host),
            Some(KnownMemory::PageLocked) => MemoryLocation::PageLocked(host),
            Some(KnownMemory::Gpu) => MemoryLocation::Gpu(start as u64),
        };
        Ok(Self { location, bytes })
    }
}

/// Returns a registered buffer in the form of the operations of hosts and streams, for their local side.
pub(crate) fn local_side(buffer: Local<u8>) -> SymSlice<u8> {
    let Handle { offset, bytes, stamp } = buffer.handle();
    // SAFETY: the bytes of the buffer, with its stamp. As the local side, only this PE accesses them.
    unsafe { SymSlice::stamped(offset, bytes as usize, stamp) }
}

/// Returns the team with this number, if this PE has it.
///
/// # Errors
/// - [`Error::Misuse`] if it does not.
pub(crate) fn team(call: &'static str, pe: &Pe, number: rushmem_team) -> Result<Team> {
    // SAFETY: a team that the runtime does not have is rejected below.
    let team = unsafe { Team::from_bits(number) };
    match pe.team_n_pes(team) {
        Some(_) => Ok(team),
        None => {
            Err(Error::misuse(call, format!("{number:#x} is not a team of this PE, or has been destroyed")))
        }
    }
}
