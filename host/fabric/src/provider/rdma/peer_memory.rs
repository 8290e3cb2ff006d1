//! Access to GPU memory for a software ConnectX that poses as an RDMA device of libibverbs.
//!
//! Such a device cannot access GPU memory, so this process copies on its behalf. The device's library exports
//! `rushmem_uverbs_register_peer_memory`, with which this module registers a table of functions. While `memory`
//! registers GPU memory with the device, it [`offer`]s the memory, and the device claims it. With a real NIC the
//! exported function does not exist, and this module does nothing.
#![allow(unsafe_code, reason = "exchanges C functions and pointers with the software RDMA device")]

use std::ffi::{c_int, c_void};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use rushmem_base::lock;
use rushmem_cuda::DeviceBuffer;
use rushmem_error::errno_text;
use rushmem_machine::Region;
use rushmem_softnic::{AtomicOp, Memory, MemoryError, Width};

/// Functions through which the software RDMA device accesses GPU memory. Layout of `struct rushmem_peer_memory`.
#[repr(C)]
struct Table {
    version: u32,
    size: u32,
    client: *mut c_void,
    claim_range: unsafe extern "C" fn(*mut c_void, u64, u64) -> *mut c_void,
    claim_dma_buf: unsafe extern "C" fn(*mut c_void, c_int, u64, u64) -> *mut c_void,
    release: unsafe extern "C" fn(*mut c_void, *mut c_void),
    read: unsafe extern "C" fn(*mut c_void, *mut c_void, u64, *mut c_void, u64) -> c_int,
    write: unsafe extern "C" fn(*mut c_void, *mut c_void, u64, *const c_void, u64) -> c_int,
    atomic: unsafe extern "C" fn(*mut c_void, *mut c_void, u64, *const Atomic, *mut u64) -> c_int,
    flush: unsafe extern "C" fn(*mut c_void, *mut c_void) -> c_int,
}

/// An atomic operation on GPU memory, as requested by the software RDMA device. Layout of `struct rushmem_peer_atomic`.
#[repr(C)]
struct Atomic {
    kind: u32,
    bytes: u32,
    operand: [u64; 4],
}

const VERSION: u32 = 1;

struct Offered {
    number: u64,
    address: u64,
    fd: Option<c_int>,
    memory: Arc<dyn Memory>,
}

#[derive(Default)]
struct Offers {
    next: u64,
    list: Vec<Offered>,
}

static OFFERS: Mutex<Offers> = Mutex::new(Offers { next: 0, list: Vec::new() });

fn offers() -> MutexGuard<'static, Offers> {
    lock(&OFFERS)
}

/// An offer of GPU memory to the software RDMA device, withdrawn on drop. Claims made before that stay valid.
pub(super) struct Offer(u64);

/// Offers GPU memory to the software RDMA device, by address and, if there is one, by dma-buf. Returns `None` if there
/// is no such device.
pub(super) fn offer(region: &Region, buffer: &DeviceBuffer, fd: Option<&OwnedFd>) -> Option<Offer> {
    register_table()
        .then(|| add_offer(buffer.address(), fd.map(AsRawFd::as_raw_fd), Arc::clone(&region.memory)))
}

fn add_offer(address: u64, fd: Option<c_int>, memory: Arc<dyn Memory>) -> Offer {
    let mut offers = offers();
    let number = offers.next;
    offers.next += 1;
    offers.list.push(Offered { number, address, fd, memory });
    Offer(number)
}

impl Drop for Offer {
    fn drop(&mut self) {
        offers().list.retain(|offered| offered.number != self.0);
    }
}

/// Registers the table of functions with the software RDMA device, once per process. Returns whether there is such a
/// device and it accepted the table.
fn register_table() -> bool {
    static DONE: OnceLock<bool> = OnceLock::new();
    *DONE.get_or_init(|| {
        let name = c"rushmem_uverbs_register_peer_memory";
        // SAFETY: the call searches all loaded libraries for a C string.
        let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
        if found.is_null() {
            return false;
        }
        // SAFETY: only the software device exports this name, with this type.
        let register: unsafe extern "C" fn(*const Table) -> c_int = unsafe { std::mem::transmute(found) };
        let table = Table {
            version: VERSION,
            size: size_of::<Table>() as u32,
            client: std::ptr::null_mut(),
            claim_range,
            claim_dma_buf,
            release,
            read,
            write,
            atomic,
            flush,
        };
        // SAFETY: the table is live and has this size and version. Any thread may call its functions.
        let errno = unsafe { register(&table) };
        if errno != 0 {
            tracing::warn!("the software RDMA device cannot reach GPU memory: {}", errno_text(errno));
        }
        errno == 0
    })
}

/// A range of offered GPU memory that the software RDMA device has claimed.
struct Claim {
    memory: Arc<dyn Memory>,
    base: u64,
}

/// Claims `len` bytes of offered memory. `find` returns the offset of the first byte in an offer, if the offer matches.
///
/// Returns null if no offer matches.
fn claim(find: impl Fn(&Offered) -> Option<u64>, len: u64) -> *mut c_void {
    let range = |offered: &Offered| {
        let base = find(offered)?;
        let fits = base.checked_add(len)? <= offered.memory.len();
        fits.then(|| Claim { memory: Arc::clone(&offered.memory), base })
    };
    match offers().list.iter().find_map(range) {
        Some(claim) => Box::into_raw(Box::new(claim)).cast(),
        None => std::ptr::null_mut(),
    }
}

unsafe extern "C" fn claim_range(_: *mut c_void, address: u64, len: u64) -> *mut c_void {
    claim(|offered| address.checked_sub(offered.address), len)
}

unsafe extern "C" fn claim_dma_buf(_: *mut c_void, fd: c_int, offset: u64, len: u64) -> *mut c_void {
    claim(|offered| (offered.fd == Some(fd)).then_some(offset), len)
}

unsafe extern "C" fn release(_: *mut c_void, range: *mut c_void) {
    // SAFETY: `claim` made the handle, and the device releases it once.
    drop(unsafe { Box::from_raw(range.cast::<Claim>()) });
}

/// Returns the claim that `range` points to.
///
/// # Safety
/// `range` must come from [`claim`], and the device must not have released it.
unsafe fn claimed<'a>(range: *mut c_void) -> &'a Claim {
    // SAFETY: the caller guarantees a live handle.
    unsafe { &*range.cast::<Claim>() }
}

/// Converts a result to an errno value, 0 for success.
fn code(result: Result<(), MemoryError>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(MemoryError::Device(code)) if code != 0 => code,
        Err(_) => libc::EFAULT,
    }
}

unsafe extern "C" fn read(
    _: *mut c_void,
    range: *mut c_void,
    offset: u64,
    to: *mut c_void,
    len: u64,
) -> c_int {
    // SAFETY: the device passes a live handle, and a buffer of this length.
    let (claim, to) =
        unsafe { (claimed(range), std::slice::from_raw_parts_mut(to.cast::<u8>(), len as usize)) };
    code(claim.memory.read(claim.base + offset, to))
}

unsafe extern "C" fn write(
    _: *mut c_void,
    range: *mut c_void,
    offset: u64,
    from: *const c_void,
    len: u64,
) -> c_int {
    // SAFETY: the device passes a live handle, and a buffer of this length.
    let (claim, from) =
        unsafe { (claimed(range), std::slice::from_raw_parts(from.cast::<u8>(), len as usize)) };
    code(claim.memory.write(claim.base + offset, from))
}

unsafe extern "C" fn atomic(
    _: *mut c_void,
    range: *mut c_void,
    offset: u64,
    operation: *const Atomic,
    old: *mut u64,
) -> c_int {
    // SAFETY: the device passes a live handle, a live operation, and a live word for the old value.
    let (claim, operation, old) = unsafe { (claimed(range), &*operation, &mut *old) };
    let [a, b, c, d] = operation.operand;
    let op = match operation.kind {
        0 => AtomicOp::Add { add: a, boundary: b },
        1 => AtomicOp::CompareSwap { compare: a, swap: b, compare_mask: c, swap_mask: d },
        _ => return libc::EINVAL,
    };
    let width = match operation.bytes {
        4 => Width::Four,
        8 => Width::Eight,
        _ => return libc::EINVAL,
    };
    code(claim.memory.atomic(claim.base + offset, width, op).map(|value| *old = value))
}

unsafe extern "C" fn flush(_: *mut c_void, range: *mut c_void) -> c_int {
    // SAFETY: the device passes a live handle.
    code(unsafe { claimed(range) }.memory.flush())
}

#[cfg(test)]
mod tests {
    use rushmem_softnic::HostBuffer;

    use super::*;

    #[test]
    fn claims_offered_memory_by_address_and_by_dma_buf() {
        let none = std::ptr::null_mut();
        let memory: Arc<dyn Memory> = Arc::new(HostBuffer::new(4096));
        let offer = add_offer(0x7000_0000, Some(77), Arc::clone(&memory));
        // SAFETY: the handles are live, the buffers have these lengths, and each claim is released once.
        unsafe {
            assert!(claim_range(none, 0x6fff_ffff, 8).is_null());
            assert!(claim_range(none, 0x7000_0ff9, 8).is_null());
            assert!(claim_dma_buf(none, 78, 0, 8).is_null());
            assert!(claim_dma_buf(none, 77, 4096, 8).is_null());
            let range = claim_range(none, 0x7000_0010, 64);
            let part = claim_dma_buf(none, 77, 0x20, 64);
            drop(offer);
            assert!(claim_range(none, 0x7000_0010, 64).is_null(), "the offer is over");

            let sent = 5u64;
            assert_eq!(write(none, range, 0x10, (&raw const sent).cast(), 8), 0);
            let (mut got, mut old) = (0u64, 0u64);
            assert_eq!(read(none, part, 0, (&raw mut got).cast(), 8), 0);
            assert_eq!(got, 5);
            let add = Atomic { kind: 0, bytes: 8, operand: [2, 0, 0, 0] };
            assert_eq!(atomic(none, part, 0, &add, &mut old), 0);
            let swap = Atomic { kind: 1, bytes: 8, operand: [7, 9, !0, !0] };
            assert_eq!((atomic(none, part, 0, &swap, &mut got), old, got), (0, 5, 7));
            assert_eq!(atomic(none, part, 0, &Atomic { kind: 2, ..add }, &mut old), libc::EINVAL);
            assert_eq!(flush(none, part), 0);
            assert_ne!(read(none, range, 4096, (&raw mut got).cast(), 8), 0);
            release(none, range);
            release(none, part);
        }
        let mut word = [0; 8];
        memory.read(0x20, &mut word).unwrap();
        assert_eq!(u64::from_le_bytes(word), 9);
    }
}
