//! How a grid is cut into units that work by themselves.

use rushmem_device::prelude::*;

/// A group, as a kernel argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Together {
    /// Each thread by itself.
    Thread,
    /// Warps.
    Warp,
    /// Blocks.
    Block,
}

/// A sharing, as a kernel argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum With {
    /// All threads of the GPU.
    Gpu,
    /// The threads of the block.
    Block,
    /// Nobody.
    Nobody,
}

/// A group that knows which of the grid's groups of its kind it is.
pub(crate) trait Unit: Group {
    /// Index in the grid, and the number of them.
    fn place(self) -> (usize, usize);
}

impl Unit for Thread {
    #[inline(always)]
    fn place(self) -> (usize, usize) {
        (Thread::index(), Thread::count())
    }
}

impl Unit for Warp {
    #[inline(always)]
    fn place(self) -> (usize, usize) {
        let block = Block::current();
        let warps = block.size().div_ceil(32) as usize;
        (block.id() as usize * warps + self.id() as usize, block.count() as usize * warps)
    }
}

impl Unit for Block {
    #[inline(always)]
    fn place(self) -> (usize, usize) {
        (self.id() as usize, self.count() as usize)
    }
}

/// `a` modulo `n`, which is not 0.
#[inline(always)]
pub(crate) fn modulo(a: usize, n: usize) -> usize {
    a.checked_rem(n).unwrap_or(0)
}
