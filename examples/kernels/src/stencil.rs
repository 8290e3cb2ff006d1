//! Heat that spreads in an insulated plate: a 5-point stencil with halo exchange between the PEs.
//!
//! The plate is an image of `height` rows. Each PE has a band of them, and a *halo* row above and below, where its
//! neighbours put copies of their outermost rows:
//!
//! ```text
//! row 0           halo: the last row of the PE above
//! rows 1..=n      the band
//! row n + 1       halo: the first row of the PE below
//! ```
//!
//! There are two such buffers. Generation `g` of the plate is in buffer `g % 2`. The kernel computes generation
//! `g + 1` from it into the other buffer.

use rushmem_device::prelude::*;

use crate::band::bands;

/// Fraction of the difference to its neighbours that a cell gives away in one step. Stable below 0.25.
const ALPHA: f32 = 0.2;

/// Returns the next value of a cell from its own value and its four neighbours.
///
/// The serial reference uses it too, so that results can be compared bit by bit.
#[inline(always)]
pub fn relax(here: f32, above: f32, below: f32, left: f32, right: f32) -> f32 {
    here + ALPHA * ((above + below) + (left + right) - 4.0 * here)
}

/// Computes generations `first + 1` to `first + steps` of the plate.
///
/// `even` and `odd` are the two buffers, of rows of `width` values with `channels` values for each pixel. `first` is
/// the newest generation: it is in its buffer, halo rows included, and `halos` (from above, from below) both
/// count `first` rows received. No grid may have more blocks than the PE has rows.
///
/// # Why no halo row is overwritten too early
///
/// A PE computes its outermost row of generation `g` from both halo rows of generation `g - 1`, and then puts it. So the
/// signal of generation `g` also says that the sender no longer needs its halo of `g - 1`. A neighbour overwrites that
/// halo with generation `g + 1`. It cannot compute this generation before it has seen the signal. In the same way, a PE
/// overwrites a row that it is sending only after its neighbour has answered. So two buffers are enough.
#[kernel]
#[allow(clippy::too_many_arguments)] // a kernel's arguments are flat
pub fn heat(
    ctx: &Ctx,
    even: SymSlice<f32>,
    odd: SymSlice<f32>,
    halos: SymSlice<Signal>,
    width: u64,
    height: u64,
    channels: u64,
    first: u64,
    steps: u64,
) -> Result {
    let block = Block::current();
    let plate = Plate { ctx, width: width as usize, height: height as usize, channels: channels as usize };
    let rows = plate.rows();
    let mine = block.share(rows);
    for generation in first..first + steps {
        let (old, new) = if generation & 1 == 0 { (even, odd) } else { (odd, even) };
        for i in 0..mine.len() {
            // First and last row before the others, so that halos travel while the rest is computed.
            let row = match i {
                0 => mine.start + 1,
                1 => mine.end,
                _ => mine.start + i,
            };
            for side in ABOVE..BELOW + 1 {
                if let Some(beyond) = plate.beyond(row, side) {
                    ctx.signal_wait_until(block, halos.at(beyond.received), Cmp::Ge, generation)?;
                }
            }
            plate.advance(block, old, new, row);
            for side in ABOVE..BELOW + 1 {
                if let Some(beyond) = plate.beyond(row, side) {
                    let (dst, src) = (plate.row(new, beyond.halo), plate.row(new, row));
                    let sent = halos.at(beyond.sent);
                    ctx.put_signal_nbi(block, dst, src, sent.add(1), beyond.pe)?;
                }
            }
        }

        // The next generation needs rows of other blocks.
        ctx.sync_grid(block)?;
    }

    // The rows sent last have left.
    ctx.quiet(block)
}

/// Sides of a row.
const ABOVE: u32 = 0;
const BELOW: u32 = 1;

/// A neighbouring PE, and the halo that it has in common with this one.
struct Beyond {
    pe: u32,
    /// Where this PE's row lies in the neighbour's buffer.
    halo: usize,
    /// Which signal counts the rows that the neighbour sent here.
    received: usize,
    /// Which signal there counts the rows that this PE sent.
    sent: usize,
}

/// The plate, as one PE sees it.
struct Plate<'a> {
    ctx: &'a Ctx<'a>,
    width: usize,
    height: usize,
    channels: usize,
}

impl Plate<'_> {
    /// Returns the PE above, if this PE is not the first.
    #[inline(always)]
    fn above(&self) -> Option<u32> {
        self.ctx.my_pe().checked_sub(1)
    }

    /// Returns the PE below, if this PE is not the last.
    #[inline(always)]
    fn below(&self) -> Option<u32> {
        Some(self.ctx.my_pe() + 1).filter(|&pe| pe < self.ctx.n_pes())
    }

    /// Returns the neighbour on one side of a row, if the next row on that side is outside this PE's band.
    #[inline(always)]
    fn beyond(&self, row: usize, side: u32) -> Option<Beyond> {
        match side {
            ABOVE if row == 1 => {
                self.above().map(|pe| Beyond { pe, halo: self.rows_of(pe) + 1, received: 0, sent: 1 })
            }
            BELOW if row == self.rows() => {
                self.below().map(|pe| Beyond { pe, halo: 0, received: 1, sent: 0 })
            }
            _ => None,
        }
    }

    /// Returns the number of rows in the band of a PE.
    #[inline(always)]
    fn rows_of(&self, pe: u32) -> usize {
        bands(self.height, pe, self.ctx.n_pes()).rows
    }

    /// Returns the number of rows in this PE's band.
    #[inline(always)]
    fn rows(&self) -> usize {
        self.rows_of(self.ctx.my_pe())
    }

    /// Returns a row of a buffer.
    #[inline(always)]
    fn row(&self, buffer: SymSlice<f32>, row: usize) -> SymSlice<f32> {
        buffer.slice(row * self.width..(row + 1) * self.width)
    }

    /// Computes one row. The threads of the block take neighbouring columns.
    ///
    /// No heat leaves the plate: a cell at its edge takes its own value for the neighbour that it lacks.
    #[inline(always)]
    fn advance(&self, block: Block, old: SymSlice<f32>, new: SymSlice<f32>, row: usize) {
        let insulated_above = row == 1 && self.above().is_none();
        let insulated_below = row == self.rows() && self.below().is_none();
        let local = |buffer, row| self.ctx.local(self.row(buffer, row));
        let here = local(old, row);
        let above = local(old, if insulated_above { row } else { row - 1 });
        let below = local(old, if insulated_below { row } else { row + 1 });
        let next = local(new, row);

        let mut x = block.rank() as usize;
        while x < self.width {
            let left = if x < self.channels { x } else { x - self.channels };
            let right = if x + self.channels < self.width { x + self.channels } else { x };
            let value = relax(here.load(x), above.load(x), below.load(x), here.load(left), here.load(right));
            next.store(x, value);
            x += block.size() as usize;
        }
    }
}

/// Brings the bands of all PEs together in `whole` of PE 0, which waits for them. `arrived` is 0 at the launch.
#[kernel]
pub fn collect(
    ctx: &Ctx,
    whole: SymSlice<f32>,
    buffer: SymSlice<f32>,
    arrived: Sym<Signal>,
    width: u64,
    height: u64,
) -> Result {
    let block = Block::current();
    let (width, height) = (width as usize, height as usize);
    let band = bands(height, ctx.my_pe(), ctx.n_pes());

    let part = block.share(band.rows * width);
    let dst = whole.slice(band.first * width + part.start..band.first * width + part.end);
    let src = buffer.slice(width + part.start..width + part.end);
    ctx.put_signal_nbi(block, dst, src, arrived.add(part.len() as u64), 0)?;
    ctx.quiet(block)?;

    if ctx.my_pe() == 0 {
        ctx.signal_wait_until(block, arrived, Cmp::Ge, whole.len() as u64)?;
    }
    Ok(())
}
