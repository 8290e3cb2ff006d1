//! Divides a grid into threads, warps or blocks that work independently.

use rushmem_device::prelude::*;

/// A kind of group of threads, as a kernel argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum GroupKind {
    /// Each thread is a group.
    Thread,
    /// Each warp is a group.
    Warp,
    /// Each block is a group.
    Block,
}

/// Which queues a kernel uses, as a kernel argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum QueueSharing {
    /// Queues that all threads of the GPU share.
    Gpu,
    /// Queues that the threads of a block share.
    Block,
    /// Queues that belong to one thread.
    Exclusive,
}

/// A group that knows its index among the groups of its kind in the grid.
pub(crate) trait Unit: Group {
    /// Returns the index of this group in the grid, and the number of groups of its kind.
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

#[inline(always)]
pub(crate) fn modulo(a: usize, n: usize) -> usize {
    a.checked_rem(n).unwrap_or(0)
}
