use rushmem_device::arch::now_ns;
use rushmem_device::prelude::*;

/// Measures the time span of a block's work.
///
/// Element `2 * block` of `spans` receives the start time, and the next element the end time, in nanoseconds of a clock
/// that all blocks of a PE share.
///
/// The start time is stored immediately, so it occupies no register during the measured work.
pub(crate) struct Span<'a, 'k> {
    ctx: &'a Ctx<'k>,
    spans: SymSlice<u64>,
}

impl<'a, 'k> Span<'a, 'k> {
    /// Waits for all threads of the block, then records the start time.
    #[inline(always)]
    pub(crate) fn begin(ctx: &'a Ctx<'k>, spans: SymSlice<u64>) -> Self {
        Block::current().sync();
        let span = Self { ctx, spans };
        span.again();
        span
    }

    /// Replaces the recorded start time by the current time, for example after a warm-up call.
    #[inline(always)]
    pub(crate) fn again(&self) {
        self.store_now(0);
    }

    /// Waits for all threads of the block, and records the time.
    #[inline(always)]
    pub(crate) fn end(self) {
        Block::current().sync();
        self.store_now(1);
    }

    #[inline(always)]
    fn store_now(&self, which: usize) {
        let block = Block::current();
        if block.leader() {
            self.ctx.local(self.spans).store(2 * block.id() as usize + which, now_ns());
        }
    }
}

/// Stores the current time, in nanoseconds, in element `which` of `spans`. Runs as one thread.
#[kernel]
pub fn stamp(ctx: &Ctx, spans: SymSlice<u64>, which: u32) {
    ctx.local(spans).store(which as usize, now_ns());
}
