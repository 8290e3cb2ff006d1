//! The methods of [`Pe`] that create and destroy contexts.
#![allow(unsafe_code, reason = "makes the handle of a context from the number of its queues")]

use std::any::TypeId;
use std::time::Instant;

use rushmem_device::{ClaimableSharing, Context};
use rushmem_error::call_site;

use super::Pe;
#[cfg(doc)]
use crate::Error;
use crate::Result;

/// # Contexts
///
/// Contexts have separate queues, for kernels and streams.
impl Pe {
    /// Creates a context with its own queues. Not collective.
    ///
    /// Kernels use it through [`Ctx::context`](rushmem_device::Ctx::context), and the host through a stream
    /// ([`Stream::with_context`](crate::Stream::with_context)). Its operations are ordered and completed independently
    /// of other contexts. OpenSHMEM 1.6 section 9.5, `shmem_ctx_create`.
    ///
    /// ```no_run
    /// # use rushmem::prelude::*;
    /// # use rushmem_device::prelude::*;
    /// #[kernel]
    /// pub fn exchange(ctx: &Ctx, halo: Context<PerGpu>, cells: SymSlice<f32>) -> Result {
    ///     let halo = ctx.context(halo)?;
    ///     halo.put_nbi(Block::current(), cells.slice(0..64), cells.slice(64..128), ctx.pe_after(1))?;
    ///     halo.quiet(Block::current())
    /// }
    ///
    /// # fn solve(pe: &Pe, cells: SymSlice<f32>) -> rushmem::Result<()> {
    /// let halo = pe.context::<PerGpu>()?;
    /// pe.run(LaunchConfig::new(1, 128), exchange(halo, cells))?;
    /// pe.destroy_context(halo)
    /// # }
    /// # fn main() {}
    /// ```
    ///
    /// # Errors
    /// - [`Error::Unavailable`] if all of the job's queues for contexts are in use (setting `context_qps`). This has no
    ///   other effect.
    #[track_caller]
    pub fn context<S: ClaimableSharing>(&self) -> Result<Context<S>> {
        let _site = call_site::enter();
        self.context_of(None)
    }

    /// Creates a context with queues to `peers` only. Not collective.
    ///
    /// No QPs are used for other PEs, and a kernel that posts to one of them fails. Loads and stores to P2P peers need
    /// no queue, and are not restricted. Neither are DC initiators (setting `dc_above`), which serve all PEs.
    ///
    /// # Errors
    /// - [`Error::Misuse`] if a PE does not exist.
    /// - [`Error::Unavailable`] if all of the job's queues for contexts are in use, or if they have been connected to
    ///   all PEs since the start of the job (setting `connect=eager`).
    #[track_caller]
    pub fn context_to<S: ClaimableSharing>(&self, peers: &[u32]) -> Result<Context<S>> {
        let _site = call_site::enter();
        peers.iter().try_for_each(|&pe| self.check_pe("context_to", pe))?;
        let mut peers = peers.to_vec();
        peers.sort_unstable();
        peers.dedup();
        self.context_of(Some(peers))
    }

    fn context_of<S: ClaimableSharing>(&self, peers: Option<Vec<u32>>) -> Result<Context<S>> {
        let index = self.contexts.take(TypeId::of::<S>(), peers, self.service())?;
        // SAFETY: `take` gives a number to one sharing only, as long as the job runs.
        Ok(unsafe { Context::from_raw(index) })
    }

    /// Destroys a context after everything posted to it has completed. Not collective. Afterwards, the data of its puts
    /// is in the memory of their targets, as after `quiet`.
    ///
    /// Kernels must not use the context any more. OpenSHMEM 1.6 section 9.5, `shmem_ctx_destroy`.
    ///
    /// # Errors
    /// - [`Error::Misuse`] if the context has already been destroyed.
    /// - [`Error::Unavailable`] if operations do not complete before the deadline (setting `timeout`).
    #[track_caller]
    pub fn destroy_context<S: ClaimableSharing>(&self, context: Context<S>) -> Result<()> {
        let _site = call_site::enter();
        self.wait_for_dropped();
        let until = Instant::now() + self.config().timeout;
        let ends = |pe, rail| self.memory.ends(pe, rail);
        let set = self.contexts.give_back(TypeId::of::<S>(), context.index(), self.service(), ends, until)?;
        self.watch.complete(set);
        Ok(())
    }
}
