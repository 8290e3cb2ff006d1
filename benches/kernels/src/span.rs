//! Time measurement in a kernel.

use rushmem_device::arch::now_ns;
use rushmem_device::prelude::*;

/// The time span of a block's work.
///
/// Element `2 * block` of `spans` gets the start, and the next element the end. Both are in nanoseconds of a clock that
/// all blocks of a PE share.
///
/// The start is stored at once, so that no register holds it meanwhile.
pub(crate) struct Span<'a, 'k> {
    ctx: &'a Ctx<'k>,
    spans: SymSlice<u64>,
}

impl<'a, 'k> Span<'a, 'k> {
    /// Starts the span after all threads of the block have arrived.
    #[inline(always)]
    pub(crate) fn begin(ctx: &'a Ctx<'k>, spans: SymSlice<u64>) -> Self {
        Block::current().sync();
        let span = Self { ctx, spans };
        span.again();
        span
    }

    /// Starts the span again.
    #[inline(always)]
    pub(crate) fn again(&self) {
        self.store_now(0);
    }

    /// Ends the span after all threads of the block have arrived.
    #[inline(always)]
    pub(crate) fn end(self) {
        Block::current().sync();
        self.store_now(1);
    }

    /// Stores the time in element `which` of the block.
    #[inline(always)]
    fn store_now(&self, which: usize) {
        let block = Block::current();
        if block.leader() {
            self.ctx.local(self.spans).store(2 * block.id() as usize + which, now_ns());
        }
    }
}

/// Stores the time in element `which` of `spans`, by one thread.
#[kernel]
pub fn stamp(ctx: &Ctx, spans: SymSlice<u64>, which: u32) {
    ctx.local(spans).store(which as usize, now_ns());
}
