//! Kernels for tests and measurements: experts that multiply, a copy, and a clock.

use rushmem_device::Bf16;
use rushmem_device::arch::now_ns;
use rushmem_device::prelude::*;

use crate::buffers::{Buffers, Exchange, count_of};
use crate::numbers::dequantized;
use crate::warp::{copy_chunks, each_row, lane};

/// Runs the experts: expert `e` multiplies its rows by `1 + e % 8` and rounds them to bf16. A warp takes a row.
#[kernel(max_threads = 512)]
pub fn experts(ctx: &Ctx, buffers: Buffers, results: SymSlice<u128>) -> Result {
    let x = Exchange { ctx, b: &buffers };
    let words = ctx.local(buffers.arrived);
    each_row(words, |word, row| {
        let (local, _) = x.expert_and_source(word);
        let factor = (1 + (ctx.my_pe() * buffers.local_experts + local) % 8) as f32;
        debug_assert!(row < count_of(words.load(word)));
        let row = ctx.local(buffers.from).load(word) + row;
        let from = x.rows_of(buffers.rows, row, 1);
        let (numbers, scales, words) =
            (ctx.local(from.cast::<u8>()), ctx.local(from.cast::<f32>()), ctx.local(from.cast::<u16>()));
        let to = ctx.local(x.bf16_rows_of(results, row, 1).cast::<u16>());
        let (mut i, hidden) = (lane(), buffers.hidden as usize);
        while i < hidden {
            let element = if buffers.quantizes != 0 {
                dequantized(numbers.load(i), scales.load(hidden / 4 + i / 128))
            } else {
                Bf16(words.load(i))
            };
            to.store(i, Bf16::from_f32(element.to_f32() * factor).0);
            i += 32;
        }
    });
    Ok(())
}

/// Copies `src` to `dst`: the yardstick of a dispatch of as many bytes.
#[kernel(max_threads = 512)]
pub fn copy(ctx: &Ctx, dst: SymSlice<u128>, src: SymSlice<u128>) -> Result {
    let (block, from, to) = (Block::current(), ctx.local(src), ctx.local(dst));
    let share = block.share(from.len().min(to.len()));
    let start = share.start;
    copy_chunks(block, share.len(), |i| from.load(start + i), |i, chunk| to.store(start + i, chunk));
    Ok(())
}

/// Stores the time in element `index` of `times`, in nanoseconds.
#[kernel]
pub fn stamp(ctx: &Ctx, times: SymSlice<u64>, index: u64) {
    if Thread::index() == 0 {
        ctx.local(times).store(index as usize, now_ns());
    }
}
