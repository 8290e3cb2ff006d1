//! Memory that programs register: their address space, dma-bufs, GPU memory, and memory of peer memory clients.

use crate::errno::Errno;
use crate::user::{self, OtherProcess};
use crate::{cuda, peer_memory};
use rushmem_softnic::{AtomicOp, HostMemory, MappedPages, Memory, MemoryAddr, MemoryError, Width, page_size};
use std::os::fd::RawFd;
use std::ptr::NonNull;
use std::sync::Arc;

/// Registered memory: an accessor, and the offset at which the registered range starts.
pub(crate) struct Region {
    pub(crate) memory: Arc<dyn Memory>,
    pub(crate) offset: u64,
}

/// Registers `len` bytes of the program's memory at address `start`, faulting in its pages. `write` allows the adapter
/// to write there. Fails with `EFAULT` if the range is not mapped with these rights.
///
/// The program must keep the range mapped until it deregisters it.
pub(crate) fn user(start: u64, len: u64, write: bool) -> Result<Region, Errno> {
    if len == 0 {
        return Err(Errno::EINVAL);
    }
    start.checked_add(len).ok_or(Errno::EINVAL)?;
    if let Some(memory) = peer_memory::claim_range(start, len) {
        return Ok(Region { memory, offset: 0 });
    }
    if let Some(memory) = cuda::claim(start, len)? {
        return Ok(Region { memory, offset: 0 });
    }
    if let Some(process) = user::other_process() {
        return of_process(process, start, len, write);
    }
    let base = NonNull::new(start as *mut u8).ok_or(Errno::EFAULT)?;
    let writable = populate(start, len, write)?;
    // SAFETY: the range is mapped (populated above), and stays so until it is given back, as the program has promised
    // by registering it. It is not memory that Rust code of this library refers to.
    let memory = unsafe { HostMemory::from_raw_parts(base, len, ()) };
    let memory: Arc<dyn Memory> = if writable { Arc::new(memory) } else { Arc::new(ReadOnly(memory)) };
    Ok(Region { memory, offset: 0 })
}

/// Registers memory of another process.
fn of_process(process: Arc<OtherProcess>, start: u64, len: u64, write: bool) -> Result<Region, Errno> {
    let least = if write { Protection::Write } else { Protection::Read };
    if protection(process.pid()?, start, start + len) < least {
        return Err(Errno::EFAULT);
    }
    Ok(Region { memory: Arc::new(ProcessMemory { process, start, len }), offset: 0 })
}

/// Faults in all pages of a range. Returns whether they are writable, which `write` requires.
fn populate(start: u64, len: u64, write: bool) -> Result<bool, Errno> {
    let page = page_size() as u64;
    let first = start & !(page - 1);
    let end = (start + len).checked_next_multiple_of(page).ok_or(Errno::EFAULT)?;
    let advise = |advice| {
        // SAFETY: populating changes no contents; the kernel checks the range.
        unsafe { libc::madvise(first as *mut _, (end - first) as usize, advice) == 0 }
    };
    if advise(libc::MADV_POPULATE_WRITE) {
        return Ok(true);
    }
    // The range is not mapped or not writable, or it does not support this advice.
    // SAFETY: always succeeds.
    match protection(unsafe { libc::getpid() }, first, end) {
        Protection::Write => Ok(true),
        Protection::Read if !write => {
            advise(libc::MADV_POPULATE_READ);
            Ok(false)
        }
        _ => Err(Errno::EFAULT),
    }
}

/// Access rights of mapped memory, in increasing order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Protection {
    None,
    Read,
    Write,
}

/// Returns the access rights common to all pages of a range.
fn protection(pid: libc::pid_t, first: u64, end: u64) -> Protection {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps"));
    let Ok(maps) = maps else { return Protection::None };
    let (mut at, mut least) = (first, Protection::Write);
    for line in maps.lines() {
        let Some((from, to, protection)) = mapping(line) else { continue };
        if from <= at && at < to {
            (at, least) = (to, least.min(protection));
        }
        if at >= end {
            return least;
        }
    }
    Protection::None
}

/// Parses start, end and protection of a line such as `7f00-7f10 rw-p ...`.
fn mapping(line: &str) -> Option<(u64, u64, Protection)> {
    let (range, rest) = line.split_once(' ')?;
    let (from, to) = range.split_once('-')?;
    let protection = match rest.get(..2)? {
        "rw" => Protection::Write,
        "r-" => Protection::Read,
        _ => Protection::None,
    };
    Some((u64::from_str_radix(from, 16).ok()?, u64::from_str_radix(to, 16).ok()?, protection))
}

/// Memory of another process, accessed by system calls.
struct ProcessMemory {
    process: Arc<OtherProcess>,
    start: u64,
    len: u64,
}

impl ProcessMemory {
    /// Returns the process ID and the process's address of `len` bytes from `offset`.
    fn at(&self, offset: u64, len: u64) -> Result<(libc::pid_t, u64), MemoryError> {
        let is_inside = offset.checked_add(len).is_some_and(|end| end <= self.len);
        if !is_inside {
            return Err(MemoryError::OutOfRange { offset, len });
        }
        let pid = self.process.pid().map_err(|Errno(error)| MemoryError::Device(error))?;
        Ok((pid, self.start + offset))
    }
}

// SAFETY: it has no host pointer.
unsafe impl Memory for ProcessMemory {
    fn len(&self) -> u64 {
        self.len
    }

    fn host_ptr(&self) -> Option<NonNull<u8>> {
        None
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<(), MemoryError> {
        let (pid, at) = self.at(offset, buf.len() as u64)?;
        user::read_of(pid, at, buf).map_err(|Errno(error)| MemoryError::Device(error))
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), MemoryError> {
        let (pid, at) = self.at(offset, data.len() as u64)?;
        user::write_of(pid, at, data).map_err(|Errno(error)| MemoryError::Device(error))
    }

    /// Executes an atomic by a read and a write, so it is atomic only among the QPs of the adapter, as the device
    /// reports.
    fn atomic(&self, offset: u64, width: Width, op: AtomicOp) -> Result<u64, MemoryError> {
        let len = width.bytes();
        if !offset.is_multiple_of(len) {
            return Err(MemoryError::Misaligned { offset });
        }
        let mut bytes = [0; 8];
        let word = &mut bytes[..len as usize];
        self.read(offset, word)?;
        let old = u64::from_le_bytes(bytes);
        if let Some(new) = op.apply(old, width) {
            self.write(offset, &new.to_le_bytes()[..len as usize])?;
        }
        Ok(old)
    }
}

/// Read-only memory. The adapter accesses it only through this type, never by a pointer.
struct ReadOnly(HostMemory);

// SAFETY: it has no host pointer.
unsafe impl Memory for ReadOnly {
    fn len(&self) -> u64 {
        self.0.len()
    }

    fn host_ptr(&self) -> Option<NonNull<u8>> {
        None
    }

    fn place(&self) -> Option<MemoryAddr> {
        None
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<(), MemoryError> {
        self.0.read(offset, buf)
    }

    fn write(&self, _: u64, _: &[u8]) -> Result<(), MemoryError> {
        Err(MemoryError::Device(libc::EACCES))
    }

    fn atomic(&self, _: u64, _: Width, _: AtomicOp) -> Result<u64, MemoryError> {
        Err(MemoryError::Device(libc::EACCES))
    }
}

/// Registers `len` bytes of a dma-buf from `offset`: as memory of a peer memory client that claims it, as GPU memory,
/// or mapped.
///
/// A dma-buf of GPU memory does not tell its address. Programs register it with the device address as `iova`, to use
/// the same addresses in kernels and on the NIC.
pub(crate) fn dma_buf(fd: RawFd, offset: u64, len: u64, iova: Option<u64>) -> Result<Region, Errno> {
    // Programs probe for dma-buf support with an invalid descriptor.
    // SAFETY: asks for the flags of a descriptor, whatever it is.
    if unsafe { libc::fcntl(fd, libc::F_GETFD) } < 0 {
        return Err(Errno::EBADF);
    }
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
    if let Some(iova) = iova
        && let Some(memory) = cuda::claim(iova, len)?
    {
        return Ok(Region { memory, offset: 0 });
    }
    let page = page_size() as u64;
    let first = offset & !(page - 1);
    match map(fd, first, (end - first).next_multiple_of(page)) {
        Ok(mapping) => Ok(Region { memory: Arc::new(mapping), offset: offset - first }),
        Err(error) => {
            tracing::debug!(
                fd,
                ?error,
                iova,
                "the dma-buf cannot be mapped, and iova is no address of GPU memory"
            );
            Err(Errno::EOPNOTSUPP)
        }
    }
}

/// Shared mapping of a file, as memory of the adapter.
pub(crate) type Mapping = HostMemory<MappedPages>;

/// Maps `len` bytes of a file from `offset`, both multiples of the page size.
pub(crate) fn map(fd: RawFd, offset: u64, len: u64) -> Result<Mapping, Errno> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let (size, offset) = (len as usize, libc::off_t::try_from(offset).map_err(|_| Errno::EINVAL)?);
    // SAFETY: a new mapping at an address that the system chooses touches nothing that exists.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), size, protection, libc::MAP_SHARED, fd, offset) };
    if at == libc::MAP_FAILED {
        return Err(Errno::last());
    }
    let base = NonNull::new(at.cast()).ok_or(Errno::ENOMEM)?;
    // SAFETY: this function has made the mapping and gives it away.
    let pages = unsafe { MappedPages::new(base, size) };
    // SAFETY: `pages` keeps the mapping, which is handed out by raw pointer only.
    Ok(unsafe { HostMemory::from_raw_parts(base, len, pages) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejects_unmapped_memory() {
        let size = page_size() as u64;
        let buffer = rushmem_softnic::HostBuffer::new(3 * size as usize);
        let at = buffer.as_ptr() as u64;
        assert!(user(at + 10, 2 * size, true).is_ok());
        assert!(matches!(user(at, 0, true), Err(Errno::EINVAL)));
        assert!(matches!(user(u64::MAX - 10, 100, true), Err(Errno::EINVAL)));
        assert!(matches!(user(0, 100, false), Err(Errno::EFAULT)));
        assert!(matches!(user(size, 100, false), Err(Errno::EFAULT)));
        let text = "constant";
        let constant = user(text.as_ptr() as u64, 8, false).unwrap().memory;
        let mut bytes = [0; 8];
        constant.read(0, &mut bytes).unwrap();
        assert_eq!(&bytes, b"constant");
        assert!(constant.host_ptr().is_none() && constant.write(0, &[0]).is_err());
        assert!(matches!(user(text.as_ptr() as u64, 8, true), Err(Errno::EFAULT)));
        let page = at & !(size - 1);
        let own = |first, end| protection(std::process::id() as libc::pid_t, first, end);
        assert_eq!(own(page, page + size), Protection::Write);
        assert_eq!(own(size, 2 * size), Protection::None);
    }
}
