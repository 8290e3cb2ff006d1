//! Time measurement in a kernel.

use rushmem_device::arch::now_ns;
use rushmem_device::prelude::*;

/// The time span of a block's work.
///
/// Element `2 * block` of `spans` gets the start, and the next element the end. Both are in nanoseconds of a clock that
/// all blocks of a PE share.
pub(crate) struct Span<'k> {
    spans: View<'k, u64>,
    begin: u64,
}

impl<'k> Span<'k> {
    /// Starts the span after all threads of the block have arrived.
    #[inline(always)]
    pub(crate) fn begin(ctx: &Ctx<'k>, spans: SymSlice<u64>) -> Self {
        Block::current().sync();
        Self { spans: ctx.local(spans), begin: now_ns() }
    }

    /// Starts the span again.
    #[inline(always)]
    pub(crate) fn again(&mut self) {
        self.begin = now_ns();
    }

    /// Ends the span after all threads of the block have arrived.
    #[inline(always)]
    pub(crate) fn end(self) {
        let block = Block::current();
        block.sync();
        if block.leader() {
            let at = 2 * block.id() as usize;
            self.spans.store(at, self.begin);
            self.spans.store(at + 1, now_ns());
        }
    }
}
