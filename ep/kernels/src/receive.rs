//! The kernel of the second half of dispatch, which waits for the rows of all PEs and copies them to their experts.

use rushmem_device::prelude::*;

use crate::buffers::{Buffers, Exchange, Fault, Table, put, state};
use crate::record::{Arrival, each_arrival};
use crate::warp::{AT_ONCE, Crew, LANES, lane, load_row, of_lane, sum, sum_before, warps_of_block};

/// Waits until the rows of all PEs have arrived, computes the place of every row at its expert, and stores the position
/// in the inbox of each row that an expert receives. Unless experts gather, also copies the rows to their places, and
/// loads each token only once.
///
/// All PEs see the same counts, so all of them reject a call that does not fit. Each block computes all places, which
/// takes less time than another kernel. All blocks store the same values, and read what they have stored.
#[kernel(max_threads = 512)]
pub fn ep_receive(ctx: &Ctx, buffers: Buffers) -> Result {
    let (x, block, warp) = (Exchange::new(ctx, &buffers), Block::current(), Warp::current());
    let call = x.call();
    if Thread::index() == 0 {
        x.set_state(state::RECEIVED, call);
    }
    if let Err(error) = x.await_signals(buffers.arrived(0), call) {
        if block.leader() {
            x.set_state(state::FAILED, call);
        }
        return Err(error);
    }
    let (mut pe, mut fault, always_fits) = (warp.id(), None, always_fits(x));
    while pe < buffers.n_pes {
        fault = fault.or(fault_of(x, pe, call, always_fits));
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
    place_rows(x);
    block.sync();
    expand(x);
    Ok(())
}

/// Returns whether all rows of the call fit on one PE.
#[inline(always)]
fn always_fits(x: Exchange) -> bool {
    let (mut rows, mut source) = (0_u64, 0);
    while source < x.b.n_pes {
        rows += x.tokens_of(source) as u64 * x.b.top_k as u64;
        source += 1;
    }
    rows <= x.b.max_rows as u64
}

/// Returns the reason why the dispatch must be rejected, as far as it concerns `pe`.
#[inline(always)]
fn fault_of(x: Exchange, pe: u32, call: u64, always_fits: bool) -> Option<Fault> {
    if x.is_masked(pe) {
        return None;
    }
    if x.is_marked(pe, call) {
        return Some(Fault::Refused { pe });
    }
    if always_fits {
        return None;
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

/// Computes the places of the rows of this PE's experts, with 32 experts per warp at a time.
#[inline(always)]
fn place_rows(x: Exchange) {
    let (locals, n_pes, owned) = (x.b.local_experts, x.b.n_pes, x.ctx.my_pe() * x.b.local_experts);
    let rows_of = |local: u32| {
        let (mut total, mut source) = (0, 0);
        while source < n_pes && local < locals {
            total += x.count(source, owned + local);
            source += 1;
        }
        total
    };
    let mut at = Warp::current().id() * LANES;
    while at < locals {
        let (mut earlier, mut before) = (0, lane());
        while before < at {
            earlier += rows_of(before);
            before += LANES;
        }
        let (local, total) = (at + lane(), rows_of(at + lane()));
        let mut row = sum(earlier) + sum_before(total).0;
        if local < locals {
            x.set_table(Table::Offsets, local, row);
            x.set_table(Table::Totals, local, total);
            let mut source = 0;
            while source < n_pes {
                x.set_table(Table::From, x.index_in_from(local, source), row);
                row += x.count(source, owned + local);
                source += 1;
            }
        }
        at += warps_of_block() * LANES;
    }
}

/// Stores the index of each row, and copies the rows to their experts unless experts gather.
#[inline(always)]
fn expand(x: Exchange) {
    let (b, ctx) = (x.b, x.ctx);
    let (inbox, rows, index) = (ctx.local(b.inbox), ctx.local(b.rows), ctx.local(b.index));
    each_arrival(x, |crew, arrival| {
        let from = x.token_at(arrival.source, arrival.token);
        if crew.rank < LANES && arrival.hits >> lane() & 1 == 1 {
            put(index, arrival.row as usize, from);
        }
        if b.gathers == 0 {
            copy(inbox, rows, from as usize, b.row_chunks as usize, crew, arrival);
        }
    });
}

/// Copies row `from` of the inbox to the rows of an arrival.
#[inline(always)]
fn copy(inbox: View<u128>, rows: View<u128>, from: usize, len: usize, crew: Crew, arrival: Arrival) {
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
