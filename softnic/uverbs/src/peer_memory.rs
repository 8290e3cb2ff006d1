//! Memory that the CPU cannot access: a client in the same process reads and writes it for the adapter.
//!
//! With a ConnectX, GPU memory is registered through a dma-buf or through a kernel module that claims the GPU's virtual
//! addresses. With the software ConnectX, a client in the process replaces that module. It can copy to and from such
//! memory, and registers a table of functions. The adapter calls them
//!
//! - for each dma-buf that a program registers, before it is mapped;
//! - for each address range that a program registers, before its pages are checked.
//!
//! The preloaded library exports [`rushmem_uverbs_register_peer_memory`]; a program that may or may not run on the
//! software ConnectX finds it with `dlsym(RTLD_DEFAULT, "rushmem_uverbs_register_peer_memory")`. The interface in C:
//!
//! ```c
//! struct rushmem_peer_memory {
//!     uint32_t version;          /* 1 */
//!     uint32_t size;             /* of this struct */
//!     void *client;              /* first argument of every call */
//!     /* A handle for the range if it is the client's, else NULL. */
//!     void *(*claim_range)(void *client, uint64_t address, uint64_t length);
//!     void *(*claim_dma_buf)(void *client, int fd, uint64_t offset, uint64_t length);
//!     /* The range is no longer registered. */
//!     void (*release)(void *client, void *range);
//!     /* These return 0, or a code that the error reports. Offsets are within the range. */
//!     int (*read)(void *client, void *range, uint64_t offset, void *to, uint64_t length);
//!     int (*write)(void *client, void *range, uint64_t offset, const void *from, uint64_t length);
//!     int (*atomic)(void *client, void *range, uint64_t offset, const struct rushmem_peer_atomic *op, uint64_t *old);
//!     int (*flush)(void *client, void *range);   /* earlier writes are visible when it returns */
//! };
//! struct rushmem_peer_atomic {
//!     uint32_t kind;             /* 0 add, 1 compare and swap */
//!     uint32_t bytes;            /* 4 or 8 */
//!     uint64_t operand[4];       /* add: addend, field boundaries; swap: compare, swap, compare mask, swap mask */
//! };
//! int rushmem_uverbs_register_peer_memory(const struct rushmem_peer_memory *table);   /* 0 or an errno */
//! ```
//!
//! Calls come from any thread, and must not wait for the adapter. A client stays registered for the life of the
//! process.

use rushmem_softnic::{AtomicOp, Memory, MemoryError, Width};
use std::ffi::c_void;
use std::os::fd::RawFd;
use std::ptr::NonNull;
use std::sync::{Arc, PoisonError, RwLock};

/// Supported version of [`PeerMemory`].
pub const VERSION: u32 = 1;

/// Atomic operation that a client must execute on its memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct PeerAtomic {
    /// 0 for an add, 1 for a compare and swap.
    pub kind: u32,
    /// Width of the operand: 4 or 8 bytes.
    pub bytes: u32,
    /// For an add: the addend and the field boundaries (a set bit is the top of a field, from which no carry
    /// propagates). For a compare and swap: the compare value, the swap value, and the masks of both.
    pub operand: [u64; 4],
}

/// Functions by which a client gives the adapter access to its memory.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct PeerMemory {
    /// Version of this structure, which must be [`VERSION`].
    pub version: u32,
    /// Length of this structure as the client knows it, in bytes.
    pub size: u32,
    /// Value that the adapter passes as the first argument of every call.
    pub client: *mut c_void,
    /// Returns a handle for the address range, given by address and length in bytes. Null means that it is not the
    /// client's memory.
    pub claim_range: unsafe extern "C" fn(*mut c_void, u64, u64) -> *mut c_void,
    /// Returns a handle for part of a dma-buf, given by its descriptor, offset and length in bytes. Null means that it
    /// is not the client's memory.
    pub claim_dma_buf: unsafe extern "C" fn(*mut c_void, RawFd, u64, u64) -> *mut c_void,
    /// Releases a handle, since the program has deregistered the range.
    pub release: unsafe extern "C" fn(*mut c_void, *mut c_void),
    /// Copies bytes out of the range, from a given offset. Returns 0, or an error code of the client.
    pub read: unsafe extern "C" fn(*mut c_void, *mut c_void, u64, *mut c_void, u64) -> i32,
    /// Copies bytes into the range, at a given offset. Returns 0, or an error code of the client.
    pub write: unsafe extern "C" fn(*mut c_void, *mut c_void, u64, *const c_void, u64) -> i32,
    /// Executes an atomic at a given offset of the range, and stores the old value. Returns 0, or an error code of the
    /// client.
    pub atomic: unsafe extern "C" fn(*mut c_void, *mut c_void, u64, *const PeerAtomic, *mut u64) -> i32,
    /// Publishes earlier writes to the range to all readers. Returns 0, or an error code of the client.
    pub flush: unsafe extern "C" fn(*mut c_void, *mut c_void) -> i32,
}

// SAFETY: the contract of registration lets any thread call the functions with the client's pointer.
unsafe impl Send for PeerMemory {}
// SAFETY: as for Send.
unsafe impl Sync for PeerMemory {}

static CLIENTS: RwLock<Vec<PeerMemory>> = RwLock::new(Vec::new());

/// Registers a client for the rest of the process. Returns 0, or `EINVAL` if the table is null or of another version.
///
/// # Safety
///
/// `table` is null or points to a [`PeerMemory`] with correct version and size. Its functions must stay callable from
/// any thread, with its `client`, for the life of the process.
pub unsafe extern "C" fn rushmem_uverbs_register_peer_memory(table: *const PeerMemory) -> i32 {
    let Some(table) = NonNull::new(table.cast_mut()) else { return libc::EINVAL };
    // SAFETY: not null; the caller promises that version and size are there.
    let (version, size) = unsafe { ((*table.as_ptr()).version, (*table.as_ptr()).size) };
    if version != VERSION || (size as usize) < size_of::<PeerMemory>() {
        return libc::EINVAL;
    }
    // SAFETY: the caller guarantees version and size.
    let table = unsafe { table.read() };
    CLIENTS.write().unwrap_or_else(PoisonError::into_inner).push(table);
    0
}

/// Returns the memory of an address range, if a client claims it.
pub(crate) fn claim_range(address: u64, len: u64) -> Option<Arc<dyn Memory>> {
    // SAFETY: the client's promise at registration.
    claim(len, |table| unsafe { (table.claim_range)(table.client, address, len) })
}

/// Returns the memory of a part of a dma-buf, if a client claims it.
pub(crate) fn claim_dma_buf(fd: RawFd, offset: u64, len: u64) -> Option<Arc<dyn Memory>> {
    // SAFETY: the client's promise at registration.
    claim(len, |table| unsafe { (table.claim_dma_buf)(table.client, fd, offset, len) })
}

fn claim(len: u64, ask: impl Fn(&PeerMemory) -> *mut c_void) -> Option<Arc<dyn Memory>> {
    // Clone to release the lock: a client may itself register memory during this call.
    let clients = CLIENTS.read().unwrap_or_else(PoisonError::into_inner).clone();
    clients.into_iter().find_map(|table| {
        let range = NonNull::new(ask(&table))?;
        Some(Arc::new(Claimed { table, range, len }) as Arc<dyn Memory>)
    })
}

/// Registered memory that a client has claimed, accessed through the client's functions.
struct Claimed {
    table: PeerMemory,
    range: NonNull<c_void>,
    len: u64,
}

// SAFETY: the contract of registration lets any thread call the functions with the client's handles.
unsafe impl Send for Claimed {}
// SAFETY: as for Send.
unsafe impl Sync for Claimed {}

impl Claimed {
    fn check(&self, offset: u64, len: u64) -> Result<(), MemoryError> {
        match offset.checked_add(len) {
            Some(end) if end <= self.len => Ok(()),
            _ => Err(MemoryError::OutOfRange { offset, len }),
        }
    }
}

fn result(code: i32) -> Result<(), MemoryError> {
    if code == 0 { Ok(()) } else { Err(MemoryError::Device(code)) }
}

impl Drop for Claimed {
    fn drop(&mut self) {
        // SAFETY: a handle that this client gave, released once.
        unsafe { (self.table.release)(self.table.client, self.range.as_ptr()) };
    }
}

// SAFETY: it has no host pointer.
unsafe impl Memory for Claimed {
    fn len(&self) -> u64 {
        self.len
    }

    fn host_ptr(&self) -> Option<NonNull<u8>> {
        None
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<(), MemoryError> {
        self.check(offset, buf.len() as u64)?;
        let (to, len) = (buf.as_mut_ptr().cast(), buf.len() as u64);
        // SAFETY: a handle of this client, inside of its range, and a buffer of that length.
        result(unsafe { (self.table.read)(self.table.client, self.range.as_ptr(), offset, to, len) })
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), MemoryError> {
        self.check(offset, data.len() as u64)?;
        let (from, len) = (data.as_ptr().cast(), data.len() as u64);
        // SAFETY: as for `read`.
        result(unsafe { (self.table.write)(self.table.client, self.range.as_ptr(), offset, from, len) })
    }

    fn atomic(&self, offset: u64, width: Width, op: AtomicOp) -> Result<u64, MemoryError> {
        self.check(offset, width.bytes())?;
        if !offset.is_multiple_of(width.bytes()) {
            return Err(MemoryError::Misaligned { offset });
        }
        let bytes = width.bytes() as u32;
        let op = match op {
            AtomicOp::Add { add, boundary } => PeerAtomic { kind: 0, bytes, operand: [add, boundary, 0, 0] },
            AtomicOp::CompareSwap { compare, swap, compare_mask, swap_mask } => {
                PeerAtomic { kind: 1, bytes, operand: [compare, swap, compare_mask, swap_mask] }
            }
        };
        let mut old = 0;
        let (client, range) = (self.table.client, self.range.as_ptr());
        // SAFETY: a handle of this client, an aligned operand inside of its range, and live local variables.
        result(unsafe { (self.table.atomic)(client, range, offset, &raw const op, &raw mut old) })?;
        Ok(old)
    }

    fn flush(&self) -> Result<(), MemoryError> {
        // SAFETY: a handle of this client.
        result(unsafe { (self.table.flush)(self.table.client, self.range.as_ptr()) })
    }
}

#[cfg(test)]
mod tests;
