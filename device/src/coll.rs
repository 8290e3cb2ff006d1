//! Collective calls over all PEs.

use crate::abi::{DeviceState, reserved};
use crate::amo::Kind;
use crate::arch::{Gpu, Scope};
use crate::ctx::Ctx;
use crate::error::{Detail, Error, Result};
use crate::group::{Block, Group, agree};
use crate::heap::{Signal, Sym};
use crate::p2p::Cmp;
use crate::sharing::Sharing;
use crate::wait::Watch;

impl<S: Sharing> Ctx<S> {
    /// Waits until every PE has called it: synchronises, completes nothing. OpenSHMEM 1.6 section 9.9,
    /// `shmem_sync_all`.
    ///
    /// One group of each PE calls it at a time. A dissemination barrier: in round `r` each PE adds 1 to a word of
    /// the PE 2^r places on, and waits for its own. The words count barriers and are never reset, so a PE that is
    /// already in the next barrier does no harm.
    ///
    /// # Errors
    /// [`Error::WaitTimeout`](crate::Error::WaitTimeout) when a PE does not come, and those of the atomics.
    #[inline(always)]
    #[track_caller]
    pub fn sync_all<G: Group>(&self, group: G) -> Result {
        group.sync();
        let mine = if group.leader() { self.disseminate() } else { Ok(()) };
        agree(group, mine)
    }

    /// [`Ctx::quiet`] and then [`Ctx::sync_all`]: after it, everything that any PE posted before it is complete.
    /// OpenSHMEM 1.6 section 9.9, `shmem_barrier_all`.
    ///
    /// # Errors
    /// Those of both.
    #[inline(always)]
    #[track_caller]
    pub fn barrier_all<G: Group>(&self, group: G) -> Result {
        self.quiet(group)?;
        self.sync_all(group)
    }

    /// Waits until all blocks of this PE's kernel have called it; what each of them wrote before is visible to all
    /// afterwards. Nothing leaves the PE. CUDA's `grid.sync()`.
    ///
    /// All threads of all blocks call it, all blocks must be resident at once (a launch that could not be is
    /// refused), and one kernel of a PE uses it at a time.
    ///
    /// # Errors
    /// [`Error::Timeout`] when a block does not come, [`Error::Aborted`].
    #[inline(always)]
    #[track_caller]
    pub fn sync_grid(&self, block: Block) -> Result {
        block.sync();
        let mine = if block.leader() { self.await_blocks(block) } else { Ok(()) };
        agree(block, mine)
    }

    /// The leader's part of [`Ctx::sync_grid`].
    #[inline(always)]
    #[track_caller]
    fn await_blocks(&self, block: Block) -> Result {
        self.submit_held();
        let state = self.parts_ref().state.ptr::<DeviceState>();
        // SAFETY: the host made the state, and only atomics touch its words.
        let (arrived, generation) =
            unsafe { (&raw mut (*state).grid_arrived.word, &raw mut (*state).grid_generation.word) };
        // SAFETY: as above.
        unsafe {
            let before = Gpu::load_relaxed(generation);
            Gpu::fence();
            let place = Gpu::fetch_add_relaxed(arrived, 1) + 1;
            if place == block.count() as u64 {
                Gpu::store_relaxed(arrived, 0);
                Gpu::fence();
                Gpu::store_release(generation, before + 1);
                return Ok(());
            }
            let mut watch = Watch::new(self.parts_ref().state);
            while Gpu::load_acquire(generation) == before {
                match watch.turn() {
                    Ok(()) => {}
                    Err(Error::Timeout) => {
                        let wanted = block.count() as u64;
                        let d = Detail { found: place, wanted, ..Detail::NONE };
                        return Err(self.fail(Error::Timeout, d));
                    }
                    Err(other) => return Err(other),
                }
            }
        }
        Ok(())
    }

    #[inline(always)]
    #[track_caller]
    fn disseminate(&self) -> Result {
        let p = self.parts_ref();
        // SAFETY: the host made the state; one group of the PE is in a barrier at a time.
        let epoch = unsafe {
            let word = &raw mut (*p.state.ptr::<DeviceState>()).epoch.word;
            let epoch = Gpu::load_relaxed(word) + 1;
            Gpu::store_relaxed(word, epoch);
            epoch
        };
        let mut round = 0;
        while round < reserved::SYNC_ROUNDS && 1u64 << round < p.n_pes as u64 {
            // SAFETY: the runtime's own words, at the head of every heap.
            let word = unsafe { Sym::<Signal>::from_raw(reserved::SYNC + 8 * round as u64) };
            self.posting(word, Kind::Add, 1, self.pe_after(1 << round))?;
            self.await_word(word, Cmp::Ge, epoch)?;
            round += 1;
        }
        Ok(())
    }
}
