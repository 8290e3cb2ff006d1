//! Contexts created by the host: dedicated queues, passed to kernels as arguments.
#![allow(unsafe_code, reason = "implements `KernelArg`, and takes the table of QPs from the host")]

use core::marker::PhantomData;

use crate::abi::LAUNCH_QUEUES;
use crate::arch;
use crate::ctx::Ctx;
use crate::error::{Detail, Error, Result};
use crate::kernel::KernelArg;
use crate::sharing::{Exclusive, PerBlock, PerGpu, Sharing};
use crate::sq::Qp;

/// A context created by the host, as a kernel argument. [`Ctx::context`] turns it into a [`Ctx`].
///
/// `S` is its sharing: [`PerGpu`] for all threads (OpenSHMEM's default and `SHMEM_CTX_SERIALIZED`), [`PerBlock`] for
/// one block at a time, [`Exclusive`] for one thread at a time (`SHMEM_CTX_PRIVATE`). `SHMEM_CTX_NOSTORE` has no
/// equivalent; it would save a single fence.
///
/// OpenSHMEM 1.6 section 9.5, `shmem_ctx_t`.
#[repr(transparent)]
pub struct Context<S = PerGpu> {
    index: u32,
    _sharing: PhantomData<fn() -> S>,
}

impl<S> Clone for Context<S> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<S> Copy for Context<S> {}

impl<S> core::fmt::Debug for Context<S> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Context({})", self.index)
    }
}

// SAFETY: a `repr(transparent)` number that the device checks to be in range. The sharing is part of the type, and the
// runtime never gives the same queues to two sharings.
unsafe impl<S: 'static> KernelArg for Context<S> {}

impl<S> Context<S> {
    /// Returns the handle of host-created context `index`.
    ///
    /// # Safety
    /// No context of another sharing has this number while the job runs.
    pub const unsafe fn from_raw(index: u32) -> Self {
        Self { index, _sharing: PhantomData }
    }

    /// Returns the index of the context, below the setting `context_qps`.
    pub const fn index(self) -> u32 {
        self.index
    }
}

/// Sharing modes of contexts that the host creates and threads claim with [`Ctx::context`].
pub trait ClaimableSharing: Sharing {
    /// Returns the value that identifies the calling thread or block as the owner of a context, in a kernel of launch
    /// queue `queue`. `None` if no claim is needed.
    #[doc(hidden)]
    fn claimant(queue: u64) -> Option<u64>;
}

impl ClaimableSharing for PerGpu {
    #[inline(always)]
    fn claimant(_queue: u64) -> Option<u64> {
        None
    }
}

impl ClaimableSharing for PerBlock {
    #[inline(always)]
    fn claimant(queue: u64) -> Option<u64> {
        // A grid has fewer than 2^31 blocks, and kernels of one queue do not overlap.
        Some((queue << 31) | (arch::block() as u64 + 1))
    }
}

impl ClaimableSharing for Exclusive {
    #[inline(always)]
    fn claimant(_queue: u64) -> Option<u64> {
        // Unique among the threads of a grid, and distinct from all blocks.
        Some(1 << 63 | (arch::block() as u64) << 32 | arch::thread() as u64)
    }
}

/// # Contexts of the host
///
/// Contexts created by the host with `Pe::context`.
impl Ctx<'_> {
    /// Returns the context that the host created for this kernel. Ordering and completion are independent of `self`.
    ///
    /// All threads of a block may claim the same [`PerBlock`] context. Others, including kernels in other streams, can
    /// claim it after every claim has been given up with `release`. The same holds for the single claim on an
    /// [`Exclusive`] context.
    ///
    /// # Errors
    /// - [`Error::Busy`]: another kernel, block or thread holds it.
    /// - [`Error::NoQp`]: the job has no such context (setting `context_qps`).
    #[inline(always)]
    #[track_caller]
    pub fn context<S: ClaimableSharing>(&self, context: Context<S>) -> Result<Ctx<'_, S>> {
        let p = self.parts_ref();
        if context.index >= p.context_sets {
            let (found, wanted) = (p.context_sets as u64, context.index as u64 + 1);
            return Err(self.fail(Error::NoQp, Detail { found, wanted, ..Detail::NONE }));
        }
        // Contexts of the host are stored after the exclusive sets.
        let set = p.n_sets + (p.block_sets + p.exclusive_sets + context.index) * p.rails;
        let own: Ctx<'_, S> = self.narrowed(set);
        // Status words of a PE's launch queues are contiguous, so the address identifies the queue.
        let queue = p.status.0 / 8 % LAUNCH_QUEUES;
        match S::claimant(queue) {
            Some(who) if !own.owner_qp().take_set(who) => Err(self.fail(Error::Busy, Detail::NONE)),
            _ => Ok(own),
        }
    }
}

/// # Release of a block's context
///
/// Release of a context that [`Ctx::context`] has returned.
impl Ctx<'_, PerBlock> {
    /// Releases this thread's claim, made with [`Ctx::context`]. Other blocks can claim the context once all threads of
    /// this block have released it. Does not wait for posted operations.
    #[inline(always)]
    pub fn release(self) {
        self.owner_qp().release_set()
    }
}

impl<S> Ctx<'_, S> {
    /// Returns the QP whose state holds the owner word of the set.
    #[inline(always)]
    pub(crate) fn owner_qp(&self) -> Qp<'_, Exclusive> {
        // SAFETY: as `qp_of_set`; the set exists.
        unsafe { Qp::new(self.qp_entry(self.parts_ref().first_set, 0)) }
    }
}
