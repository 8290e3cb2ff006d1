//! Peer memory client for tests. Its memory is at addresses that the CPU cannot access, backed by a buffer.

use rushmem_softnic::{AtomicOp, HostBuffer, Memory, Width};
use rushmem_uverbs::peer_memory::{PeerAtomic, PeerMemory, VERSION};
use std::ffi::c_void;
use std::ptr::null_mut;

/// First address, unmapped in every process.
pub(crate) const BASE: u64 = 0x6000_0000_0000;
const SIZE: u64 = 8192;

fn buffer(client: *mut c_void) -> &'static HostBuffer {
    // SAFETY: what `register` gave as client, which is never freed.
    unsafe { &*client.cast::<HostBuffer>() }
}

/// Returns the offset that a claimed handle stands for. Handles are offset plus 1, since null means unclaimed.
fn offset(range: *mut c_void) -> u64 {
    range as u64 - 1
}

unsafe extern "C" fn claim_range(_: *mut c_void, address: u64, len: u64) -> *mut c_void {
    let inside = address >= BASE && address + len <= BASE + SIZE;
    if inside { (address - BASE + 1) as *mut c_void } else { null_mut() }
}

unsafe extern "C" fn claim_dma_buf(_: *mut c_void, _: i32, _: u64, _: u64) -> *mut c_void {
    null_mut()
}

unsafe extern "C" fn release(_: *mut c_void, _: *mut c_void) {}

unsafe extern "C" fn read(
    client: *mut c_void,
    range: *mut c_void,
    at: u64,
    to: *mut c_void,
    len: u64,
) -> i32 {
    // SAFETY: the caller's buffer has `len` bytes.
    let to = unsafe { std::slice::from_raw_parts_mut(to.cast::<u8>(), len as usize) };
    buffer(client).read(offset(range) + at, to).map_or(1, |()| 0)
}

unsafe extern "C" fn write(
    client: *mut c_void,
    range: *mut c_void,
    at: u64,
    from: *const c_void,
    len: u64,
) -> i32 {
    // SAFETY: the caller's data has `len` bytes.
    let from = unsafe { std::slice::from_raw_parts(from.cast::<u8>(), len as usize) };
    buffer(client).write(offset(range) + at, from).map_or(1, |()| 0)
}

unsafe extern "C" fn atomic(
    client: *mut c_void,
    range: *mut c_void,
    at: u64,
    op: *const PeerAtomic,
    old: *mut u64,
) -> i32 {
    // SAFETY: both point at variables of the caller.
    let (op, old) = unsafe { (*op, &mut *old) };
    let [add, boundary, ..] = op.operand;
    assert_eq!((op.kind, op.bytes), (0, 8));
    match buffer(client).atomic(offset(range) + at, Width::Eight, AtomicOp::Add { add, boundary }) {
        Ok(value) => {
            *old = value;
            0
        }
        Err(_) => 1,
    }
}

unsafe extern "C" fn flush(_: *mut c_void, _: *mut c_void) -> i32 {
    0
}

/// Registers the client with the preloaded library, found as by a program. Returns the backing buffer.
pub(crate) fn register() -> &'static HostBuffer {
    let memory: &HostBuffer = Box::leak(Box::new(HostBuffer::new(SIZE as usize)));
    let table = PeerMemory {
        version: VERSION,
        size: size_of::<PeerMemory>() as u32,
        client: (&raw const *memory).cast_mut().cast(),
        claim_range,
        claim_dma_buf,
        release,
        read,
        write,
        atomic,
        flush,
    };
    // SAFETY: a C string.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"rushmem_uverbs_register_peer_memory".as_ptr()) };
    assert!(!found.is_null(), "the library is preloaded");
    // SAFETY: the library declares it so.
    let register: unsafe extern "C" fn(*const PeerMemory) -> i32 = unsafe { std::mem::transmute(found) };
    // SAFETY: the table is valid, and its functions and client stay.
    assert_eq!(unsafe { register(&raw const table) }, 0);
    memory
}
