//! Calls the exported device functions natively, as a kernel in another language would.
#![allow(unsafe_code, reason = "calls the C ABI")]

use rushmem::{Error, Pe};
use rushmem_device::abi::SegmentTable;
use rushmem_device::prelude::{Ctx, KernelArg, kernel};
use rushmem_device::{Block, Error as Code, Group};
use rushmem_device_c as _;
use rushmem_tests::{Setup, grid};

unsafe extern "C" {
    fn rushmem_device_my_pe(ctx: u64) -> i32;
    fn rushmem_device_n_pes(ctx: u64) -> i32;
    fn rushmem_device_ptr(ctx: u64, address: u64, pe: i32) -> u64;
    fn rushmem_device_putmem_block(ctx: u64, dst: u64, src: u64, bytes: usize, pe: i32) -> i32;
    fn rushmem_device_getmem_nbi_warp(ctx: u64, dst: u64, src: u64, bytes: usize, pe: i32) -> i32;
    fn rushmem_device_putmem_signal_nbi_block(
        ctx: u64,
        dst: u64,
        src: u64,
        bytes: usize,
        signal: u64,
        value: u64,
        op: i32,
        pe: i32,
    ) -> i32;
    fn rushmem_device_signal_wait_until_block(ctx: u64, signal: u64, cmp: i32, value: u64) -> i32;
    fn rushmem_device_signal_op(ctx: u64, signal: u64, value: u64, op: i32, pe: i32) -> i32;
    fn rushmem_device_quiet_block(ctx: u64) -> i32;
    fn rushmem_device_quiet_warp(ctx: u64) -> i32;
    fn rushmem_device_barrier_all_block(ctx: u64) -> i32;
    fn rushmem_device_uint64_atomic_fetch_add(ctx: u64, word: u64, value: u64, pe: i32) -> u64;
    fn rushmem_device_uint64_atomic_fetch_add_block(ctx: u64, word: u64, value: u64, pe: i32) -> u64;
    fn rushmem_device_double_p(ctx: u64, dst: u64, value: f64, pe: i32) -> i32;
    fn rushmem_device_double_g(ctx: u64, src: u64, pe: i32) -> f64;
    fn rushmem_device_reduce_block(
        ctx: u64,
        team: u64,
        dst: u64,
        src: u64,
        bytes: usize,
        kind: i32,
        op: i32,
    ) -> i32;
}

const WORLD: u64 = 1 << 32;
const GE: i32 = 3;
const ADD: i32 = 1;
const UINT64: i32 = 6;
const SUM: i32 = 0;

/// Number of words in a PE's buffer. Each put has a separate half.
const WORDS: usize = 256;
/// Threads of a block.
const THREADS: u32 = 64;

/// Addresses on this PE, as a kernel in another language gets them.
#[repr(C)]
#[derive(Clone, Copy, KernelArg)]
struct Addresses {
    ctx: u64,
    out: u64,
    buffer: u64,
    words: u64,
    statuses: u64,
    /// A registered buffer, or 0.
    local: u64,
}

/// Stores a status for each thread, so that the host sees whether all are the same.
fn store(addresses: &Addresses, call: u32, status: i32) {
    let at = addresses.statuses as *mut i32;
    // SAFETY: the array has an element for each call and thread.
    unsafe { at.add((call * THREADS) as usize + Block::current().rank() as usize).write(status) };
}

/// Calls functions of every kind, and stores their results.
#[kernel]
fn exchange(_ctx: &Ctx, at: Addresses) {
    let Addresses { ctx, out, buffer, words, .. } = at;
    let half = (WORDS / 2 * 8) as u64;
    // SAFETY: addresses of the PE's own symmetric memory.
    unsafe {
        let (me, n) = (rushmem_device_my_pe(ctx), rushmem_device_n_pes(ctx));
        let next = (me + 1) % n;
        store(&at, 0, rushmem_device_putmem_block(ctx, buffer, out, half as usize, next));
        let sent = rushmem_device_putmem_signal_nbi_block(
            ctx,
            buffer + half,
            out,
            half as usize,
            words,
            7,
            ADD,
            next,
        );
        store(&at, 1, sent);
        store(&at, 2, rushmem_device_quiet_block(ctx));
        store(&at, 3, rushmem_device_signal_wait_until_block(ctx, words, GE, 7));
        store(&at, 4, rushmem_device_barrier_all_block(ctx));
        // Every thread adds 1, and the block once 1000.
        rushmem_device_uint64_atomic_fetch_add(ctx, words + 8, 1, next);
        let before = rushmem_device_uint64_atomic_fetch_add_block(ctx, words + 16, 1000, next);
        store(&at, 5, before as i32);
        store(&at, 6, rushmem_device_double_p(ctx, words + 24, 1.5 + f64::from(me), next));
        store(&at, 7, rushmem_device_barrier_all_block(ctx));
        store(&at, 8, rushmem_device_double_g(ctx, words + 24, next) as i32);
        let sum = rushmem_device_reduce_block(ctx, WORLD, words + 64, words + 8, 8, UINT64, SUM);
        store(&at, 9, sum);
        store(&at, 13, rushmem_device_barrier_all_block(ctx));
        let there = rushmem_device_ptr(ctx, words, next) as *const u64;
        store(&at, 10, if there.is_null() { -2 } else { there.read() as i32 });
        if Block::current().rank() < 32 {
            store(&at, 11, rushmem_device_getmem_nbi_warp(ctx, words + 128, words + 64, 8, next));
            store(&at, 12, rushmem_device_quiet_warp(ctx));
        }
    }
}

/// Makes calls with wrong arguments.
#[kernel]
fn misuse(_ctx: &Ctx, at: Addresses, which: u32) {
    let Addresses { ctx, out, buffer, words, local, .. } = at;
    // SAFETY: the functions check what they get.
    let status = unsafe {
        match which {
            0 => rushmem_device_putmem_block(ctx, 4096, out, 8, 0),
            1 => rushmem_device_putmem_block(ctx, buffer, out, 8, 77),
            2 => rushmem_device_putmem_block(ctx, buffer, out, 1 << 40, 0),
            3 => rushmem_device_signal_wait_until_block(ctx, words, 9, 0),
            4 => rushmem_device_putmem_block(ctx, local, out, 8, 0),
            5 => {
                rushmem_device_uint64_atomic_fetch_add_block(ctx, words + 4, 1, 0) as i32
                    + Code::OutOfRange as i32
            }
            6 if Block::current().leader() => rushmem_device_signal_op(ctx, words, 1, 5, 0),
            6 => Code::BadConstant as i32,
            _ => rushmem_device_signal_wait_until_block(ctx, words, GE, 1 << 40),
        }
    };
    store(&at, 0, status);
}

fn addresses(pe: &Pe) -> Result<(Addresses, [rushmem_device::SymSlice<u64>; 3]), Error> {
    let (out, buffer, words) = (pe.alloc::<u64>(WORDS / 2)?, pe.alloc::<u64>(WORDS)?, pe.alloc::<u64>(64)?);
    let statuses = pe.alloc::<u64>(16 * THREADS as usize / 2)?;
    // A call that stores no status must not look like success.
    pe.write(statuses, &[u64::MAX; 16 * THREADS as usize / 2])?;
    let at = Addresses {
        ctx: pe.resident_context()?,
        out: pe.address(out)?,
        buffer: pe.address(buffer)?,
        words: pe.address(words)?,
        statuses: pe.address(statuses)?,
        local: 0,
    };
    Ok((at, [buffer, words, statuses]))
}

/// Returns the status of each thread for a call.
fn statuses(pe: &Pe, all: rushmem_device::SymSlice<u64>, call: usize) -> Result<Vec<i32>, Error> {
    let words = pe.read(all)?;
    let each = words.iter().flat_map(|word| [*word as i32, (word >> 32) as i32]);
    Ok(each.skip(call * THREADS as usize).take(THREADS as usize).collect())
}

#[test]
fn exported_functions_move_data_and_synchronize() {
    for path in ["p2p", "nic"] {
        Setup::new(3).with("peer_path", path).run(|pe| {
            let (me, n) = (u64::from(pe.my_pe()), u64::from(pe.n_pes()));
            let previous = (me + n - 1) % n;
            let (at, [buffer, words, all]) = addresses(pe)?;
            // SAFETY: the array at this address; nothing else uses it yet.
            let out = unsafe { std::slice::from_raw_parts_mut(at.out as *mut u64, WORDS / 2) };
            let content = |pe: u64, i: usize| pe << 32 | i as u64;
            out.iter_mut().enumerate().for_each(|(i, word)| *word = content(me, i));
            pe.host_sync()?;
            pe.run(grid(1, THREADS), exchange(at))?;
            pe.host_sync()?;
            pe.check()?;
            let received: Vec<u64> = (0..WORDS).map(|i| content(previous, i % (WORDS / 2))).collect();
            assert_eq!(pe.read(buffer)?, received, "{path}");
            for call in [0, 1, 2, 3, 4, 5, 6, 7, 9, 13] {
                assert_eq!(statuses(pe, all, call)?, [0; THREADS as usize], "{path}: call {call}");
            }
            // The double that this PE stored at its successor.
            assert_eq!(statuses(pe, all, 8)?, [(1.5 + me as f64) as i32; THREADS as usize], "{path}");
            let seen = if path == "p2p" { 7 } else { -2 };
            assert_eq!(statuses(pe, all, 10)?, [seen; THREADS as usize], "{path}");
            assert_eq!(statuses(pe, all, 11)?[..32], [0; 32], "{path}");
            let words = pe.read(words)?;
            assert_eq!(words[..3], [7, u64::from(THREADS), 1000], "{path}");
            assert_eq!((words[8], words[16]), (n * u64::from(THREADS), n * u64::from(THREADS)), "{path}");
            Ok(())
        });
    }
}

#[test]
fn errors_name_the_function_and_are_the_same_in_all_threads() {
    let cases = [
        (Code::OutOfRange, "putmem_block"),
        (Code::BadPe, "putmem_block"),
        (Code::OutOfRange, "putmem_block"),
        (Code::BadConstant, "signal_wait_until_block"),
        (Code::OutOfRange, "putmem_block"),
        (Code::OutOfRange, "uint64_atomic_fetch_add_block"),
        (Code::BadConstant, "signal_op"),
        (Code::WaitTimeout, "signal_wait_until_block"),
    ];
    let setup = Setup::new(1).with("timeout", "300ms").without_sanitizer("a wait in vain");
    for (which, (code, name)) in cases.into_iter().enumerate() {
        setup.run(|pe| {
            let (at, [_, _, all]) = addresses(pe)?;
            let buffer = pe.register(vec![0_u64; 8])?;
            let at = Addresses { local: pe.address(buffer.handle())?, ..at };
            pe.run(grid(1, THREADS), misuse(at, which as u32))?;
            assert_eq!(statuses(pe, all, 0)?, [code as i32; THREADS as usize], "{name}");
            let error = pe.check().unwrap_err();
            let text = error.to_string();
            assert!(text.contains(&format!("at {name} (block 0, thread 0)")), "{text}");
            assert!(!text.contains("more)"), "{text}");
            if matches!(which, 0 | 4 | 5) {
                assert!(text.contains("an address in no symmetric memory"), "{text}");
            }
            Ok(())
        });
    }
}

#[test]
fn a_context_of_another_build_is_refused() {
    Setup::new(1).run(|pe| {
        let (at, [_, _, all]) = addresses(pe)?;
        // SAFETY: the table of this PE, which is in memory of this process.
        let mut table = unsafe { *(at.ctx as *const SegmentTable) };
        table.parts.header.layout ^= 1;
        pe.run(grid(1, THREADS), misuse(Addresses { ctx: (&raw const table) as u64, ..at }, 1))?;
        assert_eq!(statuses(pe, all, 0)?, [Code::Layout as i32; THREADS as usize]);
        assert!(matches!(pe.check(), Err(Error::Device { .. })));
        Ok(())
    });
}
