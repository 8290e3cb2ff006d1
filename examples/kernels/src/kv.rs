//! The layer-by-layer transfer of a paged KV cache from prefill PEs to decode PEs.
//!
//! Prefill PEs have computed the keys and values for the tokens of some requests; decode PEs continue the requests.
//! Each side divides the heads among its PEs (tensor parallelism), and the two sides may have different numbers of PEs.
//!
//! ```text
//! pool     [layer][page][row][head of the PE][chunk of 16 bytes]
//! page     a row for the key of each of its tokens, then a row for the value of each
//! table    for each page of each request: its number in the pool of a PE
//! arrived  [layer][prefill PE]: the round that this PE has sent here completely
//! stored   [layer]: blocks of this PE that have completed their stores, over all rounds
//! ```
//!
//! A page of a prefill PE and the corresponding page of a decode PE share some heads. In each row these heads form a
//! *run* of chunks, and the distance between runs differs on the two sides:
//!
//! ```text
//! prefill PE, 2 heads a row    [h2 h3][h2 h3][h2 h3] ...
//! decode PE, 4 heads a row     [h0 h1 h2 h3][h0 h1 h2 h3][h0 h1 h2 h3] ...
//! ```
//!
//! If both sides are equally wide, the whole page is a single run, so the same code serves all widths.
//!
//! A round sends all layers. The PEs must synchronise between two rounds, because the next round overwrites pages that
//! decode PEs still read.

use core::ops::Range;

use rushmem_device::arch;
use rushmem_device::prelude::*;

use crate::divide::divided;
use crate::element::{get, set};

/// Number of lanes per warp. Blocks consist of whole warps.
const LANES: u32 = 32;

/// Number of 16-byte chunks that a warp copies in one step: eight loads in flight per lane, to hide memory latency.
const PART: u32 = 8 * LANES;

/// Numbers of prefill and decode PEs, and the dimensions of their KV caches.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, KernelArg)]
pub struct KvShape {
    /// Number of prefill PEs, which are PEs `0..prefill`.
    pub prefill: u32,
    /// Number of decode PEs, which follow the prefill PEs.
    pub decode: u32,
    /// Number of layers of the model.
    pub layers: u32,
    /// Number of KV heads of the model, over all PEs of a side.
    pub heads: u32,
    /// Number of 16-byte chunks of one head in a row.
    pub head_chunks: u32,
    /// Number of rows per page: a key and a value for each token.
    pub rows: u32,
    /// Number of pages per layer that all requests have together.
    pub pages: u32,
    /// Capacity of a PE's pool, in pages per layer.
    pub pool_pages: u32,
}

/// The chunks that a page on a prefill PE has in common with the same page on a decode PE: runs of chunks at constant
/// distances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Runs {
    /// Number of runs in each page.
    pub count: u32,
    /// Length of a run, in 16-byte chunks.
    pub chunks: u32,
    /// Offset of the first run in the prefill PE's page, in 16-byte chunks.
    pub from: u32,
    /// Distance between runs in the prefill PE's page, in 16-byte chunks.
    pub from_step: u32,
    /// Offset of the first run in the decode PE's page, in 16-byte chunks.
    pub to: u32,
    /// Distance between runs in the decode PE's page, in 16-byte chunks.
    pub to_step: u32,
}

impl KvShape {
    /// Returns the range of KV heads that a PE holds.
    #[inline(always)]
    pub fn heads_of(&self, pe: u32) -> Range<u32> {
        let (rank, width) =
            if pe < self.prefill { (pe, self.prefill) } else { (pe - self.prefill, self.decode) };
        let count = self.heads.checked_div(width).unwrap_or(0);
        rank * count..(rank + 1) * count
    }

    /// Returns the PEs that share heads with `pe`: decode PEs for a prefill PE, and vice versa.
    #[inline(always)]
    pub fn peers(&self, pe: u32) -> Range<u32> {
        let heads = self.heads_of(pe);
        let (first, width) = if pe < self.prefill { (self.prefill, self.decode) } else { (0, self.prefill) };
        let share = self.heads.checked_div(width).unwrap_or(0);
        let rank = |head: u32| head.checked_div(share).unwrap_or(0);
        if heads.is_empty() {
            return first..first;
        }
        first + rank(heads.start)..first + rank(heads.end - 1) + 1
    }

    /// Number of 16-byte chunks in a row of a PE's page.
    #[inline(always)]
    pub fn row_chunks(&self, pe: u32) -> u32 {
        let heads = self.heads_of(pe);
        (heads.end - heads.start) * self.head_chunks
    }

    /// Number of 16-byte chunks in a PE's page.
    #[inline(always)]
    pub fn page_chunks(&self, pe: u32) -> u32 {
        self.rows * self.row_chunks(pe)
    }

    /// Returns the range of chunks that page `number` of a layer occupies in a PE's pool. The PE's page table contains
    /// the number.
    #[inline(always)]
    pub fn page(&self, pe: u32, layer: u32, number: u32) -> Range<usize> {
        let (pages, chunks) = (self.pool_pages as usize, self.page_chunks(pe) as usize);
        let first = (layer as usize * pages + number as usize) * chunks;
        first..first + chunks
    }

    /// Returns the runs of chunks that a page of prefill PE `source` shares with the same page of decode PE `target`.
    #[inline(always)]
    pub fn runs(&self, source: u32, target: u32) -> Runs {
        let (ours, theirs) = (self.heads_of(source), self.heads_of(target));
        let first = if ours.start > theirs.start { ours.start } else { theirs.start };
        let end = if ours.end < theirs.end { ours.end } else { theirs.end };
        let runs = Runs {
            count: self.rows,
            chunks: end.saturating_sub(first) * self.head_chunks,
            from: (first - ours.start) * self.head_chunks,
            from_step: self.row_chunks(source),
            to: (first - theirs.start) * self.head_chunks,
            to_step: self.row_chunks(target),
        };
        if runs.chunks == runs.from_step && runs.chunks == runs.to_step {
            // Both sides are contiguous, so merge all runs into one.
            let page = self.page_chunks(source);
            return Runs { count: 1, chunks: page, from: 0, from_step: page, to: 0, to_step: page };
        }
        runs
    }

    /// Returns the index in `arrived` of the signal that prefill PE `source` sends for a layer.
    #[inline(always)]
    pub fn signal(&self, layer: u32, source: u32) -> usize {
        layer as usize * self.prefill as usize + source as usize
    }
}

/// Symmetric memory and dimensions of a KV cache transfer, as a kernel argument.
#[repr(C)]
#[derive(Clone, Copy, KernelArg)]
pub struct KvTransfer {
    /// Numbers of PEs, and dimensions of their KV caches.
    pub shape: KvShape,
    /// The pool of KV cache pages of each PE.
    pub pool: SymSlice<u128>,
    /// The page tables, `[PE][page]`. A PE needs its own table, and a prefill PE also those of its peers.
    pub tables: SymSlice<u32>,
    /// One signal per layer and prefill PE, indexed by [`KvShape::signal`].
    pub arrived: SymSlice<Signal>,
    /// For each layer, how many blocks of this PE have completed their stores, over all rounds.
    pub stored: SymSlice<u64>,
}

impl KvTransfer {
    /// Returns the range of chunks in a PE's pool that contains the requests' page `i`, looked up in the page table.
    #[inline(always)]
    fn page(&self, tables: View<u32>, pe: u32, layer: u32, i: u32) -> Range<usize> {
        self.shape.page(pe, layer, get(tables, (pe * self.shape.pages + i) as usize))
    }

    /// Returns the runs of chunks within a page of the pool. `first`, `chunks` and `step` come from [`Runs`].
    #[inline(always)]
    pub fn blocks(&self, page: Range<usize>, first: u32, chunks: u32, step: u32) -> Strided<u128> {
        let all = self.pool.slice(page.start + first as usize..page.end);
        all.blocks(chunks as usize, step as usize)
    }
}

/// Stores this PE's pages of a layer into all P2P peers that share heads with it, then signals to them that the layer
/// has arrived. Every round needs the same number of blocks.
///
/// The warps of the grid divide the chunks rather than the pages, which balances the load for pages of any size. The
/// last block to complete its stores signals.
#[kernel(max_threads = 512)]
pub fn kv_store(ctx: &Ctx, transfer: KvTransfer, layer: u32, round: u64) -> Result {
    let KvTransfer { shape, pool, tables, .. } = transfer;
    let (me, tables, here) = (ctx.my_pe(), ctx.local(tables), ctx.local(pool));
    let (first, step) = warp_of_grid();
    for peer in shape.peers(me) {
        let Some(there) = ctx.ptr(pool, peer) else { continue };
        let runs = shape.runs(me, peer);
        let chunks = runs.count * runs.chunks;
        let parts = chunks.div_ceil(PART);
        let mut at = first;
        while at < shape.pages * parts {
            let (i, part) = divided(at, parts);
            let from = transfer.page(tables, me, layer, i).start + runs.from as usize;
            let to = transfer.page(tables, peer, layer, i).start + runs.to as usize;
            let range = part * PART..chunks.min((part + 1) * PART);
            let at_step = |chunk: u32, step: u32| {
                let (run, x) = divided(chunk, runs.chunks);
                (run * step + x) as usize
            };
            copy_part(
                range,
                |chunk| get(here, from + at_step(chunk, runs.from_step)),
                |chunk, value| {
                    let i = to + at_step(chunk, runs.to_step);
                    if i < there.len() {
                        there.store(i, value);
                    }
                },
            );
            at += step;
        }
    }
    let block = Block::current();
    // The last block signals for all blocks, so each completes its stores before it counts itself.
    ctx.quiet(block)?;
    if !block.leader() {
        return Ok(());
    }
    let before = ctx.for_node_words().atomic_fetch_add(transfer.stored.at(layer as usize), 1, me)?;
    if before + 1 == round * u64::from(block.count()) {
        ctx.fence_acquire(FenceScope::System);
        for peer in shape.peers(me).filter(|&peer| ctx.ptr(pool, peer).is_some()) {
            ctx.signal_strong(Thread, transfer.arrived.at(shape.signal(layer, me)).set(round), peer)?;
        }
    }
    Ok(())
}

/// Puts this PE's pages of a layer to all NIC peers, then signals to them that the layer has arrived. Runs as one
/// block.
///
/// Each warp posts a page, one message per run. Each thread signals a peer.
#[kernel(max_threads = 256)]
pub fn kv_post(ctx: &Ctx, transfer: KvTransfer, layer: u32, round: u64) -> Result {
    let KvTransfer { shape, pool, .. } = transfer;
    let (me, block, tables) = (ctx.my_pe(), Block::current(), ctx.local(transfer.tables));
    let (first, step) = warp_of_grid();
    for peer in shape.peers(me) {
        if ctx.ptr(pool, peer).is_some() {
            continue;
        }
        let runs = shape.runs(me, peer);
        let mut i = first;
        while i < shape.pages {
            let (from, to) = (transfer.page(tables, me, layer, i), transfer.page(tables, peer, layer, i));
            let src = transfer.blocks(from, runs.from, runs.chunks, runs.from_step);
            let dst = transfer.blocks(to, runs.to, runs.chunks, runs.to_step);
            ctx.iput_nbi(Warp::current(), dst, src, peer)?;
            i += step;
        }
    }
    // A signal must follow the puts of all warps, so wait until they have been posted.
    block.sync();
    let arrived = transfer.arrived.at(shape.signal(layer, me));
    let mut peer = shape.peers(me).start + block.rank();
    while peer < shape.peers(me).end {
        if ctx.ptr(pool, peer).is_none() {
            // The signal is strong, so it arrives after all puts to that peer.
            ctx.signal_strong(Thread, arrived.set(round), peer)?;
        }
        peer += block.size();
    }
    Ok(())
}

/// Waits until a decode PE has received a layer, then computes the [`kv_sum`] of each page, one warp per page. Stands
/// in for attention.
///
/// `sums` has an element for each layer and page.
#[kernel(max_threads = 512)]
pub fn kv_attend(ctx: &Ctx, transfer: KvTransfer, sums: SymSlice<u64>, layer: u32, round: u64) -> Result {
    let KvTransfer { shape, pool, tables, arrived, .. } = transfer;
    let me = ctx.my_pe();
    let sources = shape.peers(me);
    let words = arrived.slice(shape.signal(layer, sources.start)..shape.signal(layer, sources.end));
    ctx.wait_until_all(Block::current(), &WaitWords::new(words, Cmp::Ge, round))?;

    let (pool, tables, sums) = (ctx.local(pool), ctx.local(tables), ctx.local(sums));
    let (chunks, lane) = (shape.page_chunks(me), Warp::current().rank());
    let (mut i, step) = warp_of_grid();
    while i < shape.pages {
        let first = transfer.page(tables, me, layer, i).start;
        let load = |at: u32| if at < chunks { get(pool, first + at as usize) } else { 0 };
        let (mut at, mut sum) = (lane, 0u64);
        while at < chunks {
            let [a, b, c, d] = [at, at + LANES, at + 2 * LANES, at + 3 * LANES];
            let values = (load(a), load(b), load(c), load(d));
            sum = sum.wrapping_add(kv_sum(a, values.0)).wrapping_add(kv_sum(b, values.1));
            sum = sum.wrapping_add(kv_sum(c, values.2)).wrapping_add(kv_sum(d, values.3));
            at += 4 * LANES;
        }
        let mut distance = LANES / 2;
        while distance > 0 {
            sum = sum.wrapping_add(arch::shuffle(u32::MAX, sum, lane ^ distance));
            distance /= 2;
        }
        if lane == 0 {
            set(sums, (layer * shape.pages + i) as usize, sum);
        }
        i += step;
    }
    Ok(())
}

/// Returns the contribution of chunk `at` to the checksum of a page, modulo 2^64. Every word has a different weight.
#[inline(always)]
pub fn kv_sum(at: u32, chunk: u128) -> u64 {
    let (low, high, weight) = (chunk as u64, (chunk >> 64) as u64, 4 * at as u64 + 1);
    low.wrapping_mul(weight).wrapping_add(high.wrapping_mul(weight + 2))
}

/// Copies `src` to `dst` on this PE, as a baseline for the transfer of as many bytes.
#[kernel(max_threads = 512)]
pub fn kv_copy(ctx: &Ctx, dst: SymSlice<u128>, src: SymSlice<u128>) -> Result {
    let (to, from) = (ctx.local(dst), ctx.local(src));
    let len = from.len().min(to.len());
    let (first, step) = warp_of_grid();
    let mut at = first as usize * PART as usize;
    while at < len {
        let part = (len - at).min(PART as usize) as u32;
        copy_part(
            0..part,
            |i| get(from, at + i as usize),
            |i, chunk| {
                if at + (i as usize) < len {
                    to.store(at + i as usize, chunk);
                }
            },
        );
        at += step as usize * PART as usize;
    }
    Ok(())
}

/// Copies at most [`PART`] chunks, with all lanes of a warp. Each lane issues all of its loads before its first store,
/// to overlap their latency.
#[inline(always)]
fn copy_part(range: Range<u32>, load: impl Fn(u32) -> u128, store: impl Fn(u32, u128)) {
    let first = range.start + Warp::current().rank();
    let load = |k: u32| if first + k * LANES < range.end { load(first + k * LANES) } else { 0 };
    let store = |k: u32, chunk: u128| {
        if first + k * LANES < range.end {
            store(first + k * LANES, chunk);
        }
    };
    let (a, b, c, d) = (load(0), load(1), load(2), load(3));
    let (e, f, g, h) = (load(4), load(5), load(6), load(7));
    store(0, a);
    store(1, b);
    store(2, c);
    store(3, d);
    store(4, e);
    store(5, f);
    store(6, g);
    store(7, h);
}

/// Returns the index of this warp in the grid, and the number of warps in the grid.
#[inline(always)]
fn warp_of_grid() -> (u32, u32) {
    let (block, warps) = (Block::current(), Block::current().size() / LANES);
    (block.id() * warps + Warp::current().id(), block.count() * warps)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(prefill: u32, decode: u32, heads: u32) -> KvShape {
        KvShape { prefill, decode, layers: 1, heads, head_chunks: 2, rows: 6, pages: 3, pool_pages: 4 }
    }

    #[test]
    fn equal_widths_send_whole_pages() {
        let shape = shape(2, 2, 4);
        assert_eq!((shape.peers(0), shape.peers(1)), (2..3, 3..4));
        let page = 6 * 2 * 2;
        let whole = Runs { count: 1, chunks: page, from: 0, from_step: page, to: 0, to_step: page };
        assert_eq!(shape.runs(1, 3), whole);
    }

    #[test]
    fn different_widths_send_the_common_heads_of_each_row() {
        let shape = shape(2, 1, 4);
        let runs = Runs { count: 6, chunks: 4, from: 0, from_step: 4, to: 4, to_step: 8 };
        assert_eq!((shape.peers(1), shape.runs(1, 2)), (2..3, runs));
        // PE 1 has heads 2 and 3, PE 3 has heads 0 to 2, PE 4 has heads 3 to 5.
        let shape = self::shape(3, 2, 6);
        assert_eq!(shape.peers(1), 3..5);
        let runs = Runs { count: 6, chunks: 2, from: 2, from_step: 4, to: 0, to_step: 6 };
        assert_eq!(shape.runs(1, 4), runs);
    }

    #[test]
    fn every_head_has_one_source() {
        for (prefill, decode, heads) in [(1, 1, 1), (3, 2, 6), (4, 2, 8), (1, 5, 5), (6, 4, 12)] {
            let shape = shape(prefill, decode, heads);
            for target in prefill..prefill + decode {
                let chunks = |source| shape.runs(source, target);
                let sent: u32 = shape.peers(target).map(chunks).map(|runs| runs.count * runs.chunks).sum();
                assert_eq!(sent, shape.page_chunks(target), "{shape:?}, PE {target}");
                assert!(shape.peers(target).all(|source| shape.peers(source).contains(&target)));
            }
        }
    }
}
