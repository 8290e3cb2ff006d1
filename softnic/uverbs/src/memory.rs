//! Memory that programs register: their own, that of dma-bufs, and that of peer memory clients.

use crate::errno::Errno;
use crate::peer_memory;
use rushmem_softnic::{AtomicOp, HostMemory, Memory, MemoryError, PAGE, Width};
use std::os::fd::RawFd;
use std::ptr::NonNull;
use std::sync::Arc;

/// Memory, and where in it the registered bytes begin.
pub(crate) struct Region {
    pub(crate) memory: Arc<dyn Memory>,
    pub(crate) offset: u64,
}

/// `len` bytes of the program at address `start`, which are faulted in as pinning would; `write` where the adapter
/// may write there. Gives `EFAULT` where they are not mapped, or not with these rights.
///
/// The program keeps them mapped until it has given them back, as it must with hardware, where they would stay pinned.
pub(crate) fn user(start: u64, len: u64, write: bool) -> Result<Region, Errno> {
    if len == 0 {
        return Err(Errno::EINVAL);
    }
    start.checked_add(len).ok_or(Errno::EINVAL)?;
    if let Some(memory) = peer_memory::claim_range(start, len) {
        return Ok(Region { memory, offset: 0 });
    }
    let base = NonNull::new(start as *mut u8).ok_or(Errno::EFAULT)?;
    populate(start, len, write)?;
    // SAFETY: the range is mapped (populated above), and stays so until it is given back, as the program has promised
    // by registering it. It is not memory that Rust code of this library refers to.
    let memory = unsafe { HostMemory::new(base, len) };
    Ok(Region { memory: Arc::new(memory), offset: 0 })
}

/// Makes the system map all pages of a range, or tell why it does not.
fn populate(start: u64, len: u64, write: bool) -> Result<(), Errno> {
    let page = PAGE as u64;
    let first = start & !(page - 1);
    let end = (start + len).checked_next_multiple_of(page).ok_or(Errno::EFAULT)?;
    let advice = if write { libc::MADV_POPULATE_WRITE } else { libc::MADV_POPULATE_READ };
    // SAFETY: populating changes no contents; the kernel checks the range.
    match unsafe { libc::madvise(first as *mut _, (end - first) as usize, advice) } {
        0 => Ok(()),
        _ if Errno::last() == Errno::EINVAL => resident_or_not(first, end - first),
        _ => Err(Errno::EFAULT),
    }
}

/// For systems and mappings that do not know the advice: only whether the range is mapped.
fn resident_or_not(first: u64, len: u64) -> Result<(), Errno> {
    /// Pages asked about at a time.
    const PAGES: usize = 4096;
    let mut resident = [0u8; PAGES];
    let step = (PAGES * PAGE) as u64;
    let mut done = 0;
    while done < len {
        let now = step.min(len - done);
        // SAFETY: `resident` has a byte for each of at most `PAGES` pages; the kernel checks the range.
        let rc = unsafe { libc::mincore((first + done) as *mut _, now as usize, resident.as_mut_ptr()) };
        if rc != 0 {
            return Err(Errno::EFAULT);
        }
        done += now;
    }
    Ok(())
}

/// `len` bytes of a dma-buf from `offset`: mapped where it can be, else from a peer memory client.
pub(crate) fn dma_buf(fd: RawFd, offset: u64, len: u64) -> Result<Region, Errno> {
    if len == 0 {
        return Err(Errno::EINVAL);
    }
    let end = offset.checked_add(len).ok_or(Errno::EINVAL)?;
    if let Some(memory) = peer_memory::claim_dma_buf(fd, offset, len) {
        return Ok(Region { memory, offset: 0 });
    }
    // SAFETY: asks for the end of the file; the position of a dma-buf has no other use.
    let size = unsafe { libc::lseek(fd, 0, libc::SEEK_END) };
    let Ok(size) = u64::try_from(size) else { return Err(Errno::EOPNOTSUPP) };
    if end > size {
        return Err(Errno::EINVAL);
    }
    let first = offset & !(PAGE as u64 - 1);
    match Mapping::new(fd, first, (end - first).next_multiple_of(PAGE as u64)) {
        Ok(mapping) => Ok(Region { memory: Arc::new(mapping), offset: offset - first }),
        Err(error) => {
            tracing::debug!(fd, ?error, "the dma-buf cannot be mapped, and no peer memory client claims it");
            Err(Errno::EOPNOTSUPP)
        }
    }
}

/// Part of a file, mapped and shared.
pub(crate) struct Mapping {
    memory: HostMemory,
    base: NonNull<u8>,
}

// SAFETY: an address range that any thread may access; see `HostMemory`.
unsafe impl Send for Mapping {}
// SAFETY: as for Send.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `len` bytes of a file from `offset`, both multiples of a page.
    pub(crate) fn new(fd: RawFd, offset: u64, len: u64) -> Result<Mapping, Errno> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let (size, offset) = (len as usize, libc::off_t::try_from(offset).map_err(|_| Errno::EINVAL)?);
        // SAFETY: a new mapping at an address that the system chooses touches nothing that exists.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), size, protection, libc::MAP_SHARED, fd, offset) };
        if at == libc::MAP_FAILED {
            return Err(Errno::last());
        }
        let base = NonNull::new(at.cast()).ok_or(Errno::ENOMEM)?;
        // SAFETY: the mapping lives until `drop`, and is handed out by raw pointer only.
        Ok(Mapping { memory: unsafe { HostMemory::new(base, len) }, base })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: exactly what `new` has mapped; whoever used it held this object.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.memory.len() as usize) };
    }
}

// SAFETY: the mapping lives as long as the object, at one address, and only raw pointers to it are handed out.
unsafe impl Memory for Mapping {
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
    fn what_is_not_mapped_is_refused() {
        let buffer = rushmem_softnic::HostBuffer::new(3 * PAGE);
        let at = buffer.as_ptr() as u64;
        assert!(user(at + 10, 2 * PAGE as u64, true).is_ok());
        assert!(matches!(user(at, 0, true), Err(Errno::EINVAL)));
        assert!(matches!(user(u64::MAX - 10, 100, true), Err(Errno::EINVAL)));
        assert!(matches!(user(0, 100, false), Err(Errno::EFAULT)));
        assert!(matches!(user(0x1000, 100, false), Err(Errno::EFAULT)));
        let text = "constant";
        assert!(user(text.as_ptr() as u64, 8, false).is_ok());
        assert!(matches!(user(text.as_ptr() as u64, 8, true), Err(Errno::EFAULT)));
        assert_eq!(resident_or_not(at & !(PAGE as u64 - 1), PAGE as u64), Ok(()));
        assert_eq!(resident_or_not(0x1000, PAGE as u64), Err(Errno::EFAULT));
    }
}
