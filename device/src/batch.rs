//! Posting much with few doorbells.

use core::ops::Deref;

use crate::ctx::Ctx;
use crate::sharing::{Batched, Exclusive, PerBlock, PerGpu, Sharing};

/// A context whose doorbells are held back until it ends, or somebody needs what was posted.
///
/// Nothing else changes: operations mean the same, and whatever waits rings first, so that nothing is lost and nobody
/// waits for what lies here. That is `quiet`, `flush` and their kin, blocking puts and gets, fetching atomics, waits and
/// tests through this batch, a full queue, and the end of the batch. It may be rung earlier, by others that post to the same
/// queue. A wait or test through *another* context does not know of this one: end the batch first.
///
/// Each thread that opens a batch ends its own. A batch in a batch does not compile. NVSHMEM 3.8's regions, OpenSHMEM's
/// sessions (`shmem_ctx_session_start`), GIN's `AggregateRequests`.
///
/// ```ignore
/// let batch = ctx.batch();
/// for (part, pe) in parts {
///     batch.put_nbi(Thread, dst, part, pe)?;
/// }
/// batch.end(); // one doorbell for each queue
/// ```
pub struct Batch<S: Sharing>(Ctx<Batched<S>>);

/// A sharing that is not held already.
pub trait Batchable: Sharing {}
impl Batchable for Exclusive {}
impl Batchable for PerBlock {}
impl Batchable for PerGpu {}

impl<S: Batchable> Ctx<S> {
    /// Begins a batch.
    #[inline(always)]
    pub fn batch(&self) -> Batch<S> {
        Batch(self.shared_as())
    }
}

impl<S: Sharing> Batch<S> {
    /// Ends the batch: rings for what it holds back. Completes nothing.
    #[inline(always)]
    pub fn end(self) {}

    /// Batchable for what it holds back, and goes on.
    #[inline(always)]
    pub fn announce(&self) {
        self.0.announce_batches();
    }
}

impl<S: Sharing> Deref for Batch<S> {
    type Target = Ctx<Batched<S>>;

    #[inline(always)]
    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl<S: Sharing> Drop for Batch<S> {
    #[inline(always)]
    fn drop(&mut self) {
        self.0.announce_batches();
    }
}

impl<S: Sharing> Ctx<S> {
    /// Batchable for what this block's queues hold back, if this context belongs to a batch.
    #[inline(always)]
    pub(crate) fn announce_batches(&self) {
        if !S::BATCHED {
            return;
        }
        let mut pe = 0;
        while pe < self.n_pes() {
            self.qp(pe).announce_batch();
            self.atomic_qp(pe).announce_batch();
            pe += 1;
        }
    }
}
