//! A Fourier transform of a cube of `n`^3 complex numbers, distributed over the PEs by planes.
//!
//! Each PE transforms its lines along two axes. The PEs then *transpose* the cube, which makes the lines of the third
//! axis local:
//!
//! ```text
//! before    [z of this PE][y][x]
//! after     [y of this PE][z][x]
//! ```
//!
//! A transpose moves rows of `n` numbers, and a second one restores the original layout.

use core::ops::{Add, Mul, Sub};

use rushmem_device::prelude::*;

use crate::band::bands;
use crate::element::{get, set};

/// Number of lanes per warp. Blocks consist of whole warps.
const LANES: usize = 32;

/// Maximum number of complex numbers that a block holds in shared memory.
const TILE: u32 = 2048;

/// A complex number, stored as one word with the real part in the low half.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Complex {
    /// Real part of the number.
    pub re: f32,
    /// Imaginary part of the number.
    pub im: f32,
}

impl Complex {
    /// Unpacks a complex number from a word of memory, with the real part in the low half.
    #[inline(always)]
    pub fn from_word(word: u64) -> Self {
        Self { re: f32::from_bits(word as u32), im: f32::from_bits((word >> 32) as u32) }
    }

    /// Packs the number into a word of memory, with the real part in the low half.
    #[inline(always)]
    pub fn word(self) -> u64 {
        self.re.to_bits() as u64 | (self.im.to_bits() as u64) << 32
    }
}

impl Add for Complex {
    type Output = Self;
    #[inline(always)]
    fn add(self, other: Self) -> Self {
        Self { re: self.re + other.re, im: self.im + other.im }
    }
}

impl Sub for Complex {
    type Output = Self;
    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        Self { re: self.re - other.re, im: self.im - other.im }
    }
}

impl Mul for Complex {
    type Output = Self;
    #[inline(always)]
    fn mul(self, other: Self) -> Self {
        let (re, im) = (self.re * other.re - self.im * other.im, self.re * other.im + self.im * other.re);
        Self { re, im }
    }
}

/// One pass of the Fourier transform: transforms all lines of one axis.
#[repr(C)]
#[derive(Clone, Copy, Debug, KernelArg)]
pub struct FftPass {
    /// log2 of the number of complex numbers in a line.
    pub log2_n: u32,
    /// Number of planes of the cube that this PE owns.
    pub planes: u32,
    /// 1 to transform the columns of each plane, 0 for its rows.
    pub columns: u32,
    /// 1 for the inverse transform, which scales by `1 / n`.
    pub inverse: u32,
}

impl FftPass {
    /// Number of complex numbers in a line.
    #[inline(always)]
    fn n(&self) -> u32 {
        1 << self.log2_n
    }

    /// Number of lines that a block transforms together. They are in the same plane.
    #[inline(always)]
    fn lines(&self) -> u32 {
        (TILE >> self.log2_n).max(1).min(self.n())
    }

    /// Distance between lines in shared memory, in complex numbers. It is odd, to avoid bank conflicts between lines.
    #[inline(always)]
    fn pitch(&self) -> u32 {
        self.n() + 1
    }

    /// Dynamic shared memory that each block of the pass needs, in bytes.
    pub fn shared_bytes(&self) -> u32 {
        self.lines() * self.pitch() * size_of::<u64>() as u32
    }

    /// Returns the line of element `i` of a tile and the position within that line. Consecutive `i` are consecutive in
    /// memory.
    #[inline(always)]
    fn place(&self, i: u32) -> (u32, u32) {
        if self.columns == 1 {
            let log2_lines = self.lines().trailing_zeros();
            (i & (self.lines() - 1), i >> log2_lines)
        } else {
            (i >> self.log2_n, i & (self.n() - 1))
        }
    }

    /// Returns the index in the cube of number `k` of a line.
    #[inline(always)]
    fn index(&self, line: u32, k: u32) -> usize {
        let (plane, x, k) = ((line >> self.log2_n) as usize, line & (self.n() - 1), k as usize);
        if self.columns == 1 {
            (((plane << self.log2_n) + k) << self.log2_n) + x as usize
        } else {
            ((line as usize) << self.log2_n) + k
        }
    }
}

/// Transforms all lines of an axis in place. The blocks of the grid share the lines.
///
/// `twiddles[k]` is `exp(-2 pi i k / n)` for `k < n / 2`. Each block needs [`FftPass::shared_bytes`].
#[kernel(max_threads = 1024)]
pub fn fft_lines(ctx: &Ctx, data: SymSlice<u64>, twiddles: SymSlice<u64>, pass: FftPass) {
    let (block, n, lines) = (Block::current(), pass.n(), pass.lines());
    let (data, twiddles, tile) = (ctx.local(data), ctx.local(twiddles), ctx.shared::<u64>());
    let scale = Complex { re: if pass.inverse == 1 { 1.0 / n as f32 } else { 1.0 }, im: 0.0 };
    let tiles = (pass.planes * n) >> lines.trailing_zeros();
    for tile_number in block.share(tiles as usize) {
        let first = tile_number as u32 * lines;
        for_each(block, lines * n, |i| {
            let (line, k) = pass.place(i);
            // The in-place algorithm takes its input in bit-reversed order.
            let reversed = k.reverse_bits() >> (u32::BITS - pass.log2_n);
            let number = get(data, pass.index(first + line, k));
            set(tile, (line * pass.pitch() + reversed) as usize, number);
        });
        block.sync();
        for stage in 0..pass.log2_n {
            for_each(block, lines * n / 2, |i| butterfly(pass, tile, twiddles, stage, i));
            block.sync();
        }
        for_each(block, lines * n, |i| {
            let (line, k) = pass.place(i);
            let value = number(tile, line * pass.pitch() + k) * scale;
            set(data, pass.index(first + line, k), value.word());
        });
        block.sync();
    }
}

/// Computes butterfly `i` of a stage, on two numbers of a tile that are `2^stage` apart.
#[inline(always)]
fn butterfly(pass: FftPass, tile: View<u64>, twiddles: View<u64>, stage: u32, i: u32) {
    let (line, j) = (i >> (pass.log2_n - 1), i & (pass.n() / 2 - 1));
    let (half, k) = (1 << stage, j & ((1 << stage) - 1));
    let low = line * pass.pitch() + 2 * j - k;
    let mut twiddle = number(twiddles, k << (pass.log2_n - 1 - stage));
    if pass.inverse == 1 {
        twiddle.im = -twiddle.im;
    }
    let (a, b) = (number(tile, low), number(tile, low + half) * twiddle);
    set(tile, low as usize, (a + b).word());
    set(tile, (low + half) as usize, (a - b).word());
}

/// Stores the rows of the transpose that belong to P2P peers and to this PE. [`fft_post`] signals their arrival.
///
/// Each warp stores a row, in chunks of 16 bytes.
#[kernel(max_threads = 512)]
pub fn fft_store(ctx: &Ctx, to: SymSlice<u64>, from: SymSlice<u64>, log2_n: u32) {
    let (n, n_pes) = (1usize << log2_n, ctx.n_pes());
    let mine = bands(n, ctx.my_pe(), n_pes);
    let (from, to) = (ctx.local(from.cast::<u128>()), to.cast::<u128>());
    let mut row = Thread::index() / LANES;
    while row < mine.rows * n {
        // Every PE starts with its own rows, so the PEs do not all store to the same peer.
        let (z, y) = (row >> log2_n, (row + mine.first) & (n - 1));
        let peer = (((y as u64 + 1) * n_pes as u64 - 1) >> log2_n) as u32;
        if let Some(to) = ctx.ptr(to, peer) {
            let first = bands(n, peer, n_pes).first;
            let (src, dst) = ((z << log2_n) + y, ((y - first) << log2_n) + mine.first + z);
            copy_row(to, dst * n / 2, from, src * n / 2, n / 2);
        }
        row += Thread::count() / LANES;
    }
}

/// Copies a row of `chunks` 16-byte chunks, with all lanes of a warp. Each lane issues all of its loads before its
/// first store, to overlap their latency.
#[inline(always)]
fn copy_row(to: RemoteView<u128>, dst: usize, from: View<u128>, src: usize, chunks: usize) {
    let mut first = Warp::current().rank() as usize;
    while first < chunks {
        let load = |k: usize| {
            let i = src + first + k * LANES;
            if first + k * LANES < chunks && i < from.len() { from.load(i) } else { 0 }
        };
        let store = |k: usize, chunk: u128| {
            let i = dst + first + k * LANES;
            if first + k * LANES < chunks && i < to.len() {
                to.store(i, chunk);
            }
        };
        let (a, b, c, d) = (load(0), load(1), load(2), load(3));
        store(0, a);
        store(1, b);
        store(2, c);
        store(3, d);
        first += 4 * LANES;
    }
}

/// Puts the rows of the transpose that belong to NIC peers, signals all PEs, and waits for their data. Runs as one
/// block.
///
/// `arrived` counts the PEs that have finished sending, summed over all transposes up to `round`, which starts at 1.
/// The PEs must synchronise between two transposes: other PEs read `from` and write `to`.
#[kernel(max_threads = 256)]
pub fn fft_post(
    ctx: &Ctx,
    to: SymSlice<u64>,
    from: SymSlice<u64>,
    arrived: Sym<Signal>,
    log2_n: u32,
    round: u64,
) -> Result {
    let (block, warp, n, n_pes) = (Block::current(), Warp::current(), 1usize << log2_n, ctx.n_pes());
    let mine = bands(n, ctx.my_pe(), n_pes);
    for k in 1..n_pes {
        let peer = ctx.pe_after(k);
        if ctx.ptr(to, peer).is_some() {
            continue;
        }
        // One strided put per plane: the rows are consecutive here, and one plane apart at the peer.
        let theirs = bands(n, peer, n_pes);
        let mut z = warp.id() as usize;
        while z < mine.rows {
            let src = ((z << log2_n) + theirs.first) * n;
            let dst = (mine.first + z) * n;
            let rows = from.slice(src..src + theirs.rows * n).blocks(n, n);
            let places = to.slice(dst..dst + (theirs.rows - 1) * n * n + n).blocks(n, n * n);
            ctx.iput_nbi(warp, places, rows, peer)?;
            z += block.size() as usize / LANES;
        }
    }
    // A signal must follow the puts of all warps, so wait until they have been posted.
    block.sync();
    let mut pe = block.rank();
    while pe < n_pes {
        // The signal is strong, so it arrives after all stores and puts to that PE.
        ctx.signal_strong(Thread, arrived.add(1), pe)?;
        pe += block.size();
    }
    ctx.signal_wait_until(block, arrived, Cmp::Ge, round * n_pes as u64)?;
    ctx.quiet(block)
}

/// Calls `f` with each number below `count`, divided among the threads of the block.
#[inline(always)]
fn for_each(block: Block, count: u32, f: impl Fn(u32)) {
    let mut i = block.rank();
    while i < count {
        f(i);
        i += block.size();
    }
}

/// Returns complex number `i` of a view, or zero if `i` is out of bounds.
#[inline(always)]
fn number(view: View<u64>, i: u32) -> Complex {
    Complex::from_word(get(view, i as usize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fft_pass_visits_each_element_once() {
        for (log2_n, columns) in [(1, 0), (1, 1), (3, 0), (3, 1), (7, 1), (11, 1)] {
            let pass = FftPass { log2_n, planes: 1, columns, inverse: 0 };
            let size = pass.lines() * pass.n();
            assert!(size <= TILE && pass.n().is_multiple_of(pass.lines()));
            let mut found: Vec<_> = (0..size).map(|i| pass.place(i)).collect();
            found.sort_unstable();
            let wanted: Vec<_> =
                (0..pass.lines()).flat_map(|line| (0..pass.n()).map(move |k| (line, k))).collect();
            assert_eq!(found, wanted, "{pass:?}");
        }
    }

    #[test]
    fn row_and_column_passes_agree_on_indices() {
        let rows = FftPass { log2_n: 2, planes: 2, columns: 0, inverse: 0 };
        let columns = FftPass { columns: 1, ..rows };
        for (plane, y, x) in [(0, 0, 0), (0, 3, 1), (1, 2, 3)] {
            let wanted = ((plane * 4 + y) * 4 + x) as usize;
            assert_eq!((rows.index(plane * 4 + y, x), columns.index(plane * 4 + x, y)), (wanted, wanted));
        }
    }
}
