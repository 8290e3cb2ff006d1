//! Heat in an insulated plate: a 5-point stencil with halo exchange between the PEs.
//!
//! The plate is an image of `height` rows. Each PE owns a band of them, with a *halo* row above and below. The
//! neighbours put copies of their outermost rows there:
//!
//! ```text
//! row 0           halo: the last row of the PE above
//! rows 1..=n      the band
//! row n + 1       halo: the first row of the PE below
//! ```
//!
//! There are two such buffers. Generation `g` of the plate is in buffer `g % 2`; the kernel computes generation `g + 1`
//! from it into the other buffer.

use rushmem_device::prelude::*;

use crate::band::bands;

/// Fraction of the temperature difference to each neighbour that a cell takes over per step. The iteration is stable
/// below 0.25.
const ALPHA: f32 = 0.2;

/// Returns a cell's next temperature from its current one and those of its four neighbours.
///
/// The serial reference calls this function too, and its results match bit for bit.
#[inline(always)]
pub fn relax(here: f32, above: f32, below: f32, left: f32, right: f32) -> f32 {
    here + ALPHA * ((above + below) + (left + right) - 4.0 * here)
}

/// Computes generations `first + 1` to `first + steps` of the plate.
///
/// `even` and `odd` are the two buffers, with rows of `width` values and `channels` values per pixel. On entry,
/// generation `first` is in its buffer, including the halo rows, and both signals of `halos` (from above, from below)
/// have counted `first` rows. The grid must not have more blocks than the PE has rows. If a member of `team`, which has all
/// PEs, is lost, the kernel fails on all others, which otherwise might wait for each other.
///
/// # Why no halo row is overwritten too early
///
/// A PE puts its outermost row of generation `g` after it has computed it from its halo rows of generation `g - 1`. So
/// the signal of generation `g` also tells the neighbour that this PE no longer needs those halo rows. The neighbour
/// overwrites them with generation `g + 1`, which it cannot compute before it has seen the signal. In the same way, a
/// PE overwrites a row that it is sending only after the neighbour has answered. So two buffers are enough.
#[kernel]
#[allow(clippy::too_many_arguments)] // a kernel's arguments are flat
pub fn heat(
    ctx: &Ctx,
    team: Team,
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
        let step = || {
            for i in 0..mine.len() {
                // Compute the first and the last row first, so halos travel while the inner rows are computed.
                let row = match i {
                    0 => mine.start + 1,
                    1 => mine.end,
                    _ => mine.start + i,
                };
                for side in ABOVE..BELOW + 1 {
                    if let Some(beyond) = plate.beyond(row, side) {
                        let received = halos.slice(beyond.received..beyond.received + 1);
                        let received = WaitWords::new(received, Cmp::Ge, generation);
                        ctx.wait_until_all_from(block, &received, team)?;
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
            Ok(())
        };
        // The next generation reads rows of other blocks.
        ctx.agree_grid(block, step())?;
    }

    // Wait for the last puts: the host may read or reuse the buffers after this kernel.
    ctx.quiet(block)
}

const ABOVE: u32 = 0;
const BELOW: u32 = 1;

/// A neighbouring PE, and where the halo row and the signals of the shared edge are.
struct Beyond {
    pe: u32,
    /// Index of the halo row in the neighbour's buffer that receives this PE's row.
    halo: usize,
    /// Index in this PE's `halos` of the signal that counts rows from the neighbour.
    received: usize,
    /// Index in the neighbour's `halos` of the signal that counts rows from this PE.
    sent: usize,
}

struct Plate<'a> {
    ctx: &'a Ctx<'a>,
    width: usize,
    height: usize,
    channels: usize,
}

impl Plate<'_> {
    #[inline(always)]
    fn above(&self) -> Option<u32> {
        self.ctx.my_pe().checked_sub(1)
    }

    #[inline(always)]
    fn below(&self) -> Option<u32> {
        Some(self.ctx.my_pe() + 1).filter(|&pe| pe < self.ctx.n_pes())
    }

    /// Returns the PE whose band is adjacent to `row` on one side, or `None` if the adjacent row is in this PE's band
    /// or outside the plate.
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

    #[inline(always)]
    fn rows_of(&self, pe: u32) -> usize {
        bands(self.height, pe, self.ctx.n_pes()).rows
    }

    #[inline(always)]
    fn rows(&self) -> usize {
        self.rows_of(self.ctx.my_pe())
    }

    #[inline(always)]
    fn row(&self, buffer: SymSlice<f32>, row: usize) -> SymSlice<f32> {
        buffer.slice(row * self.width..(row + 1) * self.width)
    }

    /// Computes one row of the next generation. Consecutive threads compute consecutive columns.
    ///
    /// The plate is insulated: at its edge, a cell stands in for its own missing neighbour.
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

/// Gathers the bands of the members of `team` into `whole` on PE 0, which waits for their arrival. `arrived` must be 0 at the
/// launch.
#[kernel]
pub fn collect(
    ctx: &Ctx,
    team: Team,
    whole: SymSlice<f32>,
    buffer: SymSlice<f32>,
    arrived: SymSlice<Signal>,
    width: u64,
    height: u64,
) -> Result {
    let block = Block::current();
    let (width, height) = (width as usize, height as usize);
    let band = bands(height, ctx.my_pe(), ctx.n_pes());

    let part = block.share(band.rows * width);
    let dst = whole.slice(band.first * width + part.start..band.first * width + part.end);
    let src = buffer.slice(width + part.start..width + part.end);
    ctx.put_signal_nbi(block, dst, src, arrived.at(0).add(part.len() as u64), 0)?;
    ctx.quiet(block)?;

    if ctx.my_pe() == 0 {
        ctx.wait_until_all_from(block, &WaitWords::new(arrived, Cmp::Ge, whole.len() as u64), team)?;
    }
    Ok(())
}
