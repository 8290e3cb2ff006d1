//! Memory that the adapter accesses by DMA.
//!
//! The adapter copies host memory word by word with relaxed atomics, because kernels access the same words
//! concurrently. Other memory, such as GPU memory, implements [`Memory`] with its own copies, which may be asynchronous
//! until [`Memory::flush`].
#![allow(unsafe_code, reason = "shared memory is accessed through raw pointers, with atomics")]

use crate::copy;
use rushmem_mlx5::{AtomicOp, Width};
use std::alloc::{Layout, handle_alloc_error};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Error of an access to a [`Memory`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MemoryError {
    /// The access extends beyond the memory.
    #[error("access of {len} bytes at offset {offset:#x} leaves the memory")]
    OutOfRange {
        /// Offset of the first accessed byte from the start of the memory.
        offset: u64,
        /// Length of the access in bytes.
        len: u64,
    },
    /// The offset of an atomic is not a multiple of its width.
    #[error("atomic at offset {offset:#x} is not aligned to its width")]
    Misaligned {
        /// Offset of the operand from the start of the memory, in bytes.
        offset: u64,
    },
    /// The implementation failed, with its native error code (a `CUresult` for CUDA memory).
    #[error("device copy failed with code {0}")]
    Device(i32),
}

/// A location in memory, in a form that lets another [`Memory`] copy from or to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryAddr {
    /// Address of the first byte. GPU addresses are valid on all GPUs of the process (CUDA unified addressing).
    pub address: u64,
    /// What kind of memory the address refers to.
    pub kind: MemoryKind,
}

/// The kind of memory at a [`MemoryAddr`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryKind {
    /// Pageable host memory. The address is a CPU address.
    Host,
    /// Page-locked host memory. The address is a GPU address.
    PageLocked,
    /// Memory of the GPU with this index.
    Gpu(u32),
}

impl MemoryAddr {
    /// Returns the location `bytes` further on.
    #[must_use]
    pub fn after(self, bytes: u64) -> MemoryAddr {
        MemoryAddr { address: self.address.wrapping_add(bytes), ..self }
    }
}

/// Memory that the adapter reads and writes.
///
/// Offsets are in bytes from the start of the memory. The adapter calls these methods from its engine thread, but every
/// method must be callable from any thread. No method may wait for a kernel, because the kernel may be waiting for the
/// adapter.
///
/// # Safety
///
/// If [`host_ptr`](Memory::host_ptr) returns a pointer, the following must hold for the lifetime of the object:
///
/// - The [`len`](Memory::len) bytes at the pointer stay mapped, readable and writable.
/// - The pointer and the length never change.
/// - No Rust reference to those bytes is used, because the adapter accesses them with atomics.
pub unsafe trait Memory: Send + Sync {
    /// Returns the size of the memory, in bytes.
    fn len(&self) -> u64;

    /// Returns whether the memory has a size of zero bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the CPU address of byte 0, if the CPU can access the memory directly.
    ///
    /// If there is an address, the adapter never calls `read`, `write` or `atomic`. Otherwise, every access to a queue
    /// or a doorbell is such a call.
    fn host_ptr(&self) -> Option<NonNull<u8>>;

    /// Returns the location of byte 0, for [`copy_in`](Memory::copy_in), [`copy_out`](Memory::copy_out) and
    /// [`atomic_to`](Memory::atomic_to) of other memories, or `None` if they cannot access it.
    fn place(&self) -> Option<MemoryAddr> {
        self.host_ptr().map(|p| MemoryAddr { address: p.as_ptr() as u64, kind: MemoryKind::Host })
    }

    /// Returns the ID of the queue that executes all accesses to this memory in call order. Between accesses to
    /// memories with the same queue, no [`flush`](Memory::flush) is needed.
    fn queue(&self) -> Option<u64> {
        None
    }

    /// Copies bytes to `buf`, which is filled when the call returns. Sees earlier `write`s.
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<(), MemoryError>;

    /// Copies the ranges, each given by offset and length, to `buf`, concatenated. Sees earlier `write`s.
    ///
    /// Memory of a device should start all copies and wait once.
    fn gather(&self, ranges: &[(u64, usize)], buf: &mut [u8]) -> Result<(), MemoryError> {
        let mut rest = buf;
        for (offset, len) in ranges {
            let (part, behind) = rest.split_at_mut(*len);
            self.read(*offset, part)?;
            rest = behind;
        }
        Ok(())
    }

    /// Copies `data` to the memory. `data` may be reused when the call returns. The bytes become visible in call order,
    /// at the latest after [`flush`](Memory::flush).
    fn write(&self, offset: u64, data: &[u8]) -> Result<(), MemoryError>;

    /// Executes an atomic read-modify-write after earlier writes. Returns the old value, zero-extended.
    ///
    /// It is atomic with respect to the adapter and, if the memory supports it, to all processors.
    fn atomic(&self, offset: u64, width: Width, op: AtomicOp) -> Result<u64, MemoryError>;

    /// Starts an atomic like [`atomic`](Memory::atomic) that writes the old value to `result`, and returns `true`. Both
    /// are complete after [`flush`](Memory::flush).
    ///
    /// An 8-byte old value is stored little-endian, a 4-byte one big-endian. If the memory returns `false`, the adapter
    /// calls `atomic` instead.
    fn atomic_to(
        &self,
        offset: u64,
        width: Width,
        op: AtomicOp,
        result: MemoryAddr,
    ) -> Result<bool, MemoryError> {
        let _ = (offset, width, op, result);
        Ok(false)
    }

    /// Starts a copy of `len` bytes from `src`, and returns `true`. The copy is complete after
    /// [`flush`](Memory::flush).
    ///
    /// If the memory returns `false`, the adapter stages the bytes and calls `write` instead.
    fn copy_in(&self, offset: u64, src: MemoryAddr, len: u64) -> Result<bool, MemoryError> {
        let _ = (offset, src, len);
        Ok(false)
    }

    /// Starts a copy of `len` bytes to `dst`, and returns `true`. The copy is complete after [`flush`](Memory::flush)
    /// of this memory.
    ///
    /// If the memory returns `false`, the adapter calls `read` instead.
    fn copy_out(&self, offset: u64, dst: MemoryAddr, len: u64) -> Result<bool, MemoryError> {
        let _ = (offset, dst, len);
        Ok(false)
    }

    /// Waits until all copies that this memory has started are complete.
    ///
    /// The adapter calls it once before the completion, acknowledgement or atomic that announces the data.
    fn flush(&self) -> Result<(), MemoryError> {
        Ok(())
    }
}

/// Host memory. `P` owns the pages, or is `()` if the caller keeps them mapped.
#[derive(Debug)]
pub struct HostMemory<P = ()> {
    base: NonNull<u8>,
    len: u64,
    place: MemoryAddr,
    pages: P,
}

// SAFETY: the contract of the constructor makes the range valid on every thread, and all accesses are atomic.
unsafe impl<P: Send> Send for HostMemory<P> {}
// SAFETY: as for Send.
unsafe impl<P: Sync> Sync for HostMemory<P> {}

impl<P> HostMemory<P> {
    /// Wraps `len` bytes at `base`.
    ///
    /// # Safety
    ///
    /// - The range must stay mapped, readable and writable until `pages` is dropped, or until this object is dropped if
    ///   `pages` is `()`.
    /// - No Rust reference to bytes in the range may be used while the adapter can access them. Both sides use raw
    ///   pointers or atomics.
    #[must_use]
    pub unsafe fn from_raw_parts(base: NonNull<u8>, len: u64, pages: P) -> HostMemory<P> {
        let place = MemoryAddr { address: base.as_ptr() as u64, kind: MemoryKind::Host };
        HostMemory { base, len, place, pages }
    }

    /// Returns the memory with `place` as its [`place`](Memory::place), which is where `registration` makes it
    /// accessible. `registration` is dropped before the pages.
    #[must_use]
    pub fn registered<R>(self, place: MemoryAddr, registration: R) -> HostMemory<(R, P)> {
        HostMemory { base: self.base, len: self.len, place, pages: (registration, self.pages) }
    }

    /// Returns the CPU address of the first byte.
    #[must_use]
    pub fn as_ptr(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    fn at(&self, offset: u64, len: u64) -> Result<*mut u8, MemoryError> {
        match offset.checked_add(len) {
            Some(end) if end <= self.len => Ok(self.base.as_ptr().wrapping_add(offset as usize)),
            _ => Err(MemoryError::OutOfRange { offset, len }),
        }
    }
}

// SAFETY: `HostMemory::from_raw_parts` has the same contract as this trait, and the object owns `pages`.
unsafe impl<P: Send + Sync> Memory for HostMemory<P> {
    fn len(&self) -> u64 {
        self.len
    }

    fn host_ptr(&self) -> Option<NonNull<u8>> {
        Some(self.base)
    }

    fn place(&self) -> Option<MemoryAddr> {
        Some(self.place)
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<(), MemoryError> {
        let src = self.at(offset, buf.len() as u64)?;
        // SAFETY: `at` has checked the range, which is mapped by the contract of `from_raw_parts`, and `buf` is
        // exclusive.
        unsafe { copy::copy_bytes(buf.as_mut_ptr(), src, buf.len()) };
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), MemoryError> {
        let dst = self.at(offset, data.len() as u64)?;
        // SAFETY: `at` has checked the range, which is mapped by the contract of `from_raw_parts`.
        unsafe { copy::copy_bytes(dst, data.as_ptr(), data.len()) };
        Ok(())
    }

    fn atomic(&self, offset: u64, width: Width, op: AtomicOp) -> Result<u64, MemoryError> {
        let at = self.at(offset, width.bytes())?;
        if !(at as u64).is_multiple_of(width.bytes()) {
            return Err(MemoryError::Misaligned { offset });
        }
        // SAFETY: the range is mapped (`from_raw_parts`), in bounds (`at`) and aligned (checked above).
        Ok(unsafe { copy::atomic(at, width, op) })
    }
}

/// Memory pages mapped into this process, which are unmapped on drop.
#[derive(Debug)]
pub struct MappedPages {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: an address range, which any thread may unmap.
unsafe impl Send for MappedPages {}
// SAFETY: a shared reference gives access to nothing.
unsafe impl Sync for MappedPages {}

impl MappedPages {
    /// Takes ownership of a mapping of `len` bytes at `start`.
    ///
    /// # Safety
    ///
    /// Nothing else may unmap it, and nothing may use it after this object is dropped.
    #[must_use]
    pub unsafe fn new(start: NonNull<u8>, len: usize) -> MappedPages {
        MappedPages { start, len }
    }
}

impl Drop for MappedPages {
    fn drop(&mut self) {
        // SAFETY: by the contract of `new`, this object owns the mapping. Unmapping a whole mapping cannot fail.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

/// Host memory that owns its pages. [`HostBuffer::new`] allocates zeroed memory at the start of a page of the system, and
/// its length is a multiple of [`PAGE`].
pub type HostBuffer = HostMemory<MappedPages>;

/// Size and alignment of a UAR page, and of an adapter's pages, in bytes. The pages of the system can be larger.
pub const PAGE: usize = 4096;

/// Returns the size of the system's pages, in bytes: what it maps, protects and registers. It is at least [`PAGE`].
#[must_use]
pub fn page_size() -> usize {
    // SAFETY: asks for a number.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).unwrap_or(PAGE)
}

impl HostBuffer {
    /// Allocates at least `len` zeroed bytes.
    #[must_use]
    pub fn new(len: usize) -> HostBuffer {
        HostBuffer::try_aligned(len, PAGE).unwrap_or_else(|| {
            handle_alloc_error(Layout::from_size_align(len, PAGE).unwrap_or(Layout::new::<u8>()))
        })
    }

    /// Allocates at least `len` zeroed bytes at a multiple of `align`, which must be a power of two and at least
    /// [`PAGE`]. Returns `None` if the system is out of memory. No other memory shares the last page of the system.
    ///
    /// The system provides each page on first use.
    #[must_use]
    pub fn try_aligned(len: usize, align: usize) -> Option<HostBuffer> {
        let len = len.max(1).checked_next_multiple_of(PAGE)?;
        let mapped = len.checked_add(align.saturating_sub(PAGE))?;
        // An allocator may reuse memory and zero it by a loop, which would touch all pages.
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: new pages at an address that the system chooses.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), mapped, access, kind, -1, 0) };
        let start = NonNull::new(start.cast::<u8>()).filter(|at| at.as_ptr().cast() != libc::MAP_FAILED)?;
        // SAFETY: the mapping starts at a page boundary, and includes the bytes that the alignment may need.
        let base = unsafe { start.add(start.align_offset(align)) };
        // SAFETY: this function has created the mapping and gives it away.
        let pages = unsafe { MappedPages::new(start, mapped) };
        // SAFETY: `pages` keeps the mapping, which is handed out only by raw pointer.
        Some(unsafe { HostMemory::from_raw_parts(base, len as u64, pages) })
    }

    /// Loads the 8-byte word at `offset`, which must be aligned and in range, with acquire ordering.
    #[must_use]
    pub fn load_u64(&self, offset: usize) -> u64 {
        assert!(offset.is_multiple_of(8) && offset as u64 + 8 <= self.len);
        // SAFETY: aligned and inside the buffer, checked above.
        unsafe { AtomicU64::from_ptr(self.as_ptr().add(offset).cast()) }.load(Ordering::Acquire)
    }

    /// Stores the 8-byte word at `offset`, which must be aligned and in range, with release ordering.
    pub fn store_u64(&self, offset: usize, value: u64) {
        assert!(offset.is_multiple_of(8) && offset as u64 + 8 <= self.len);
        // SAFETY: aligned and inside the buffer, checked above.
        unsafe { AtomicU64::from_ptr(self.as_ptr().add(offset).cast()) }.store(value, Ordering::Release);
    }

    /// Loads the 4-byte word at `offset`, which must be aligned and in range, with acquire ordering.
    #[must_use]
    pub fn load_u32(&self, offset: usize) -> u32 {
        assert!(offset.is_multiple_of(4) && offset as u64 + 4 <= self.len);
        // SAFETY: aligned and inside the buffer, checked above.
        unsafe { AtomicU32::from_ptr(self.as_ptr().add(offset).cast()) }.load(Ordering::Acquire)
    }

    /// Stores the 4-byte word at `offset`, which must be aligned and in range, with release ordering.
    pub fn store_u32(&self, offset: usize, value: u32) {
        assert!(offset.is_multiple_of(4) && offset as u64 + 4 <= self.len);
        // SAFETY: aligned and inside the buffer, checked above.
        unsafe { AtomicU32::from_ptr(self.as_ptr().add(offset).cast()) }.store(value, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn field_add_keeps_carries_inside_their_field() {
        let byte_field = AtomicOp::Add { add: 1, boundary: 0x80 };
        assert_eq!(byte_field.apply(0xff, Width::Eight), Some(0));
        let whole = AtomicOp::Add { add: 1, boundary: 0 };
        assert_eq!(whole.apply(0xff, Width::Eight), Some(0x100));
        assert_eq!(whole.apply(0xffff_ffff, Width::Four), Some(0));
        let xor = AtomicOp::Add { add: 0x8000_0000_0000_0001, boundary: u64::MAX };
        assert_eq!(xor.apply(0xffff_0000_0000_0003, Width::Eight), Some(0x7fff_0000_0000_0002));
    }

    #[test]
    fn compare_uses_only_its_mask() {
        let op = AtomicOp::CompareSwap { compare: 0x0a, swap: 0xbb, compare_mask: 0x0f, swap_mask: 0xf0 };
        assert_eq!(op.apply(0x12_3a, Width::Eight), Some(0x12_ba));
        assert_eq!(op.apply(0x12_3b, Width::Eight), None);
    }

    /// Returns the number of pages of a buffer that are resident.
    fn resident_pages(buffer: &HostBuffer) -> usize {
        let mut states = vec![0u8; buffer.len() as usize / PAGE];
        // SAFETY: mapped pages, and a byte for each.
        let rc = unsafe { libc::mincore(buffer.as_ptr().cast(), buffer.len() as usize, states.as_mut_ptr()) };
        assert_eq!(rc, 0, "{}", std::io::Error::last_os_error());
        states.iter().filter(|state| **state & 1 != 0).count()
    }

    #[test]
    fn a_buffer_has_no_pages_before_their_first_use() {
        // A huge page would become resident as a whole.
        // SAFETY: only changes how the system provides pages to this process.
        unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) };
        for align in [PAGE, 1 << 21] {
            // Memory of earlier buffers must not be reused, since it would have to be zeroed.
            for _ in 0..3 {
                let buffer = HostBuffer::try_aligned(256 * PAGE, align).unwrap();
                assert!((buffer.as_ptr() as usize).is_multiple_of(align));
                assert_eq!(resident_pages(&buffer), 0);
                buffer.store_u64(7 * PAGE, 1);
                assert_eq!(resident_pages(&buffer), 1);
                buffer.write(0, &[0xff; 256 * PAGE]).unwrap();
            }
        }
    }

    #[test]
    fn atomics_on_memory_match_their_definition() {
        let buffer = HostBuffer::new(64);
        let ops = [
            AtomicOp::Add { add: 5, boundary: 0 },
            AtomicOp::Add { add: 0x8080_8080_8080_8080, boundary: 0x8080_8080_8080_8080 },
            AtomicOp::Add { add: 0xffff, boundary: u64::MAX },
            AtomicOp::CompareSwap { compare: 1, swap: 2, compare_mask: u64::MAX, swap_mask: u64::MAX },
            AtomicOp::CompareSwap { compare: 0, swap: 9, compare_mask: 0, swap_mask: u64::MAX },
            AtomicOp::CompareSwap { compare: 0, swap: 0x77, compare_mask: 0xf, swap_mask: 0xf0 },
        ];
        for width in [Width::Four, Width::Eight] {
            for op in ops {
                for start in [0u64, 1, 0xff80_ff7f_ffff_ffff] {
                    let start = if width == Width::Four { start & 0xffff_ffff } else { start };
                    buffer.store_u64(8, start);
                    assert_eq!(buffer.atomic(8, width, op), Ok(start));
                    assert_eq!(
                        buffer.load_u64(8),
                        op.apply(start, width).unwrap_or(start),
                        "{op:?} {width:?}"
                    );
                }
            }
        }
        assert_eq!(buffer.atomic(4, Width::Eight, ops[0]), Err(MemoryError::Misaligned { offset: 4 }));
        assert!(buffer.read(PAGE as u64, &mut [0]).is_err());
        assert!(buffer.write(u64::MAX, &[0]).is_err());
    }
}
