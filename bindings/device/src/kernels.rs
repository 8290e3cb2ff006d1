//! Kernels of the conformance suite in Rust: what those of single calls do besides the call, and loops whose latency is
//! measured beside that of other languages.
#![allow(unsafe_code, reason = "trusts the context and the memory that the launch passes")]

use rushmem_device::abi::DevAddr;
use rushmem_device::{Block, Ctx, Group, Result, Sym, Thread, arch};

/// Stores the calling thread's result.
///
/// # Safety
/// `out` is the address of a word for each thread of the block.
#[inline(always)]
pub(crate) unsafe fn store(out: u64, result: i64) {
    let words = out as *mut i64;
    // SAFETY: the thread's own word, by this function's contract.
    unsafe { words.add(arch::thread() as usize).write(result) }
}

/// Runs `round` `rounds` times, and stores the sum of its values. `word` is the address of a symmetric word.
///
/// # Safety
/// `ctx` is the address of this PE's context, and `out` as for [`store`].
#[inline(always)]
unsafe fn repeat(
    ctx: u64,
    word: u64,
    rounds: i32,
    out: u64,
    round: impl Fn(&Ctx<'_>, Sym<u64>) -> Result<u64>,
) {
    // SAFETY: the address of this PE's context, by this function's contract.
    let Ok(ctx) = (unsafe { Ctx::resident(DevAddr(ctx)) }) else { return };
    let Some(offset) = ctx.offset_of(word, 1024) else { return };
    // SAFETY: an aligned word in symmetric memory, and any bytes are a `u64`.
    let word = unsafe { Sym::from_raw(offset) };
    let mut sum = 0;
    for _ in 0..rounds {
        let Ok(value) = round(&ctx, word) else { return };
        sum += value as i64;
    }
    // SAFETY: by this function's contract.
    unsafe { store(out, sum) }
}

macro_rules! loops {
    ($($name:ident = |$ctx:ident, $word:ident, $pe:ident| $round:expr;)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "ptx-kernel" fn $name(ctx: u64, word: u64, $pe: i32, rounds: i32, out: u64) {
            let $pe = $pe as u32;
            // SAFETY: the launch passes the address of this PE's context, and a word for each thread of the block.
            unsafe { repeat(ctx, word, rounds, out, |$ctx, $word| $round) }
        }
    )*};
}
loops! {
    loop_my_pe = |ctx, _word, _pe| Ok(arch::opaque(u64::from(ctx.my_pe())));
    loop_fetch_add = |ctx, word, pe| ctx.atomic_fetch_add(word, 1, pe);
    loop_fetch_add_block = |ctx, word, pe| {
        let block = Block::current();
        block.sync();
        block.leader_result(|| ctx.atomic_fetch_add(word, 1, pe))
    };
    loop_g = |ctx, word, pe| ctx.g(word, pe);
    loop_p_quiet = |ctx, word, pe| ctx.p(word, 1, pe).and_then(|()| ctx.quiet(Thread)).map(|()| 0);
    loop_p_quiet_block = |ctx, word, pe| ctx.p(word, 1, pe).and_then(|()| ctx.quiet(Block::current())).map(|()| 0);
    loop_put_quiet = |ctx, word, pe| {
        // SAFETY: the launch passes 1 KiB of symmetric memory, and any bytes are a `u64`.
        let words = unsafe { rushmem_device::SymSlice::<u64>::from_raw(word.offset(), 128) };
        let block = Block::current();
        ctx.put_nbi(block, words, words, pe).and_then(|()| ctx.quiet(block)).map(|()| 0)
    };
    loop_barrier_all = |ctx, _word, _pe| ctx.barrier_all(Block::current()).map(|()| 0);
}
