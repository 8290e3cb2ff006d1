use super::*;
use crate::errno::Errno;
use rushmem_softnic::HostBuffer;
use std::sync::Mutex;

/// A client that serves a buffer at unmapped addresses.
struct Client {
    buffer: HostBuffer,
    log: Mutex<Vec<String>>,
}

const BASE: u64 = 0x7000_0000_0000_0000;
const SIZE: u64 = 4096;
/// The client's only "dma-buf": a descriptor that every process has.
const FD: RawFd = libc::STDERR_FILENO;

fn client<'a>(client: *mut c_void) -> &'a Client {
    // SAFETY: the pointer that `table` was given, to a client that is never freed.
    unsafe { &*client.cast::<Client>() }
}

fn note(at: *mut c_void, what: String) {
    client(at).log.lock().unwrap().push(what);
}

unsafe extern "C" fn claim_range(at: *mut c_void, address: u64, len: u64) -> *mut c_void {
    let inside = address >= BASE && address + len <= BASE + SIZE;
    note(at, format!("range {inside}"));
    // A handle is the offset plus 1.
    if inside { (1 + address - BASE) as *mut c_void } else { std::ptr::null_mut() }
}

unsafe extern "C" fn claim_dma_buf(at: *mut c_void, fd: RawFd, offset: u64, _: u64) -> *mut c_void {
    note(at, format!("dma-buf {fd}"));
    if fd == FD { (1 + offset) as *mut c_void } else { std::ptr::null_mut() }
}

unsafe extern "C" fn release(at: *mut c_void, range: *mut c_void) {
    note(at, format!("release {}", range as u64));
}

unsafe extern "C" fn read(
    at: *mut c_void,
    range: *mut c_void,
    offset: u64,
    to: *mut c_void,
    len: u64,
) -> i32 {
    let mut bytes = vec![0; len as usize];
    client(at).buffer.read(range as u64 - 1 + offset, &mut bytes).unwrap();
    // SAFETY: the caller's buffer has `len` bytes.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to.cast(), bytes.len()) };
    0
}

unsafe extern "C" fn write(
    at: *mut c_void,
    range: *mut c_void,
    offset: u64,
    from: *const c_void,
    len: u64,
) -> i32 {
    // SAFETY: the caller's data has `len` bytes.
    let bytes = unsafe { std::slice::from_raw_parts(from.cast(), len as usize) };
    client(at).buffer.write(range as u64 - 1 + offset, bytes).unwrap();
    if bytes == [0xee] { 700 } else { 0 }
}

unsafe extern "C" fn atomic(
    at: *mut c_void,
    range: *mut c_void,
    offset: u64,
    op: *const PeerAtomic,
    old: *mut u64,
) -> i32 {
    // SAFETY: both point at variables of the caller.
    let op = unsafe { *op };
    let width = if op.bytes == 4 { Width::Four } else { Width::Eight };
    let [a, b, c, d] = op.operand;
    let op = match op.kind {
        0 => AtomicOp::Add { add: a, boundary: b },
        _ => AtomicOp::CompareSwap { compare: a, swap: b, compare_mask: c, swap_mask: d },
    };
    let value = client(at).buffer.atomic(range as u64 - 1 + offset, width, op).unwrap();
    // SAFETY: as above.
    unsafe { *old = value };
    0
}

unsafe extern "C" fn flush(at: *mut c_void, _: *mut c_void) -> i32 {
    note(at, "flush".into());
    0
}

#[test]
fn a_client_serves_its_claimed_memory() {
    let client =
        Box::leak(Box::new(Client { buffer: HostBuffer::new(SIZE as usize), log: Mutex::default() }));
    let mut table = PeerMemory {
        version: VERSION,
        size: size_of::<PeerMemory>() as u32,
        client: (&raw mut *client).cast(),
        claim_range,
        claim_dma_buf,
        release,
        read,
        write,
        atomic,
        flush,
    };
    table.version = 2;
    // SAFETY: null, or a valid table.
    unsafe {
        assert_eq!(rushmem_uverbs_register_peer_memory(std::ptr::null()), libc::EINVAL);
        assert_eq!(rushmem_uverbs_register_peer_memory(&raw const table), libc::EINVAL);
        table.version = VERSION;
        assert_eq!(rushmem_uverbs_register_peer_memory(&raw const table), 0);
    }

    let region = crate::memory::user(BASE + 16, 64, true).unwrap();
    let memory = region.memory;
    assert_eq!((memory.len(), memory.host_ptr()), (64, None));
    memory.write(8, &[1, 2, 3, 4]).unwrap();
    assert_eq!(client.buffer.load_u64(24), 0x0403_0201);
    let mut back = [0; 4];
    memory.read(8, &mut back).unwrap();
    assert_eq!(back, [1, 2, 3, 4]);
    assert_eq!(memory.atomic(8, Width::Four, AtomicOp::Add { add: 1, boundary: 0 }), Ok(0x0403_0201));
    let swap =
        AtomicOp::CompareSwap { compare: 0x0403_0202, swap: 9, compare_mask: u64::MAX, swap_mask: 0xff };
    assert_eq!(memory.atomic(8, Width::Eight, swap), Ok(0x0403_0202));
    assert_eq!(client.buffer.load_u64(24), 0x0403_0209);
    memory.flush().unwrap();
    assert_eq!(memory.write(0, &[0xee]), Err(MemoryError::Device(700)));
    assert_eq!(memory.write(64, &[0]), Err(MemoryError::OutOfRange { offset: 64, len: 1 }));
    assert_eq!(
        memory.atomic(4, Width::Eight, swap),
        Err(MemoryError::Misaligned { offset: 4 }),
        "alignment is within the range"
    );
    drop(memory);

    let buffer = crate::memory::dma_buf(FD, 32, 8, None).unwrap();
    buffer.memory.write(0, &[7]).unwrap();
    assert_eq!(client.buffer.load_u64(32), 7);
    drop(buffer);
    assert!(matches!(crate::memory::dma_buf(-78, 0, 8, None), Err(Errno::EBADF)), "no client is asked");

    let log = client.log.lock().unwrap();
    let wanted = ["range true", "flush", "release 17", "dma-buf 2", "release 33"];
    let ours: Vec<_> = log.iter().filter(|line| *line != "range false").collect();
    assert_eq!(ours, wanted);
}
