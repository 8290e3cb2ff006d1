//! Time inside of a kernel.

use rushmem_device::arch::now_ns;
use rushmem_device::prelude::*;

/// From when until when a block worked. Element `2 * block` of `spans` gets the begin and the one after it the end, in
/// nanoseconds of a clock that all blocks of a PE share.
pub(crate) struct Span {
    spans: View<u64>,
    begin: u64,
}

impl Span {
    /// Begins, once all threads of the block are here.
    #[inline(always)]
    pub(crate) fn begin(ctx: &Ctx, spans: SymSlice<u64>) -> Self {
        Block::current().sync();
        Self { spans: ctx.local(spans), begin: now_ns() }
    }

    /// Begins anew.
    #[inline(always)]
    pub(crate) fn again(&mut self) {
        self.begin = now_ns();
    }

    /// Ends, once all threads of the block are here.
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
