//! Barrier of all blocks of a kernel.

#![allow(unsafe_code, reason = "updates the words of the grid barrier")]

use crate::abi::DeviceState;
use crate::arch::{Gpu, Scope};
use crate::ctx::Ctx;
use crate::error::{Detail, Error, Result, outcome};
use crate::group::{Block, Group, agree};
use crate::sharing::Sharing;
use crate::tend::{Tended, poll_until};
use crate::wait::Until;
use crate::watch;

/// Number of bits of [`DeviceState::grid_failed`] that hold an error code. The others count grid barriers.
const CODE_BITS: u32 = 8;

/// # Grid barrier
///
/// Synchronisation of all blocks of a launch.
impl<S: Sharing> Ctx<'_, S> {
    /// Waits until all blocks of this PE's kernel have called it. CUDA: `grid.sync()`.
    ///
    /// Earlier stores of each block are then visible to all blocks. The call is local to the PE. All threads of all
    /// blocks must call it, and all blocks must be resident at the same time, which the host's `launch_collective`
    /// checks. Only one kernel of a PE may use it at a time.
    ///
    /// # Errors
    /// - [`Error::Timeout`]: a block had not arrived at the deadline.
    /// - [`Error::Aborted`]: the job is being aborted.
    #[inline(always)]
    #[track_caller]
    pub fn sync_grid(&self, block: Block) -> Result {
        let _call = watch::grid(block);
        block.sync();
        let mine = if block.leader() { self.await_blocks(block, 0).map(|_| ()) } else { Ok(()) };
        agree(block, mine)
    }

    /// Waits like [`Ctx::sync_grid`] at the end of a step, with the step's outcome in each thread. If the step has failed in
    /// some block, returns an error in all blocks. A block that returned instead would leave the others waiting until the
    /// deadline.
    ///
    /// ```
    /// # use rushmem_device::prelude::*;
    /// /// Relays the signals of the previous PE, of which each block waits for one. If one does not arrive, no block continues.
    /// #[kernel]
    /// pub fn relay(ctx: &Ctx, arrived: SymSlice<Signal>) -> Result {
    ///     let (block, previous) = (Block::current(), ctx.pe_after(ctx.n_pes() - 1));
    ///     let signal = arrived.at(block.id() as usize);
    ///     let found = ctx.signal_wait_until_from(block, signal, Cmp::Ge, 1, previous);
    ///     ctx.agree_grid(block, found.map(|_| ()))?;
    ///     if block.leader() { ctx.signal_op(signal.set(1), ctx.pe_after(1)) } else { Ok(()) }
    /// }
    /// # fn main() {}
    /// ```
    ///
    /// # Errors
    /// - The thread's own error, if `done` is one.
    /// - [`Error::PeerLost`] in the others if a block has no other error, or [`Error::InGroup`]. If several blocks have errors,
    ///   one of them decides.
    /// - The errors of [`Ctx::sync_grid`].
    #[inline(always)]
    #[track_caller]
    pub fn agree_grid(&self, block: Block, done: Result) -> Result {
        let _call = watch::grid(block);
        let why = match () {
            () if !block.any(done.is_err()) => 0,
            () if block.any(done.is_err_and(|error| error != Error::PeerLost)) => Error::InGroup as u64,
            () => Error::PeerLost as u64,
        };
        let mine = if block.leader() {
            // The cast does not truncate the code of an error.
            self.await_blocks(block, why).and_then(|why| outcome(why as u32))
        } else {
            Ok(())
        };
        done.and(agree(block, mine))
    }

    /// Waits in the leader of a block for the other blocks of the grid. Returns the error code that a block passed as
    /// `failed`, or 0 if all passed 0.
    #[inline(always)]
    #[track_caller]
    fn await_blocks(&self, block: Block, failed: u64) -> Result<u64> {
        self.announce_batches();
        let state = self.parts_ref().state.ptr::<DeviceState>();
        // SAFETY: the host made the state, and only atomics touch its words.
        let (arrived, generation, last_failed) = unsafe {
            (
                &raw mut (*state).grid_arrived.word,
                &raw mut (*state).grid_generation.word,
                &raw mut (*state).grid_failed.word,
            )
        };
        // SAFETY: the same words.
        unsafe {
            // Read before arriving: the last block to arrive advances the generation.
            let before = Gpu::load_relaxed(generation);
            if failed != 0 {
                // Tagged with the generation, so it need not be reset for the next barrier.
                Gpu::store_relaxed(last_failed, (before + 1) << CODE_BITS | failed);
            }
            let last_failure = || {
                let last = Gpu::load_relaxed(last_failed);
                if last >> CODE_BITS == before + 1 { last & ((1 << CODE_BITS) - 1) } else { 0 }
            };
            Gpu::fence();
            let arrivals = Gpu::fetch_add_relaxed(arrived, 1) + 1;
            if arrivals == block.count() as u64 {
                // Reset before the release of the generation, after which blocks may arrive at the next barrier.
                Gpu::store_relaxed(arrived, 0);
                Gpu::fence();
                Gpu::store_release(generation, before + 1);
                return Ok(last_failure());
            }
            let read = || Gpu::load_acquire(generation);
            let (code, _) = poll_until(Tended::of(self), Until::DEADLINE, read, |now| now != before);
            if code == Error::Timeout as u32 {
                let d = Detail { found: arrivals, wanted: block.count() as u64, ..Detail::NONE };
                return Err(self.fail(Error::Timeout, d));
            }
            outcome(code)?;
            Ok(last_failure())
        }
    }
}
