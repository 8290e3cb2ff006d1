//! Kernels of the second half of dispatch, which wait for the rows of all PEs and copy them to their experts.

use rushmem_device::prelude::*;

use crate::buffers::{Buffers, Exchange, Fault, Table, put, state};
use crate::record::{Arrival, each_arrival};
use crate::warp::{AT_ONCE, Crew, LANES, lane, load_row, of_lane, sum, sum_before, warps_of_block};

/// Waits until the rows of all PEs have arrived, and computes the place of every row at its expert. Runs as a single
/// block.
///
/// All PEs see the same counts, so all of them reject a call that does not fit.
#[kernel(max_threads = 256)]
pub fn ep_receive(ctx: &Ctx, buffers: Buffers) -> Result {
    let (x, block, warp) = (Exchange::new(ctx, &buffers), Block::current(), Warp::current());
    let call = x.call();
    if block.leader() {
        x.set_state(state::RECEIVED, call);
    }
    ctx.wait_until_all(block, &x.signals(buffers.arrived(0), call))?;
    let (mut pe, mut fault) = (warp.id(), None);
    while pe < buffers.n_pes {
        fault = fault.or(fault_of(x, pe, call));
        pe += warps_of_block();
    }
    // A PE that marked the call has already recorded its own reason.
    if let Some(fault) = fault
        && !x.is_marked(ctx.my_pe(), call)
        && warp.leader()
    {
        x.record(call, fault);
    }
    if block.any(fault.is_some()) {
        return Err(Error::OutOfRange);
    }
    if warp.id() == 0 {
        place_rows(x);
    }
    Ok(())
}

/// Returns the reason why the dispatch must be rejected, as far as it concerns `pe`.
#[inline(always)]
fn fault_of(x: Exchange, pe: u32, call: u64) -> Option<Fault> {
    if x.is_masked(pe) {
        return None;
    }
    if x.is_marked(pe, call) {
        return Some(Fault::Refused { pe });
    }
    let (mut rows, mut local) = (0_u64, lane());
    while local < x.b.local_experts {
        let mut source = 0;
        while source < x.b.n_pes {
            rows += x.count(source, pe * x.b.local_experts + local) as u64;
            source += 1;
        }
        local += LANES;
    }
    // Sum 24-bit halves, which cannot overflow: a lane has fewer than 2^48 rows.
    let rows = ((sum((rows >> 24) as u32) as u64) << 24) + sum(rows as u32 & 0xff_ffff) as u64;
    let fits = rows <= x.b.max_rows as u64;
    if fits { None } else { Some(Fault::FullPe { pe, rows: rows.min(u32::MAX as u64) as u32 }) }
}

/// Computes the places of the rows of this PE's experts, with one warp.
#[inline(always)]
fn place_rows(x: Exchange) {
    let (locals, n_pes, owned) = (x.b.local_experts, x.b.n_pes, x.ctx.my_pe() * x.b.local_experts);
    let (mut first, mut at) = (0, 0);
    while at < locals {
        let local = at + lane();
        let (mut total, mut source) = (0, 0);
        while source < n_pes && local < locals {
            total += x.count(source, owned + local);
            source += 1;
        }
        let (before, all) = sum_before(total);
        if local < locals {
            x.set_table(Table::Offsets, local, first + before);
            x.set_table(Table::Totals, local, total);
            let (mut source, mut row) = (0, first + before);
            while source < n_pes {
                x.set_table(Table::From, x.index_in_from(local, source), row);
                row += x.count(source, owned + local);
                source += 1;
            }
        }
        first += all;
        at += LANES;
    }
}

/// Stores the position in the inbox of each row that an expert receives. Unless experts gather, also copies the rows
/// there, and loads each token only once.
#[kernel(max_threads = 512)]
pub fn ep_expand(ctx: &Ctx, buffers: Buffers) -> Result {
    let x = Exchange::new(ctx, &buffers);
    let (inbox, rows, index) = (ctx.local(buffers.inbox), ctx.local(buffers.rows), ctx.local(buffers.index));
    each_arrival(x, |crew, arrival| {
        let from = x.token_at(arrival.source, arrival.token);
        if crew.rank < LANES && arrival.hits >> lane() & 1 == 1 {
            put(index, arrival.row as usize, from);
        }
        if buffers.gathers == 0 {
            expand(inbox, rows, from as usize, buffers.row_chunks as usize, crew, arrival);
        }
    });
    Ok(())
}

/// Copies row `from` of the inbox to the rows of an arrival.
#[inline(always)]
fn expand(inbox: View<u128>, rows: View<u128>, from: usize, len: usize, crew: Crew, arrival: Arrival) {
    let (first, step) = (from * len, crew.size as usize);
    let (mut i, lane) = (crew.rank as usize, lane() as usize);
    // Keep all lanes of a warp in the loop, which shuffles.
    while i - lane < len {
        let [a, b, c, d] = load_row(inbox, first, len, i, step);
        let mut hits = arrival.hits;
        while hits != 0 {
            let to = of_lane(arrival.row, hits.trailing_zeros()) as usize * len;
            let store = |i: usize, chunk: u128| {
                if i < len {
                    put(rows, to + i, chunk);
                }
            };
            store(i, a);
            store(i + step, b);
            store(i + 2 * step, c);
            store(i + 3 * step, d);
            hits &= hits - 1;
        }
        i += AT_ONCE * step;
    }
}
