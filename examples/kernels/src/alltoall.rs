//! An all-to-all example that transposes a matrix. Each PE has a band of its rows.
//!
//! PE `p` computes its band of the transpose. From PE `q` it needs the elements of `q`'s band in the columns of `p`'s
//! band, transposed. The outbox and the inbox have one part for each peer and are as large as a band.

use rushmem_device::prelude::*;

use crate::band::{Band, bands};

/// Number of rows and columns of the square tiles that are transposed in shared memory.
const TILE: usize = 32;

/// Row pitch of a tile in shared memory. It is odd, so the threads that read a column hit 32 different banks.
const PITCH: usize = TILE + 1;

/// Dynamic shared memory that each block of [`transpose`] needs, in bytes.
pub const TILE_BYTES: u32 = (TILE * PITCH * size_of::<u32>()) as u32;

/// Computes this PE's band of the transpose of an `n` x `n` matrix. `matrix` is this PE's band of the input.
///
/// `arrived` has one element per PE and counts the rows received from that PE; all must be 0 at the launch. `n` must be
/// at least the number of PEs. Each block needs [`TILE_BYTES`] of shared memory. The PEs may use different grids.
#[kernel]
pub fn transpose(
    ctx: &Ctx,
    result: SymSlice<u32>,
    matrix: SymSlice<u32>,
    outbox: SymSlice<u32>,
    inbox: SymSlice<u32>,
    arrived: SymSlice<Signal>,
    n: u64,
) -> Result {
    let block = Block::current();
    let n = n as usize;
    let (me, n_pes) = (ctx.my_pe(), ctx.n_pes());
    let mine = bands(n, me, n_pes);

    // Send each peer its part. Every PE starts with a different peer, to spread the traffic.
    for k in 0..n_pes {
        let peer = ctx.pe_after(k);
        let theirs = bands(n, peer, n_pes);

        // Each block takes whole tiles: a row of the part is a column of the matrix.
        let tiles = block.share(theirs.rows.div_ceil(TILE));
        let (first, end) = (tiles.start * TILE, (tiles.end * TILE).min(theirs.rows));
        if first >= end {
            continue;
        }
        let part = Part { ctx, block, matrix, n, mine, theirs };
        part.turn(outbox, first, end);

        let rows = (end - first) as u64;
        let at = theirs.first * mine.rows;
        let src = outbox.slice(at + first * mine.rows..at + end * mine.rows);
        let at = mine.first * theirs.rows;
        let dst = inbox.slice(at + first * mine.rows..at + end * mine.rows);
        ctx.put_signal_nbi(block, dst, src, arrived.at(me as usize).add(rows), peer)?;
    }

    // Receive the parts in the order in which the peers send to this PE.
    for k in 0..n_pes {
        let peer = ctx.pe_after(n_pes - k);
        let theirs = bands(n, peer, n_pes);
        ctx.signal_wait_until(block, arrived.at(peer as usize), Cmp::Ge, mine.rows as u64)?;

        let from = ctx.local(inbox.slice(theirs.first * mine.rows..(theirs.first + theirs.rows) * mine.rows));
        let to = ctx.local(result);
        for row in block.share(mine.rows) {
            let mut x = block.rank() as usize;
            while x < theirs.rows {
                to.store(row * n + theirs.first + x, from.load(row * theirs.rows + x));
                x += block.size() as usize;
            }
        }
    }

    // Wait for the puts: the caller may overwrite the outbox after this kernel.
    ctx.quiet(block)
}

/// The part of this PE's band that a certain peer receives.
struct Part<'a> {
    ctx: &'a Ctx<'a>,
    block: Block,
    matrix: SymSlice<u32>,
    n: usize,
    mine: Band,
    theirs: Band,
}

impl Part<'_> {
    /// Transposes the columns `first..end` of the part into rows of the outbox.
    ///
    /// The copy goes through a tile in shared memory, which makes both the loads and the stores coalesced.
    #[inline(always)]
    fn turn(&self, outbox: SymSlice<u32>, first: usize, end: usize) {
        let Part { ctx, block, n, mine, theirs, .. } = *self;
        let (from, to, tile) = (ctx.local(self.matrix), ctx.local(outbox), ctx.shared::<u32>());
        let mut left = first;
        while left < end {
            let mut top = 0;
            while top < mine.rows {
                let columns = TILE.min(end - left);
                let rows = TILE.min(mine.rows - top);
                for_each(block, |i, j| {
                    if i < rows && j < columns {
                        tile.store(i * PITCH + j, from.load((top + i) * n + theirs.first + left + j));
                    }
                });
                block.sync();
                for_each(block, |i, j| {
                    if i < columns && j < rows {
                        let row = theirs.first + left + i;
                        to.store(row * mine.rows + top + j, tile.load(j * PITCH + i));
                    }
                });
                block.sync();
                top += TILE;
            }
            left += TILE;
        }
    }
}

/// Calls `f` with the row and column of each element of a tile, divided among the threads of the block.
///
/// Consecutive threads get consecutive elements of a row.
#[inline(always)]
fn for_each(block: Block, f: impl Fn(usize, usize)) {
    let mut i = block.rank() as usize;
    while i < TILE * TILE {
        f(i / TILE, i % TILE);
        i += block.size() as usize;
    }
}
