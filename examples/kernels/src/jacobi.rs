//! The Jacobi example, heat in a solid or a plate: damped Jacobi iteration on a block-decomposed grid of three (or two)
//! dimensions.
//!
//! The PEs form a grid, numbered along x first, then y, then z. Each PE owns a block of cells, stored along x first.
//! One step of the 7-point stencil (5-point in two dimensions) computes *generation* `g + 1` of all cells from
//! generation `g`. Cells outside the whole grid have temperature 0.
//!
//! A block has six *sides* (four in two dimensions). Next to each side with a neighbour is a *halo*: a copy of the
//! neighbour's *face*, its outermost layer of cells. Each halo is contiguous and separate from the block:
//!
//! ```text
//! even, odd   the block, for generations g with g % 2 = 0 and 1
//! halos       [g % 3][side][cell of the face]: written by the neighbours
//! outbox      [g % 2][side][cell of the face]: faces for NIC peers
//! received    [side]: cells received from that side in all generations
//! ```
//!
//! # How a face travels
//!
//! - To a P2P peer, threads store each cell into the peer's halo as soon as they have computed it. Consecutive threads
//!   store consecutive cells on every side.
//! - To a NIC peer, a face that is contiguous in the block is put from there. Other faces are first packed into the
//!   outbox, at the cost of one more store of a value that is still in a register. A strided put would need a 64-byte
//!   WQE for each 4-byte cell.
//!
//! # Why no halo is overwritten too early
//!
//! A PE sends generation `g + 3` of a face after it has received generation `g + 2` from all neighbours. Each neighbour
//! sent that in step `g + 1` or later. All of its blocks of threads synchronise between two steps, so by then they have
//! read the halos of generation `g`, the ones that generation `g + 3` overwrites. Two sets of halos would not suffice:
//! a cell at an edge reads the halos of two sides, and a signal from one side says nothing about the cells of other
//! faces.
//!
//! A NIC may read a face of generation `g` from the block or the outbox until the neighbour has received it, and the
//! neighbour receives it before it sends generation `g + 1`. This PE writes generation `g + 2` of any face only after
//! it has received that. So two outboxes are enough, and a launch needs no `quiet`: the same argument holds across
//! launches.

use core::ops::Range;

use rushmem_device::prelude::*;

use crate::divide::divided;
use crate::element::{get, set};

/// Fraction of the temperature difference to each neighbour that a cell takes over per step. The iteration is stable
/// below 1/6.
pub const JACOBI_ALPHA: f32 = 0.125;

/// Granularity, in cells, at which blocks of threads divide the faces. It makes most messages to NIC peers 4 KiB or
/// larger.
const UNIT: u32 = 1024;

/// Number of lanes per warp. Blocks consist of whole warps.
const LANES: u32 = 32;

const WEST: u32 = 0;
const EAST: u32 = 1;
const SOUTH: u32 = 2;
const NORTH: u32 = 3;
const BELOW: u32 = 4;
const ABOVE: u32 = 5;

/// Returns a cell's next temperature, from its current one and the sums of its two neighbours along x, y and z.
///
/// In two dimensions, the z sum is absent. The serial reference calls this function too, and its results match bit for
/// bit.
#[inline(always)]
pub fn jacobi_relax(here: f32, x: f32, y: f32, z: Option<f32>) -> f32 {
    let difference = match z {
        Some(z) => (x + y) + z - 6.0 * here,
        None => x + y - 4.0 * here,
    };
    here + JACOBI_ALPHA * difference
}

/// Three counts or coordinates, along x, y and z.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, KernelArg)]
pub struct Extent {
    /// Count or coordinate along x.
    pub x: u32,
    /// Count or coordinate along y.
    pub y: u32,
    /// Count or coordinate along z. A two-dimensional extent has 1.
    pub z: u32,
}

impl Extent {
    /// Number of elements in the extent: `x * y * z`.
    #[inline(always)]
    pub fn count(&self) -> usize {
        self.x as usize * self.y as usize * self.z as usize
    }

    /// Returns the coordinates of the element with linear index `i`. x varies fastest.
    #[inline(always)]
    pub fn coordinates(&self, i: u32) -> Self {
        let (rest, x) = divided(i, self.x);
        let (z, y) = divided(rest, self.y);
        Self { x, y, z }
    }

    /// Returns the linear index of the element at coordinates `at`. x varies fastest.
    #[inline(always)]
    pub fn index(&self, at: Self) -> u32 {
        (at.z * self.y + at.y) * self.x + at.x
    }

    /// Returns the coordinates of the element adjacent to `at` on a side, or `None` at the boundary.
    #[inline(always)]
    pub fn beside(&self, at: Self, side: u32) -> Option<Self> {
        match side {
            WEST if at.x > 0 => Some(Self { x: at.x - 1, ..at }),
            EAST if at.x + 1 < self.x => Some(Self { x: at.x + 1, ..at }),
            SOUTH if at.y > 0 => Some(Self { y: at.y - 1, ..at }),
            NORTH if at.y + 1 < self.y => Some(Self { y: at.y + 1, ..at }),
            BELOW if at.z > 0 => Some(Self { z: at.z - 1, ..at }),
            ABOVE if at.z + 1 < self.z => Some(Self { z: at.z + 1, ..at }),
            _ => None,
        }
    }
}

/// The grid of PEs, and the size of each PE's block.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, KernelArg)]
pub struct JacobiShape {
    /// Number of PEs along each axis. PEs of the job beyond this grid take no part.
    pub pes: Extent,
    /// Number of cells of one PE's block along each axis.
    pub cells: Extent,
    /// Whether the grid of cells is two-dimensional.
    pub is_flat: bool,
}

impl JacobiShape {
    /// Number of sides of a PE's block: 6, or 4 in two dimensions.
    #[inline(always)]
    pub fn sides(&self) -> u32 {
        if self.is_flat { BELOW } else { ABOVE + 1 }
    }

    /// Returns the PE next to `pe` on a side of its block, or `None` at the boundary of the grid of PEs.
    #[inline(always)]
    pub fn neighbour(&self, pe: u32, side: u32) -> Option<u32> {
        self.pes.beside(self.pes.coordinates(pe), side).map(|at| self.pes.index(at))
    }

    /// Number of cells in the face on a side of a PE's block.
    #[inline(always)]
    pub fn face_cells(&self, side: u32) -> u32 {
        let Extent { x, y, z } = self.cells;
        match side {
            WEST | EAST => y * z,
            SOUTH | NORTH => x * z,
            _ => x * y,
        }
    }

    /// Offset of a side's halo within the halos of one generation, in cells.
    #[inline(always)]
    pub fn halo(&self, side: u32) -> u32 {
        let mut first = side % 2 * self.face_cells(side);
        let mut lower = side & !1;
        while lower > WEST {
            lower -= 2;
            first += 2 * self.face_cells(lower);
        }
        first
    }

    /// Number of cells in all halos of one generation.
    #[inline(always)]
    pub fn halo_cells(&self) -> u32 {
        self.halo(self.sides())
    }

    /// Returns the coordinates, within a PE's block, of cell `i` of the face on a side.
    #[inline(always)]
    pub fn face_cell(&self, side: u32, i: u32) -> Extent {
        let Extent { x, y, z } = self.cells;
        let last = |n: u32| if side % 2 == 1 { n - 1 } else { 0 };
        match side {
            WEST | EAST => {
                let (z, y) = divided(i, y);
                Extent { x: last(x), y, z }
            }
            SOUTH | NORTH => {
                let (z, x) = divided(i, x);
                Extent { x, y: last(y), z }
            }
            _ => {
                let (y, x) = divided(i, x);
                Extent { x, y, z: last(z) }
            }
        }
    }

    /// Returns the index within the face on `side` of the cell at coordinates `at`. Inverse of
    /// [`face_cell`](Self::face_cell).
    #[inline(always)]
    fn face_index(&self, side: u32, at: Extent) -> u32 {
        let (row, row_cells, column) = match side {
            WEST | EAST => (at.z, self.cells.y, at.y),
            SOUTH | NORTH => (at.z, self.cells.x, at.x),
            _ => (at.y, self.cells.x, at.x),
        };
        row * row_cells + column
    }

    /// Whether the face on `side` is contiguous in the PE's block and shares no cell with a later face.
    #[inline(always)]
    fn is_contiguous(&self, side: u32) -> bool {
        match side {
            SOUTH => self.is_flat && self.cells.y > 1,
            NORTH => self.is_flat,
            BELOW => self.cells.z > 1,
            _ => side == ABOVE,
        }
    }

    /// Whether the cell at coordinates `at` of the face on `side` also belongs to the face of a later side.
    #[inline(always)]
    fn is_in_later_face(&self, side: u32, at: Extent) -> bool {
        let Extent { x, y, z } = self.cells;
        let is_later = |other: u32| side < other && other < self.sides();
        is_later(EAST) && at.x + 1 == x
            || is_later(SOUTH) && at.y == 0
            || is_later(NORTH) && at.y + 1 == y
            || is_later(BELOW) && at.z == 0
            || is_later(ABOVE) && at.z + 1 == z
    }
}

/// Symmetric memory of a Jacobi iteration, as a kernel argument.
#[repr(C)]
#[derive(Clone, Copy, KernelArg)]
pub struct Jacobi {
    /// The grid of PEs, and the size of each PE's block.
    pub shape: JacobiShape,
    /// The PE's block of cells in even generations.
    pub even: SymSlice<f32>,
    /// The PE's block of cells in odd generations.
    pub odd: SymSlice<f32>,
    /// Three sets of halos (copies of the neighbours' faces), indexed by generation modulo 3.
    pub halos: SymSlice<f32>,
    /// Two buffers for faces that are sent to NIC peers, each as large as one set of halos.
    pub outbox: SymSlice<f32>,
    /// One signal per side, which counts the cells received from the neighbour on this side.
    pub received: SymSlice<Signal>,
    /// The newest complete generation, which the kernel increments.
    pub generation: Sym<u64>,
}

/// Computes the next `steps` generations of all cells, at least one.
///
/// On entry the newest generation is in its block, its halos have arrived or are in flight, and `received` counts its
/// cells. The generation is read from memory because a graph launches the kernel with the same arguments every time.
/// All PEs make the same launches, each with a grid of co-resident blocks.
///
/// Each step computes the faces before the interior, so halos travel while the interior is computed.
#[kernel(max_threads = 256)]
pub fn jacobi(ctx: &Ctx, state: Jacobi, steps: u64) -> Result {
    let block = Block::current();
    let newest = ctx.local_one(state.generation);
    let first = newest.load(0);
    for generation in first..first + steps {
        let step = Step::new(ctx, &state, generation);
        step.outer(block)?;
        step.inner(block);
        // The next step reads cells of other blocks.
        ctx.sync_grid(block)?;
    }
    if Thread::index() == 0 {
        // All blocks have read the old generation.
        newest.store(0, first + steps);
    }
    Ok(())
}

struct Step<'a> {
    ctx: &'a Ctx<'a>,
    state: &'a Jacobi,
    /// The generation of cells that the step reads.
    generation: u64,
    old: View<'a, f32>,
    halos: View<'a, f32>,
    new: View<'a, f32>,
    /// Bit mask of the PE's sides that have a neighbour.
    neighbours: u32,
}

impl<'a> Step<'a> {
    #[inline(always)]
    fn new(ctx: &'a Ctx<'a>, state: &'a Jacobi, generation: u64) -> Self {
        let (old, new) = if generation & 1 == 0 { (state.even, state.odd) } else { (state.odd, state.even) };
        let mut neighbours = 0;
        for side in 0..state.shape.sides() {
            if state.shape.neighbour(ctx.my_pe(), side).is_some() {
                neighbours |= 1 << side;
            }
        }
        let halos = ctx.local(halos_of(state, generation));
        Self { ctx, state, generation, old: ctx.local(old), halos, new: ctx.local(new), neighbours }
    }

    /// Computes this thread block's share of the faces and sends it.
    ///
    /// The share is a range over the concatenated faces. A cell at an edge belongs to several faces: each computes the
    /// same value, and the last one stores it.
    #[inline(always)]
    fn outer(&self, block: Block) -> Result {
        let shape = &self.state.shape;
        let units = block.share(shape.halo_cells().div_ceil(UNIT) as usize);
        let share = units.start as u32 * UNIT..(units.end as u32 * UNIT).min(shape.halo_cells());
        if share.is_empty() {
            return Ok(());
        }
        self.receive(block)?;
        for side in 0..shape.sides() {
            let (first, len) = (shape.halo(side), shape.face_cells(side));
            let part = share.start.saturating_sub(first)..len.min(share.end.saturating_sub(first));
            if part.start < part.end {
                self.face(block, side, part)?;
            }
        }
        Ok(())
    }

    /// Waits for all halos of the step's generation. A separate thread waits for each side, so all waits together cost
    /// one barrier.
    #[inline(always)]
    fn receive(&self, block: Block) -> Result {
        let (state, mut mine) = (self.state, Ok(()));
        let mut side = block.rank();
        while side < state.shape.sides() {
            if self.has_neighbour(side) {
                let cells = self.generation * u64::from(state.shape.face_cells(side));
                let received = state.received.at(side as usize);
                mine = mine.and(self.ctx.signal_wait_until(Thread, received, Cmp::Ge, cells).map(drop));
            }
            side += block.size();
        }
        block.agree(mine)
    }

    /// Computes a range of cells of a face and sends them to the neighbour.
    #[inline(always)]
    fn face(&self, block: Block, side: u32, part: Range<u32>) -> Result {
        let (ctx, state, shape) = (self.ctx, self.state, &self.state.shape);
        let peer = shape.neighbour(ctx.my_pe(), side);
        // The neighbour receives this face on its opposite side.
        let there = shape.halo(side ^ 1);
        let dst = halos_of(state, self.generation + 1).slice(moved(&part, there as usize));
        let p2p = peer.and_then(|pe| ctx.ptr(dst, pe));

        let half = (self.generation as usize + 1) % 2 * shape.halo_cells() as usize;
        let outbox = state.outbox.slice(moved(&part, half + shape.halo(side) as usize));
        let is_packed = peer.is_some() && p2p.is_none() && !shape.is_contiguous(side);
        let packed = ctx.local(outbox);
        let mut i = block.rank();
        while i < part.end - part.start {
            let at = shape.face_cell(side, part.start + i);
            let value = self.next(at);
            if !shape.is_in_later_face(side, at) {
                set(self.new, shape.cells.index(at) as usize, value);
            }
            if let Some(there) = p2p {
                if (i as usize) < there.len() {
                    there.store(i as usize, value);
                }
            } else if is_packed {
                set(packed, i as usize, value);
            }
            i += block.size();
        }

        let Some(pe) = peer else { return Ok(()) };
        let src = if is_packed {
            outbox
        } else {
            let first = shape.cells.index(shape.face_cell(side, part.start));
            self.newest().slice(moved(&(0..part.end - part.start), first as usize))
        };
        // For a P2P peer the cells have already been stored; the signal alone announces them.
        let put = if p2p.is_some() { 0 } else { src.len() };
        let (arrived, cells) = (state.received.at(side as usize ^ 1), src.len() as u64);
        // Each signal word has a single writer, so a processor and a NIC never update the same word.
        let ctx = ctx.for_node_words();
        ctx.put_signal_nbi(block, dst.slice(0..put), src.slice(0..put), arrived.add(cells), pe)
    }

    /// Computes this thread block's share of the interior, the cells in no face. Each warp takes a row along x.
    #[inline(always)]
    fn inner(&self, block: Block) {
        let Extent { x, y, z } = self.state.shape.cells;
        let is_flat = self.state.shape.is_flat;
        let (columns, layers) = (y.saturating_sub(2), if is_flat { 1 } else { z.saturating_sub(2) });
        let rows = block.share(columns as usize * layers as usize);
        let mut row = rows.start as u32 + Warp::current().id();
        while row < rows.end as u32 {
            let (layer, column) = divided(row, columns);
            let layer = if is_flat { 0 } else { layer + 1 };
            let first = (layer * y + column + 1) * x;
            let mut i = 1 + Warp::current().rank();
            while i + 1 < x {
                let at = first + i;
                let old = |at: u32| get(self.old, at as usize);
                let pair = |distance: u32| old(at - distance) + old(at + distance);
                let z = if is_flat { None } else { Some(pair(x * y)) };
                set(self.new, at as usize, jacobi_relax(old(at), pair(1), pair(x), z));
                i += LANES;
            }
            row += block.size() / LANES;
        }
    }

    /// Returns the next temperature of a cell anywhere in the PE's block. Its neighbours may be in halos.
    #[inline(always)]
    fn next(&self, at: Extent) -> f32 {
        let pair = |side: u32| self.beside(at, side) + self.beside(at, side + 1);
        let z = if self.state.shape.is_flat { None } else { Some(pair(BELOW)) };
        jacobi_relax(get(self.old, self.state.shape.cells.index(at) as usize), pair(WEST), pair(SOUTH), z)
    }

    /// Returns the temperature next to a cell on one side, from the PE's block or from a halo.
    #[inline(always)]
    fn beside(&self, at: Extent, side: u32) -> f32 {
        let shape = &self.state.shape;
        match shape.cells.beside(at, side) {
            Some(beside) => get(self.old, shape.cells.index(beside) as usize),
            None if self.has_neighbour(side) => {
                get(self.halos, (shape.halo(side) + shape.face_index(side, at)) as usize)
            }
            None => 0.0,
        }
    }

    #[inline(always)]
    fn has_neighbour(&self, side: u32) -> bool {
        self.neighbours >> side & 1 == 1
    }

    #[inline(always)]
    fn newest(&self) -> SymSlice<f32> {
        if self.generation & 1 == 0 { self.state.odd } else { self.state.even }
    }
}

/// Returns `range` shifted up by `distance`.
#[inline(always)]
fn moved(range: &Range<u32>, distance: usize) -> Range<usize> {
    distance + range.start as usize..distance + range.end as usize
}

#[inline(always)]
fn halos_of(state: &Jacobi, generation: u64) -> SymSlice<f32> {
    let len = state.shape.halo_cells() as usize;
    let first = (generation % 3) as usize * len;
    state.halos.slice(first..first + len)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shapes() -> [JacobiShape; 3] {
        let extent = |x, y, z| Extent { x, y, z };
        [
            JacobiShape { pes: extent(3, 1, 2), cells: extent(5, 4, 3), is_flat: false },
            JacobiShape { pes: extent(2, 2, 2), cells: extent(1, 2, 1), is_flat: false },
            JacobiShape { pes: extent(2, 3, 1), cells: extent(4, 3, 1), is_flat: true },
        ]
    }

    #[test]
    fn neighbours_are_mutual() {
        for shape in shapes() {
            for pe in 0..shape.pes.count() as u32 {
                for side in 0..shape.sides() {
                    if let Some(neighbour) = shape.neighbour(pe, side) {
                        assert_eq!(shape.neighbour(neighbour, side ^ 1), Some(pe), "{shape:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn halos_of_all_sides_are_adjacent() {
        for shape in shapes() {
            let mut first = 0;
            for side in 0..shape.sides() {
                assert_eq!(shape.halo(side), first, "{shape:?}, side {side}");
                first += shape.face_cells(side);
            }
            assert_eq!(shape.halo_cells(), first);
        }
    }

    #[test]
    fn face_cells_lie_on_the_boundary_of_the_block() {
        for shape in shapes() {
            for side in 0..shape.sides() {
                let mut cells = Vec::new();
                for i in 0..shape.face_cells(side) {
                    let at = shape.face_cell(side, i);
                    assert_eq!(shape.cells.beside(at, side), None);
                    assert_eq!(shape.face_index(side, at), i);
                    cells.push(shape.cells.index(at));
                }
                let is_contiguous = cells.windows(2).all(|pair| pair[1] == pair[0] + 1);
                assert!(is_contiguous || !shape.is_contiguous(side), "{shape:?}, side {side}");
            }
        }
    }
}
