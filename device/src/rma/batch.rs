//! Batches: contexts that announce many postings to the NIC with few doorbells.

use core::ops::Deref;

use crate::ctx::Ctx;
use crate::sharing::{Batched, Exclusive, PerBlock, PerGpu, Sharing};

/// A context that delays doorbells. It publishes postings as usual, but announces them to the NIC only when the batch
/// is dropped, or when a call needs them.
///
/// Operations have the same meaning as without a batch. Every wait announces first, so nothing is stuck. These
/// announce:
///
/// - `quiet`, `flush` and other completing calls,
/// - blocking puts and gets, and fetching atomics,
/// - waits and tests through this batch,
/// - a posting that finds the queue full,
/// - dropping the batch.
///
/// Other posters to the same queue may announce the postings earlier. A wait or test through *another* context does not
/// announce them, so drop the batch first. Each thread that opens a batch drops its own. Batches cannot be nested: that
/// does not compile.
///
/// NVSHMEM 3.8: regions. OpenSHMEM: sessions (`shmem_ctx_session_start`). GIN: `AggregateRequests`.
///
/// ```
/// # use rushmem_device::prelude::*;
/// /// Sends `src` to all other PEs, with one doorbell per queue.
/// #[kernel]
/// pub fn send_to_all(ctx: &Ctx, dst: SymSlice<u32>, src: SymSlice<u32>) -> Result {
///     let batch = ctx.batch();
///     let mut k = 1;
///     while k < ctx.n_pes() {
///         batch.put_nbi(Thread, dst, src, ctx.pe_after(k))?;
///         k += 1;
///     }
///     batch.end();
///     ctx.quiet(Thread)
/// }
/// # fn main() {}
/// ```
pub struct Batch<'c, S: Sharing>(Ctx<'c, Batched<S>>);

/// Sharing modes whose contexts can open a batch, because they are not part of one.
pub trait Batchable: Sharing {}
impl Batchable for Exclusive {}
impl Batchable for PerBlock {}
impl Batchable for PerGpu {}

/// # Batches
///
/// Postings that are announced to the NIC together.
impl<S: Batchable> Ctx<'_, S> {
    /// Opens a batch, which lasts until it is dropped.
    #[inline(always)]
    pub fn batch(&self) -> Batch<'_, S> {
        Batch(self.shared_as())
    }
}

impl<S: Sharing> Batch<'_, S> {
    /// Announces the batch's postings and closes it, like dropping it. Does not wait for completion.
    #[inline(always)]
    pub fn end(self) {}

    /// Announces the batch's postings so far and keeps the batch open.
    #[inline(always)]
    pub fn announce(&self) {
        self.0.announce_batches();
    }
}

impl<'c, S: Sharing> Deref for Batch<'c, S> {
    type Target = Ctx<'c, Batched<S>>;

    #[inline(always)]
    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl<S: Sharing> Drop for Batch<'_, S> {
    #[inline(always)]
    fn drop(&mut self) {
        self.0.announce_batches();
    }
}

impl<S: Sharing> Ctx<'_, S> {
    /// Rings the doorbells that were held back for postings in this block's queues, if this context belongs to a batch.
    #[inline(always)]
    pub(crate) fn announce_batches(&self) {
        if !S::BATCHED {
            return;
        }
        // A block posts to one QP per PE for data and one for atomics, which may be the same.
        let mut pe = 0;
        while pe < self.n_pes() {
            self.qp(pe).announce_batch();
            self.atomic_qp(pe).announce_batch();
            pe += 1;
        }
    }
}
