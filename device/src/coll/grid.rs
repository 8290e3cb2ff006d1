//! The grid barrier: all blocks of one kernel.

#![allow(unsafe_code, reason = "updates the words of the grid barrier")]

use crate::abi::DeviceState;
use crate::arch::{Gpu, Scope};
use crate::ctx::Ctx;
use crate::error::{Detail, Error, Result, outcome};
use crate::group::{Block, Group, agree};
use crate::sharing::Sharing;
use crate::wait::poll_until;
use crate::watch;

/// # Grid barrier
///
/// Synchronisation of all blocks of one launch.
impl<S: Sharing> Ctx<'_, S> {
    /// Waits until all blocks of this PE's kernel have called it. CUDA's `grid.sync()`.
    ///
    /// Earlier stores of each block are visible to all blocks afterwards. The call is local to the PE. All threads of all
    /// blocks call it, and all blocks must be resident at once, which `launch_collective` of the host checks. One kernel
    /// of a PE uses it at a time.
    ///
    /// # Errors
    /// - [`Error::Timeout`]: a block did not come before the deadline;
    /// - [`Error::Aborted`]: the job ends.
    #[inline(always)]
    #[track_caller]
    pub fn sync_grid(&self, block: Block) -> Result {
        let _call = watch::grid(block);
        block.sync();
        let mine = if block.leader() { self.await_blocks(block) } else { Ok(()) };
        agree(block, mine)
    }

    /// Waits for the other blocks, in the leader of this one.
    #[inline(always)]
    #[track_caller]
    fn await_blocks(&self, block: Block) -> Result {
        self.announce_batches();
        let state = self.parts_ref().state.ptr::<DeviceState>();
        // SAFETY: the host made the state, and only atomics touch its words.
        let (arrived, generation) =
            unsafe { (&raw mut (*state).grid_arrived.word, &raw mut (*state).grid_generation.word) };
        // SAFETY: the same words.
        unsafe {
            let before = Gpu::load_relaxed(generation);
            Gpu::fence();
            let arrivals = Gpu::fetch_add_relaxed(arrived, 1) + 1;
            if arrivals == block.count() as u64 {
                Gpu::store_relaxed(arrived, 0);
                Gpu::fence();
                Gpu::store_release(generation, before + 1);
                return Ok(());
            }
            let read = || Gpu::load_acquire(generation);
            let (code, _) = poll_until(self.parts_ref().state, None, read, |now| now != before);
            if code == Error::Timeout as u32 {
                let d = Detail { found: arrivals, wanted: block.count() as u64, ..Detail::NONE };
                return Err(self.fail(Error::Timeout, d));
            }
            outcome(code)
        }
    }
}
