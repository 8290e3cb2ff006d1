//! Kernels for tests and measurements: experts that multiply their rows, a plain copy, and a time stamp.

use rushmem_device::Bf16;
use rushmem_device::arch::now_ns;
use rushmem_device::prelude::*;

use crate::buffers::{Buffers, Exchange, Table, get, put, put_remote};
use crate::numbers::{SCALED, dequantized};
use crate::warp::{LANES, copy_row, lane, warp_of_grid};

/// Computes stand-ins for expert networks: expert `e` multiplies its rows by `1 + e % 8` and rounds them to bf16. Each
/// warp processes whole rows.
#[kernel(max_threads = 512)]
pub fn ep_experts(ctx: &Ctx, buffers: Buffers, results: SymSlice<u128>) -> Result {
    let x = Exchange::new(ctx, &buffers);
    let (numbers, scales) = (ctx.local(buffers.rows.cast::<u8>()), ctx.local(buffers.rows.cast::<f32>()));
    let (elements, results) = (ctx.local(buffers.rows.cast::<u16>()), ctx.local(results.cast::<u16>()));
    let (bytes, hidden) = (buffers.row_chunks as usize * 16, buffers.hidden as usize);
    let index = ctx.local(buffers.index);
    each_row(x, |local, to| {
        let factor = (1 + (ctx.my_pe() * buffers.local_experts + local) % 8) as f32;
        let row = if buffers.gathers != 0 { get(index, to) as usize } else { to };
        let mut i = lane() as usize;
        while i < hidden {
            let element = if buffers.quantizes != 0 {
                let scale = get(scales, (row * bytes + hidden) / 4 + i / SCALED as usize);
                dequantized(get(numbers, row * bytes + i), scale)
            } else {
                Bf16(get(elements, row * hidden + i))
            };
            put(results, to * hidden + i, Bf16::from_f32(element.to_f32() * factor).0);
            i += LANES as usize;
        }
    });
    Ok(())
}

/// Calls `f` with the local expert and the index of each received row. The warps of the grid divide the rows.
#[inline(always)]
fn each_row(x: Exchange, f: impl Fn(u32, usize)) {
    let ((mut row, step), mut local) = (warp_of_grid(), 0);
    while local < x.b.local_experts {
        let (first, total) = (x.table(Table::Offsets, local), x.table(Table::Totals, local));
        while row < total {
            f(local, (first + row) as usize);
            row += step;
        }
        row -= total;
        local += 1;
    }
}

/// Copies `src` to `dst` on the next PE: the yardstick for an exchange that sends as many bytes. If the next PE is not
/// a P2P peer, copies to this PE.
#[kernel(max_threads = 512)]
pub fn ep_copy(ctx: &Ctx, dst: SymSlice<u128>, src: SymSlice<u128>) -> Result {
    const PART: usize = 8 * LANES as usize;
    let from = ctx.local(src);
    let Some(to) = ctx.ptr(dst, ctx.pe_after(1)).or_else(|| ctx.ptr(dst, ctx.my_pe())) else {
        return Err(Error::OutOfRange);
    };
    let (len, (first, step)) = (from.len().min(dst.len()), warp_of_grid());
    let mut part = first as usize;
    while part * PART < len {
        let at = part * PART;
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
