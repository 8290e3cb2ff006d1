//! The memory of a virtual machine, as the function sees it on its bus.
#![allow(unsafe_code, reason = "memory of another process is mapped and accessed through raw pointers")]

use rushmem_mlx5::{AtomicOp, Width};
use rushmem_softnic::{HostMemory, MappedPages, Memory, MemoryError};
use rustix::fs::fstat;
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap};
use std::collections::BTreeMap;
use std::ops::Range;
use std::os::fd::AsFd;
use std::ptr::{NonNull, null_mut};
use std::sync::{PoisonError, RwLock};

/// Why memory cannot be mapped on the bus or removed from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MapError {
    /// The range is empty, wraps around, is not page-aligned, or leaves the file.
    #[error("the range is not one of whole pages in the file")]
    Range,
    /// Other memory is mapped in the range.
    #[error("other memory is mapped in the range")]
    Overlap,
    /// Nothing is mapped in the range.
    #[error("nothing is mapped in the range")]
    Unknown,
    /// A mapping lies partly inside the range and partly outside.
    #[error("a mapping lies only partly in the range")]
    Cut,
    /// The system refuses.
    #[error("cannot map the memory: {0}")]
    System(#[from] Errno),
}

/// The memory at the bus addresses of a function. It may change at any time.
///
/// An access holds a lock, so memory is not accessed any more once [`GuestMemory::unmap`] has returned. An access to an
/// address without memory is an error of the access.
#[derive(Default)]
pub struct GuestMemory {
    /// The regions by their first address. They do not overlap.
    regions: RwLock<BTreeMap<u64, Mapping>>,
}

struct Mapping {
    len: u64,
    /// `None` if the range is only reserved.
    memory: Option<HostMemory<MappedPages>>,
}

impl GuestMemory {
    /// Maps `len` bytes of `file`, from `offset` on, at bus address `address`.
    ///
    /// The file must not be truncated while it is mapped.
    ///
    /// # Errors
    ///
    /// [`MapError::Range`], [`MapError::Overlap`], [`MapError::System`].
    pub fn map(&self, address: u64, file: impl AsFd, offset: u64, len: u64) -> Result<(), MapError> {
        let size = u64::try_from(fstat(&file)?.st_size).unwrap_or(0);
        let inside = offset.checked_add(len).is_some_and(|end| end <= size);
        let aligned = [address, offset, len].iter().all(|value| value.is_multiple_of(PAGE));
        if !inside || !aligned {
            return Err(MapError::Range);
        }
        let bytes = usize::try_from(len).map_err(|_| MapError::Range)?;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address that the system chooses.
        let start = unsafe { mmap(null_mut(), bytes, access, MapFlags::SHARED, &file, offset)? };
        let start = NonNull::new(start.cast::<u8>()).ok_or(MapError::Range)?;
        // SAFETY: this function has created the mapping and gives it away.
        let pages = unsafe { MappedPages::new(start, bytes) };
        // SAFETY: `pages` keeps the mapping, which is accessed only through raw pointers and atomics.
        self.insert(address, unsafe { HostMemory::from_raw_parts(start, len, pages) })
    }

    /// Makes `memory` accessible at bus address `address`.
    ///
    /// # Errors
    ///
    /// [`MapError::Range`], [`MapError::Overlap`].
    pub fn insert(&self, address: u64, memory: HostMemory<MappedPages>) -> Result<(), MapError> {
        self.add(address, Mapping { len: memory.len(), memory: Some(memory) })
    }

    /// Reserves a range without memory, in which accesses fail, until it is unmapped.
    ///
    /// # Errors
    ///
    /// [`MapError::Range`], [`MapError::Overlap`].
    pub fn reserve(&self, address: u64, len: u64) -> Result<(), MapError> {
        self.add(address, Mapping { len, memory: None })
    }

    fn add(&self, address: u64, mapping: Mapping) -> Result<(), MapError> {
        let end = address.checked_add(mapping.len).filter(|_| mapping.len != 0).ok_or(MapError::Range)?;
        let mut regions = self.regions.write().unwrap_or_else(PoisonError::into_inner);
        let before = regions.range(..end).next_back();
        if before.is_some_and(|(start, other)| start + other.len > address) {
            return Err(MapError::Overlap);
        }
        regions.insert(address, mapping);
        Ok(())
    }

    /// Removes everything that is mapped in the `len` bytes at `address`, or nothing if that fails.
    ///
    /// # Errors
    ///
    /// [`MapError::Range`], [`MapError::Unknown`], [`MapError::Cut`].
    pub fn unmap(&self, address: u64, len: u64) -> Result<(), MapError> {
        let end = address.checked_add(len).filter(|_| len != 0).ok_or(MapError::Range)?;
        let mut regions = self.regions.write().unwrap_or_else(PoisonError::into_inner);
        let first =
            regions.range(..=address).next_back().filter(|(start, region)| *start + region.len > address);
        let last = regions.range(address..end).next_back();
        let is_cut_at_start = first.is_some_and(|(start, _)| *start < address);
        if is_cut_at_start || last.is_some_and(|(start, region)| start + region.len > end) {
            return Err(MapError::Cut);
        }
        let inside: Vec<u64> = regions.range(address..end).map(|(start, _)| *start).collect();
        if inside.is_empty() {
            return Err(MapError::Unknown);
        }
        inside.iter().for_each(|start| drop(regions.remove(start)));
        Ok(())
    }

    /// Removes all memory.
    pub fn clear(&self) {
        self.regions.write().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Calls `access` with the region and the offset in it of each piece of the `len` bytes at `address`, and with the
    /// piece's range in those bytes.
    fn pieces(
        &self,
        address: u64,
        len: usize,
        mut access: impl FnMut(&HostMemory<MappedPages>, u64, Range<usize>) -> Result<(), MemoryError>,
    ) -> Result<(), MemoryError> {
        let outside = MemoryError::OutOfRange { offset: address, len: len as u64 };
        let regions = self.regions.read().unwrap_or_else(PoisonError::into_inner);
        let mut done = 0;
        while done < len {
            let at = address.checked_add(done as u64).ok_or(outside)?;
            let (start, region) = regions.range(..=at).next_back().ok_or(outside)?;
            let within = at - start;
            let rest = region.len.checked_sub(within).filter(|rest| *rest != 0).ok_or(outside)?;
            let memory = region.memory.as_ref().ok_or(outside)?;
            let piece = rest.min((len - done) as u64) as usize;
            access(memory, within, done..done + piece)?;
            done += piece;
        }
        Ok(())
    }
}

/// Size of a page.
const PAGE: u64 = rushmem_softnic::PAGE as u64;

// SAFETY: `host_ptr` returns `None`.
unsafe impl Memory for GuestMemory {
    fn len(&self) -> u64 {
        u64::MAX
    }

    fn host_ptr(&self) -> Option<NonNull<u8>> {
        None
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<(), MemoryError> {
        self.pieces(offset, buf.len(), |region, at, range| region.read(at, &mut buf[range]))
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), MemoryError> {
        self.pieces(offset, data.len(), |region, at, range| region.write(at, &data[range]))
    }

    fn atomic(&self, offset: u64, width: Width, op: AtomicOp) -> Result<u64, MemoryError> {
        if !offset.is_multiple_of(width.bytes()) {
            return Err(MemoryError::Misaligned { offset });
        }
        let mut old = 0;
        // An aligned operand lies in one page, and so in one region.
        self.pieces(offset, width.bytes() as usize, |region, at, _| {
            old = region.atomic(at, width, op)?;
            Ok(())
        })?;
        Ok(old)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rushmem_softnic::HostBuffer;

    #[test]
    fn accesses_follow_the_map() {
        let memory = GuestMemory::default();
        memory.insert(PAGE, HostBuffer::new(PAGE as usize)).unwrap();
        memory.insert(2 * PAGE, HostBuffer::new(PAGE as usize)).unwrap();
        memory.write(2 * PAGE - 2, &[1, 2, 3, 4]).unwrap();
        let mut buf = [0; 4];
        memory.read(2 * PAGE - 2, &mut buf).unwrap();
        assert_eq!(buf, [1, 2, 3, 4]);
        for address in [0, PAGE - 1, 3 * PAGE - 1, u64::MAX] {
            assert!(matches!(memory.read(address, &mut buf), Err(MemoryError::OutOfRange { .. })));
        }
        memory.unmap(2 * PAGE, PAGE).unwrap();
        assert!(memory.read(2 * PAGE - 2, &mut buf).is_err());
        assert!(memory.read(2 * PAGE - 4, &mut buf).is_ok());
    }

    #[test]
    fn regions_do_not_overlap() {
        let memory = GuestMemory::default();
        let insert = |address, pages| memory.insert(address, HostBuffer::new(pages * PAGE as usize));
        insert(2 * PAGE, 2).unwrap();
        for (address, pages) in [(2 * PAGE, 1), (PAGE, 2), (3 * PAGE, 4), (0, 8)] {
            assert_eq!(insert(address, pages), Err(MapError::Overlap));
        }
        assert_eq!(insert(PAGE, 1), Ok(()));
        assert_eq!(insert(u64::MAX - PAGE + 1, 2), Err(MapError::Range));
    }

    #[test]
    fn a_range_is_unmapped_as_a_whole() {
        let memory = GuestMemory::default();
        for address in [2, 5, 9] {
            memory.insert(address * PAGE, HostBuffer::new(2 * PAGE as usize)).unwrap();
        }
        memory.reserve(7 * PAGE, PAGE).unwrap();
        let unmap = |first, pages| memory.unmap(first * PAGE, pages * PAGE);
        let is_mapped = |page: u64| memory.read(page * PAGE, &mut [0; 8]).is_ok();
        for (first, pages) in [(2, 1), (3, 1), (3, 4), (1, 2), (4, 2)] {
            assert_eq!(unmap(first, pages), Err(MapError::Cut), "{first} {pages}");
        }
        assert_eq!(
            (unmap(0, 2), unmap(4, 1), unmap(2, 0)),
            (Err(MapError::Unknown), Err(MapError::Unknown), Err(MapError::Range))
        );
        assert!(is_mapped(2) && is_mapped(6) && !is_mapped(7));
        assert_eq!(unmap(1, 7), Ok(()));
        assert!(!is_mapped(2) && !is_mapped(6) && is_mapped(9));
        // The reservation is gone.
        assert_eq!(unmap(7, 1), Err(MapError::Unknown));
    }

    #[test]
    fn files_are_mapped_in_whole_pages() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(2 * PAGE).unwrap();
        let memory = GuestMemory::default();
        memory.map(0, &file, PAGE, PAGE).unwrap();
        memory.write(8, b"rush").unwrap();
        let mut bytes = [0; 4];
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut bytes, PAGE + 8).unwrap();
        assert_eq!(&bytes, b"rush");
        for (offset, len) in [(0, 3 * PAGE), (PAGE, 2 * PAGE), (1, PAGE), (0, 100), (u64::MAX - 1, PAGE)] {
            assert_eq!(memory.map(16 * PAGE, &file, offset, len), Err(MapError::Range));
        }
    }
}
