//! Collective calls over all PEs.

use crate::abi::{DeviceState, reserved};
use crate::amo::Op;
use crate::arch::{Gpu, Scope};
use crate::ctx::Ctx;
use crate::error::Result;
use crate::group::{Group, agree};
use crate::heap::{Signal, Sym};
use crate::sharing::Sharing;
use crate::signal::Cmp;

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
            self.posting(word, Op::Add(1), self.pe_after(1 << round))?;
            self.await_word(word, Cmp::Ge, epoch)?;
            round += 1;
        }
        Ok(())
    }
}
