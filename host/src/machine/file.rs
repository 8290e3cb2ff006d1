//! Host memory that other processes can map: an anonymous file whose size is sealed, so that a mapping stays good
//! whatever becomes of the process that made it.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::Arc;

use rushmem_device::abi::DevAddr;
use rushmem_softnic::{AtomicOp, HostMemory, Memory, MemoryError, Width};

use super::{HEAP_ALIGN, Mapping, Region};
use crate::{Error, Result};

const SEALS: i32 = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;

fn failed(call: &'static str) -> Error {
    let why = format!("{call}: {}; set RUSHMEM_PEER_PATH=auto", io::Error::last_os_error());
    Error::Unavailable { what: "memory that other processes can map".into(), why }
}

/// Page-aligned, zeroed memory of `bytes` bytes, at its own address, with the file that it is.
///
/// # Errors
/// What the system refuses.
pub(super) fn region(bytes: u64) -> Result<Region> {
    // SAFETY: the name is a C string.
    let raw = unsafe { libc::memfd_create(c"rushmem".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) };
    if raw < 0 {
        return Err(failed("memfd_create"));
    }
    // SAFETY: the system has just made the descriptor for us.
    let file = unsafe { OwnedFd::from_raw_fd(raw) };
    // SAFETY: a descriptor of ours.
    if unsafe { libc::ftruncate(file.as_raw_fd(), bytes as libc::off_t) } != 0 {
        return Err(failed("ftruncate"));
    }
    // SAFETY: as above.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, SEALS) } != 0 {
        return Err(failed("fcntl(F_ADD_SEALS)"));
    }
    let pages = Pages::map(&file, bytes)?;
    let addr = pages.addr();
    // SAFETY: the pages stay mapped as long as the object that holds both, and are handed out by address only.
    let memory = unsafe { HostMemory::new(pages.start, bytes) };
    Ok(Region {
        addr,
        memory: Arc::new(FileMemory { memory, _pages: pages }),
        gpu: None,
        file: Some(Arc::new(file)),
    })
}

/// Maps the memory of another process.
///
/// # Errors
/// If it is not of `bytes` bytes for ever, or the system refuses.
pub(super) fn map(file: &OwnedFd, bytes: u64) -> Result<Pages> {
    // SAFETY: a descriptor of ours.
    let seals = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) };
    if seals < 0 {
        return Err(failed("fcntl(F_GET_SEALS)"));
    }
    // SAFETY: all zeroes are a `stat`.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: a descriptor of ours, and a live variable.
    if unsafe { libc::fstat(file.as_raw_fd(), &mut stat) } != 0 {
        return Err(failed("fstat"));
    }
    if seals & libc::F_SEAL_SHRINK == 0 || (stat.st_size as u64) < bytes {
        let why = format!("it has {} bytes, which may become fewer, instead of {bytes}", stat.st_size);
        return Err(Error::Unavailable { what: "the file of a heap".into(), why });
    }
    Pages::map(file, bytes)
}

/// Mapped pages, at a multiple of [`HEAP_ALIGN`].
pub(super) struct Pages {
    start: NonNull<u8>,
    /// Where they are.
    _room: Room,
}

// SAFETY: an address range, handed out by address only.
unsafe impl Send for Pages {}
// SAFETY: as above.
unsafe impl Sync for Pages {}

impl Pages {
    fn map(file: &OwnedFd, bytes: u64) -> Result<Self> {
        let bytes = bytes as usize;
        let room = Room::reserve(bytes + HEAP_ALIGN as usize)?;
        let skipped = room.start.as_ptr().align_offset(HEAP_ALIGN as usize);
        let start = room.start.as_ptr().wrapping_add(skipped);
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_FIXED);
        // SAFETY: in place of pages that have just been reserved, which nobody knows of.
        let mapped = unsafe { libc::mmap(start.cast(), bytes, access, kind, file.as_raw_fd(), 0) };
        if mapped == libc::MAP_FAILED {
            return Err(failed("mmap"));
        }
        // What was reserved around it stays reserved, and goes with it.
        Ok(Self { start: NonNull::new(start).unwrap_or(room.start), _room: room })
    }
}

/// Addresses that nothing else is mapped at.
struct Room {
    start: NonNull<u8>,
    bytes: usize,
}

impl Room {
    fn reserve(bytes: usize) -> Result<Self> {
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: new pages without access, at an address of the system's choice.
        let start = unsafe { libc::mmap(ptr::null_mut(), bytes, libc::PROT_NONE, kind, -1, 0) };
        match NonNull::new(start.cast::<u8>()) {
            Some(start) if start.as_ptr().cast() != libc::MAP_FAILED => Ok(Self { start, bytes }),
            _ => Err(failed("mmap")),
        }
    }
}

impl Mapping for Pages {
    fn addr(&self) -> DevAddr {
        DevAddr(self.start.as_ptr() as u64)
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        // SAFETY: reserved in `reserve`, unmapped once with what is in it.
        if unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) } != 0 {
            tracing::warn!("{}", failed("munmap"));
        }
    }
}

/// The memory of a file of this process.
struct FileMemory {
    memory: HostMemory,
    _pages: Pages,
}

// SAFETY: the pages are a `Memory` of their own; this one keeps them mapped.
unsafe impl Memory for FileMemory {
    fn len(&self) -> u64 {
        self.memory.len()
    }
    fn host_ptr(&self) -> Option<NonNull<u8>> {
        self.memory.host_ptr()
    }
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<(), MemoryError> {
        self.memory.read(offset, buf)
    }
    fn write(&self, offset: u64, data: &[u8]) -> Result<(), MemoryError> {
        self.memory.write(offset, data)
    }
    fn atomic(&self, offset: u64, width: Width, op: AtomicOp) -> Result<u64, MemoryError> {
        self.memory.atomic(offset, width, op)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_see_the_same_bytes_and_the_mapping_outlives_its_maker() {
        let ours = region(8192).unwrap();
        let theirs = map(ours.file.as_ref().unwrap(), 8192).unwrap();
        assert_ne!(ours.addr, theirs.addr());
        ours.write(4100, b"rushmem").unwrap();
        drop(ours);
        // SAFETY: mapped, and inside.
        let seen = unsafe { theirs.start.as_ptr().add(4100).cast::<[u8; 7]>().read() };
        assert_eq!(&seen, b"rushmem");
    }

    #[test]
    fn nobody_changes_the_size() {
        let ours = region(4096).unwrap();
        let file = ours.file.as_ref().unwrap();
        for bytes in [0, 8192] {
            // SAFETY: a descriptor of ours.
            assert_ne!(unsafe { libc::ftruncate(file.as_raw_fd(), bytes) }, 0);
        }
    }

    #[test]
    fn a_file_that_may_shrink_is_refused() {
        // SAFETY: the name is a C string; the descriptor is ours.
        let open =
            unsafe { OwnedFd::from_raw_fd(libc::memfd_create(c"open".as_ptr(), libc::MFD_ALLOW_SEALING)) };
        // SAFETY: as above.
        assert_eq!(unsafe { libc::ftruncate(open.as_raw_fd(), 4096) }, 0);
        assert!(map(&open, 4096).is_err());
        assert!(map(region(4096).unwrap().file.as_ref().unwrap(), 8192).is_err());
    }
}
