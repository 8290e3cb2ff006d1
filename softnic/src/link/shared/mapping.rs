//! A memory file (memfd) that two processes map and that neither can shrink.
#![allow(unsafe_code, reason = "maps memory files")]

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};
use std::io;
use std::os::fd::OwnedFd;
use std::ptr::{self, NonNull};

/// Seals that a memory file must have: a process that shrinks the file would kill its peer with SIGBUS.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// A mapped memory file, whose bytes the peer may change at any time.
#[derive(Debug)]
pub(super) struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: a mapping belongs to the process, not to a thread. Its users access it with atomics, or as the only writer.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Creates a sealed memory file of `len` zero bytes and maps it.
    ///
    /// # Errors
    ///
    /// Errors of the system calls.
    pub(super) fn create(len: usize) -> io::Result<(Mapping, OwnedFd)> {
        let file = memfd_create(c"softnic-ring", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&file, len as u64)?;
        fcntl_add_seals(&file, SEALS)?;
        Ok((Mapping::of(&file, len)?, file))
    }

    /// Maps a peer's memory file, which must have all seals and a length that `accepts` allows.
    ///
    /// # Errors
    ///
    /// - `InvalidData`: the file lacks a seal, is not ordinary memory, or has another length.
    /// - Other errors of the system calls.
    pub(super) fn adopt(file: &OwnedFd, accepts: impl FnOnce(usize) -> bool) -> io::Result<Mapping> {
        // Files that do not support seals return an error.
        let seals = fcntl_get_seals(file)?;
        let status = fstat(file)?;
        let len = usize::try_from(status.st_size).unwrap_or(0);
        // A huge page may turn out to be unavailable when it is first touched, which would also raise SIGBUS.
        let is_ordinary =
            usize::try_from(status.st_blksize).is_ok_and(|size| size <= crate::memory::page_size());
        if !seals.contains(SEALS) || !is_ordinary || !accepts(len) {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Mapping::of(file, len)
    }

    fn of(file: &OwnedFd, len: usize) -> io::Result<Mapping> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address that the system chooses.
        let base = unsafe { mmap(ptr::null_mut(), len, protection, MapFlags::SHARED, file, 0) }?;
        let Some(base) = NonNull::new(base.cast()) else { return Err(io::ErrorKind::InvalidData.into()) };
        let mapping = Mapping { base, len };
        // SAFETY: the whole new mapping. A child process has no engine, so it needs no ring.
        unsafe { madvise(base.as_ptr().cast(), len, Advice::LinuxDontFork) }?;
        Ok(mapping)
    }

    pub(super) fn base(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping that `of` made; nothing borrows from it any more.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
    }
}
