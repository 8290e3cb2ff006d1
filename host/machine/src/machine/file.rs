//! Host memory that other processes can map: an anonymous file of sealed size. Mappings stay valid after the process
//! that created the file has exited.
#![allow(unsafe_code, reason = "mmap has no safe interface")]

use std::os::fd::OwnedFd;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use rustix::fs::{
    FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate,
    memfd_create,
};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

use rushmem_device::abi::DevAddr;
use rushmem_error::{Error, Result};
use rushmem_softnic::HostMemory;

use super::{HEAP_ALIGN, HeapWindow, Mapping, PeerMemory, Region};

const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

fn failed(call: &'static str) -> impl Fn(Errno) -> Error {
    move |error| {
        let why = format!("{call}: {}; set RUSHMEM_PEER_PATH=auto", std::io::Error::from(error));
        Error::Unavailable { what: "memory that other processes can map".into(), why }
    }
}

/// Allocates zeroed, page-aligned memory backed by a file that other processes can map.
///
/// # Errors
/// The errors of the operating system.
pub(super) fn region(bytes: u64) -> Result<Region> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = memfd_create(c"rushmem", flags).map_err(failed("memfd_create"))?;
    ftruncate(&file, bytes).map_err(failed("ftruncate"))?;
    fcntl_add_seals(&file, SEALS).map_err(failed("fcntl(F_ADD_SEALS)"))?;
    mapped(Arc::new(file), bytes)
}

/// Takes over the memory of a lost process, which others still have mapped, and sets it to 0.
///
/// # Errors
/// The errors of [`lasting`] and of the operating system.
pub(super) fn inherit(file: &Arc<OwnedFd>, bytes: u64) -> Result<Region> {
    lasting(file, bytes)?;
    clear(file, 0, bytes)?;
    mapped(Arc::clone(file), bytes)
}

/// Sets the bytes from `from` to `to` to 0, and frees the pages in between.
///
/// # Errors
/// The errors of the operating system.
pub(super) fn clear(file: &OwnedFd, from: u64, to: u64) -> Result<()> {
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(file, hole, from, to - from).map_err(failed("fallocate"))
}

fn mapped(file: Arc<OwnedFd>, bytes: u64) -> Result<Region> {
    let pages = NativeHeapWindow::of(&file, bytes)?;
    let addr = pages.base();
    // SAFETY: the window keeps the pages mapped, and exposes them by address only.
    let memory = Arc::new(unsafe { HostMemory::from_raw_parts(pages.start, bytes, pages) });
    Ok(Region { addr, memory, host: None, gpu: None, locked_for: None, file: Some(file) })
}

/// Checks that another process's heap file has at least `bytes` bytes and is sealed against shrinking. Otherwise that
/// process could truncate the file, and kernels that access it would raise SIGBUS.
///
/// # Errors
/// [`Error::Unavailable`] if the file is too small or could shrink, or if the system does not report its seals.
fn lasting(file: &OwnedFd, bytes: u64) -> Result<()> {
    let seals = fcntl_get_seals(file).map_err(failed("fcntl(F_GET_SEALS)"))?;
    let stat = fstat(file).map_err(failed("fstat"))?;
    if !seals.contains(SealFlags::SHRINK) || (stat.st_size as u64) < bytes {
        let why = format!("it has {} bytes and may shrink; {bytes} fixed bytes are needed", stat.st_size);
        return Err(Error::Unavailable { what: "the file of a heap".into(), why });
    }
    Ok(())
}

/// Reserved addresses for files of equal size, each at a multiple of [`HEAP_ALIGN`].
pub(super) struct NativeHeapWindow {
    start: NonNull<u8>,
    stride: u64,
    /// Unmaps the reservation, with all files mapped into it, when dropped.
    _range: AddressRange,
}

// SAFETY: an address range, exposed by address only.
unsafe impl Send for NativeHeapWindow {}
// SAFETY: see `Send`.
unsafe impl Sync for NativeHeapWindow {}

impl NativeHeapWindow {
    /// Reserves addresses for `slots` files of `bytes` bytes.
    ///
    /// # Errors
    /// The errors of the operating system.
    pub(super) fn new(slots: u32, bytes: u64) -> Result<Self> {
        let stride = bytes.next_multiple_of(HEAP_ALIGN);
        // `mmap` aligns to pages only, so reserve one alignment more and skip to the first aligned address.
        let room = AddressRange::reserve((u64::from(slots) * stride + HEAP_ALIGN) as usize)?;
        let skipped = room.start.as_ptr().align_offset(HEAP_ALIGN as usize);
        let start = NonNull::new(room.start.as_ptr().wrapping_add(skipped)).unwrap_or(room.start);
        Ok(Self { start, stride, _range: room })
    }

    /// Reserves a window with one slot and maps `file` in it.
    fn of(file: &OwnedFd, bytes: u64) -> Result<Self> {
        let place = Self::new(1, bytes)?;
        place.put(0, file, bytes)?;
        Ok(place)
    }

    fn put(&self, slot: u32, file: &OwnedFd, bytes: u64) -> Result<()> {
        let at = self.start.as_ptr().wrapping_add((u64::from(slot) * self.stride) as usize);
        let (access, kind) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::FIXED);
        // SAFETY: replaces pages that were reserved for this slot and that nothing uses. The rest of the reservation
        // stays, and is unmapped with it.
        unsafe { mmap(at.cast(), bytes as usize, access, kind, file, 0) }.map_err(failed("mmap"))?;
        Ok(())
    }
}

impl HeapWindow for NativeHeapWindow {
    fn base(&self) -> DevAddr {
        DevAddr(self.start.as_ptr() as u64)
    }

    fn stride(&self) -> u64 {
        self.stride
    }

    fn map(&mut self, slot: u32, heap: PeerMemory) -> Result<bool> {
        match heap {
            PeerMemory::Local(region) => {
                let file = region.file.as_ref().ok_or_else(|| Error::Unavailable {
                    what: "the file of a heap".into(),
                    why: "it can be used only in its own process".into(),
                })?;
                self.put(slot, file, region.memory.len())?;
            }
            PeerMemory::Remote { exported, bytes } => {
                let file = exported.file()?;
                lasting(file, bytes)?;
                self.put(slot, file, bytes)?;
            }
        }
        Ok(true)
    }
}

impl Mapping for NativeHeapWindow {
    fn addr(&self) -> DevAddr {
        self.base()
    }
}

/// Reserved addresses, unmapped on drop.
struct AddressRange {
    start: NonNull<u8>,
    bytes: usize,
}

impl AddressRange {
    fn reserve(bytes: usize) -> Result<Self> {
        let kind = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: new pages without access, at an address that the system chooses.
        let start = unsafe { mmap_anonymous(ptr::null_mut(), bytes, ProtFlags::empty(), kind) };
        let start = start.map_err(failed("mmap"))?;
        let start = NonNull::new(start.cast()).ok_or(Errno::NOMEM).map_err(failed("mmap"))?;
        Ok(Self { start, bytes })
    }
}

impl Drop for AddressRange {
    fn drop(&mut self) {
        // SAFETY: reserved in `reserve`, and unmapped once with everything mapped in it.
        if let Err(error) = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) } {
            tracing::warn!("{}", failed("munmap")(error));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::ExportedMemory;
    use super::*;

    fn exported(region: &Region) -> PeerMemory {
        let exported = ExportedMemory::whole(region).unwrap();
        PeerMemory::Remote { exported, bytes: region.memory.len() }
    }

    #[test]
    fn mappings_share_memory_and_outlive_the_owner() {
        let ours = [region(8192).unwrap(), region(8192).unwrap()];
        let mut theirs = NativeHeapWindow::new(3, 8192).unwrap();
        theirs.map(0, exported(&ours[0])).unwrap();
        theirs.map(2, PeerMemory::Local(ours[1].clone())).unwrap();
        for (i, word) in [b"rushmem", b"memrush"].into_iter().enumerate() {
            ours[i].write(4100, word).unwrap();
        }
        drop(ours);
        let seen = |slot: u64| {
            let at = theirs.base().add(slot * theirs.stride() + 4100).ptr::<[u8; 7]>();
            // SAFETY: mapped, and inside the window.
            unsafe { at.read() }
        };
        assert_eq!([&seen(0), &seen(2)], [b"rushmem", b"memrush"]);
    }

    #[test]
    fn inherited_memory_is_zero_and_stays_mapped_elsewhere() {
        let first = region(8192).unwrap();
        let mut theirs = NativeHeapWindow::new(1, 8192).unwrap();
        theirs.map(0, exported(&first)).unwrap();
        first.write(4100, b"rushmem").unwrap();
        let file = Arc::clone(first.file.as_ref().unwrap());
        drop(first);
        let second = inherit(&file, 8192).unwrap();
        let mut bytes = [7; 8192];
        second.read(0, &mut bytes).unwrap();
        assert_eq!(bytes, [0; 8192]);
        second.write(4100, b"memrush").unwrap();
        let at = theirs.base().add(4100).ptr::<[u8; 7]>();
        // SAFETY: mapped, and inside the window.
        let seen = unsafe { at.read() };
        assert_eq!(&seen, b"memrush");
        clear(&file, 4102, 8192).unwrap();
        // SAFETY: mapped, and inside the window.
        let seen = unsafe { at.read() };
        assert_eq!(&seen, b"me\0\0\0\0\0");
        assert!(inherit(&file, 16384).is_err());
    }

    #[test]
    fn size_cannot_change() {
        let ours = region(4096).unwrap();
        let file = ours.file.as_ref().unwrap();
        for bytes in [0, 8192] {
            assert_eq!(ftruncate(file, bytes), Err(Errno::PERM));
        }
    }

    #[test]
    fn rejects_a_file_that_may_shrink() {
        let open = memfd_create(c"open", MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&open, 4096).unwrap();
        assert!(lasting(&open, 4096).is_err());
        assert!(lasting(region(4096).unwrap().file.as_ref().unwrap(), 8192).is_err());
    }
}
