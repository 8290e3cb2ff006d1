//! Kernels for tests and measurements: experts that multiply their rows, a plain copy, and a time stamp.

use rushmem_device::Bf16;
use rushmem_device::arch::now_ns;
use rushmem_device::prelude::*;

use crate::buffers::{Buffers, Exchange, Table, get, put, put_remote};
use crate::numbers::{SCALED, dequantized};
use crate::warp::{LANES, copy_row, each_row, lane, warp_of_grid};

/// Computes stand-ins for expert networks: expert `e` multiplies its rows by `1 + e % 8` and rounds them to bf16. Each
/// warp processes whole rows.
#[kernel(max_threads = 512)]
pub fn ep_experts(ctx: &Ctx, buffers: Buffers, results: SymSlice<u128>) -> Result {
    let x = Exchange::new(ctx, &buffers);
    let (numbers, scales) = (ctx.local(buffers.rows.cast::<u8>()), ctx.local(buffers.rows.cast::<f32>()));
    let (elements, results) = (ctx.local(buffers.rows.cast::<u16>()), ctx.local(results.cast::<u16>()));
    let (bytes, hidden) = (buffers.row_chunks as usize * 16, buffers.hidden as usize);
    each_row(x, |word, row| {
        let (local, _) = x.expert_and_source(word);
        let factor = (1 + (ctx.my_pe() * buffers.local_experts + local) % 8) as f32;
        let row = (x.table(Table::From, word) + row) as usize;
        let mut i = lane() as usize;
        while i < hidden {
            let element = if buffers.quantizes != 0 {
                let scale = get(scales, (row * bytes + hidden) / 4 + i / SCALED as usize);
                dequantized(get(numbers, row * bytes + i), scale)
            } else {
                Bf16(get(elements, row * hidden + i))
            };
            put(results, row * hidden + i, Bf16::from_f32(element.to_f32() * factor).0);
            i += LANES as usize;
        }
    });
    Ok(())
}

/// Copies an equal share of `src` to `dst` on each PE: the yardstick for a dispatch of as many bytes. The shares of PEs
/// that are not P2P peers are copied to this PE.
#[kernel(max_threads = 512)]
pub fn ep_copy(ctx: &Ctx, dst: SymSlice<u128>, src: SymSlice<u128>) -> Result {
    const PART: usize = 8 * LANES as usize;
    let from = ctx.local(src);
    let (len, (first, step)) = (from.len().min(dst.len()), warp_of_grid());
    let mut part = first as usize;
    while part * PART < len {
        let at = part * PART;
        // For each part, PEs write to different PEs, so no two write the same memory.
        let pe = (ctx.my_pe() + part as u32).checked_rem(ctx.n_pes()).unwrap_or(0);
        let Some(to) = ctx.ptr(dst, pe).or_else(|| ctx.ptr(dst, ctx.my_pe())) else {
            return Err(Error::OutOfRange);
        };
        copy_row(PART.min(len - at), |i| get(from, at + i), |i, chunk| put_remote(to, at + i, chunk));
        part += step as usize;
    }
    Ok(())
}

/// Stores the current time in element `index` of `times`, in nanoseconds.
#[kernel]
pub fn ep_stamp(ctx: &Ctx, times: SymSlice<u64>, index: u64) {
    if Thread::index() == 0 {
        ctx.local(times).store(index as usize, now_ns());
    }
}
