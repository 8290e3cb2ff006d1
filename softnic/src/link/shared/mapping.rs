//! A memory file that two processes map, and that neither can shorten.
#![allow(unsafe_code, reason = "system calls that make and map memory files")]

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;

/// Seals without which an access could leave the file: a process that shortens it would end its peer by SIGBUS.
const SEALS: libc::c_int = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;

/// A mapped memory file. The peer may change its bytes at any time.
#[derive(Debug)]
pub(super) struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: a mapping belongs to the process, not to a thread. Its users access it with atomics, or as the only writer.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Makes a sealed memory file of `len` zero bytes and maps it.
    ///
    /// # Errors
    ///
    /// The errors of the system calls.
    pub(super) fn create(len: usize) -> io::Result<(Mapping, OwnedFd)> {
        let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
        // SAFETY: the name is a C string.
        let fd = checked(unsafe { libc::memfd_create(c"softnic-ring".as_ptr(), flags) })?;
        // SAFETY: a new descriptor that nothing else owns.
        let file = unsafe { OwnedFd::from_raw_fd(fd) };
        // SAFETY: two system calls on an open descriptor, without pointers.
        unsafe {
            checked(libc::ftruncate(fd, len as libc::off_t))?;
            checked(libc::fcntl(fd, libc::F_ADD_SEALS, SEALS))?;
        }
        Ok((Mapping::of(&file, len)?, file))
    }

    /// Maps a peer's memory file, which must have all seals and an acceptable length.
    ///
    /// # Errors
    ///
    /// - `InvalidData`: the file lacks a seal, is no ordinary memory, or has another length.
    /// - The errors of the system calls.
    pub(super) fn adopt(file: &OwnedFd, accepts: impl FnOnce(usize) -> bool) -> io::Result<Mapping> {
        let fd = file.as_raw_fd();
        // SAFETY: a system call on an open descriptor, without pointers. Files that take no seals return an error.
        let seals = checked(unsafe { libc::fcntl(fd, libc::F_GET_SEALS) })?;
        // SAFETY: a C struct for which all zeroes is a value.
        let mut status: libc::stat = unsafe { std::mem::zeroed() };
        // SAFETY: a live variable of the type that the call fills.
        checked(unsafe { libc::fstat(fd, &raw mut status) })?;
        let len = usize::try_from(status.st_size).unwrap_or(0);
        // Huge pages may be used up when they are touched, which would raise SIGBUS too.
        let is_ordinary = status.st_blksize <= crate::memory::PAGE as libc::blksize_t;
        if seals & SEALS != SEALS || !is_ordinary || !accepts(len) {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Mapping::of(file, len)
    }

    fn of(file: &OwnedFd, len: usize) -> io::Result<Mapping> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address that the system chooses.
        let base = unsafe {
            libc::mmap(std::ptr::null_mut(), len, protection, libc::MAP_SHARED, file.as_raw_fd(), 0)
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let Some(base) = NonNull::new(base.cast()) else { return Err(io::ErrorKind::InvalidData.into()) };
        let mapping = Mapping { base, len };
        // SAFETY: the whole new mapping. A child process has no engine, so it needs no ring.
        checked(unsafe { libc::madvise(base.as_ptr().cast(), len, libc::MADV_DONTFORK) })?;
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
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

/// Returns the result of a system call.
pub(super) fn checked(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
