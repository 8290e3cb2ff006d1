//! Contexts that the host makes: queues of their own, given to kernels as arguments.
#![allow(unsafe_code, reason = "implements `KernelArg`, and takes the table of QPs from the host")]

use core::marker::PhantomData;

use crate::arch;
use crate::ctx::Ctx;
use crate::error::{Detail, Error, Result};
use crate::kernel::KernelArg;
use crate::sharing::{Exclusive, PerBlock, PerGpu, Sharing};
use crate::sq::Qp;

/// A context that the host has made, as a kernel argument: [`Ctx::context`] makes it usable.
///
/// `S` is who may post to it: [`PerGpu`] for all threads (OpenSHMEM's default and `SHMEM_CTX_SERIALIZED`), [`PerBlock`] for
/// one block at a time, [`Exclusive`] for one thread at a time (`SHMEM_CTX_PRIVATE`). `SHMEM_CTX_NOSTORE` has no counterpart: what
/// it would save is one fence. OpenSHMEM 1.6 section 9.5, `shmem_ctx_t`.
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

// SAFETY: `repr(transparent)` number, of which the device checks that it is in range; who posts is part of the type, and the
// runtime never gives the same queues to two sharings.
unsafe impl<S: 'static> KernelArg for Context<S> {}

impl<S> Context<S> {
    /// Context number `index` of those that the host makes.
    ///
    /// # Safety
    /// No context of another sharing has this number while the job runs.
    pub const unsafe fn from_raw(index: u32) -> Self {
        Self { index, _sharing: PhantomData }
    }

    /// Its number.
    pub const fn index(self) -> u32 {
        self.index
    }
}

/// How a thread becomes one of those that may post to a context.
pub trait Claim: Sharing {
    /// Who claims; `None` if nobody has to.
    #[doc(hidden)]
    fn claimant() -> Option<u64>;
}

impl Claim for PerGpu {
    #[inline(always)]
    fn claimant() -> Option<u64> {
        None
    }
}

impl Claim for PerBlock {
    #[inline(always)]
    fn claimant() -> Option<u64> {
        Some(arch::block() as u64 + 1)
    }
}

impl Claim for Exclusive {
    #[inline(always)]
    fn claimant() -> Option<u64> {
        // No two threads of a grid, and no block, are the same.
        Some(1 << 63 | (arch::block() as u64) << 32 | arch::thread() as u64)
    }
}

impl Ctx {
    /// The context that the host made for this kernel; quiet and fence of one do not concern the other. All threads of a
    /// block may take the same [`PerBlock`] context; they, or the thread that took an [`Exclusive`] one, give it back with
    /// `release` before others can have it.
    ///
    /// # Errors
    /// [`Error::Busy`] if another block or thread has it; [`Error::NoQp`] if the job has no such context (`context_qps`).
    #[inline(always)]
    #[track_caller]
    pub fn context<S: Claim>(&self, context: Context<S>) -> Result<Ctx<S>> {
        let p = self.parts_ref();
        if context.index >= p.context_sets {
            let (found, wanted) = (p.context_sets as u64, context.index as u64 + 1);
            return Err(self.fail(Error::NoQp, Detail { found, wanted, ..Detail::NONE }));
        }
        let set = p.n_sets + (p.block_sets + p.exclusive_sets + context.index) * p.rails;
        let own: Ctx<S> = self.narrowed(set);
        match S::claimant() {
            Some(who) if !own.owner_qp().take_set(who) => Err(self.fail(Error::Busy, Detail::NONE)),
            _ => Ok(own),
        }
    }
}

impl Ctx<PerBlock> {
    /// Gives the context back that the calling block took with [`Ctx::context`]: for one thread of it, after a barrier of
    /// the block. What was posted goes on.
    #[inline(always)]
    pub fn release(self) {
        self.owner_qp().release_set()
    }
}

impl<S> Ctx<S> {
    /// The QP whose owner word says who has the set.
    #[inline(always)]
    pub(crate) fn owner_qp(&self) -> Qp<'_, Exclusive> {
        // SAFETY: as `qp_of_set`; the set exists.
        unsafe { Qp::new(self.qp_entry(self.parts_ref().first_set, 0)) }
    }
}
