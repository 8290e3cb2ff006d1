//! Ordering and completion.
//!
//! | call | through a NIC | through mapped memory |
//! |---|---|---|
//! | `fence` | nothing to do while one QP serves a peer: it delivers in order; with several, waits for all of them | a fence at system scope |
//! | `quiet` | waits until the CQ has passed everything posted | the same fence |
//! | `flush` | as `quiet`: a reliable connection acknowledges what has arrived, so that a source is free no earlier | nothing to do: the source has been read when the call returns |
//!
//! `fence_pe`, `quiet_pe`, `quiet_pes` and `flush_pe` do the same for the PEs that they name. All of them speak of
//! what was posted through this context, by whatever thread, before the call; "before" is the program's own: a barrier of the
//! block between a put by one thread and a fence by another suffices.
//!
//! Mapped memory is reached both ways when atomics must go through the NIC, as they must as soon as one PE of the job
//! reaches another so. What was stored before an atomic is there before it, since a fence precedes every doorbell; what
//! is stored after it would overtake it, so `fence` waits for the QPs to those PEs.

use core::panic::Location;

use crate::arch::{Cta, Gpu, Scope, Sys};
use crate::ctx::Ctx;
use crate::ctx_ref::CtxRef;
use crate::error::Result;
use crate::group::{Group, Thread, agree};
use crate::sharing::Sharing;
use crate::view::View;

/// Whom a fence speaks to: CUDA's thread scopes, GPUNetIO's `doca_gpu_dev_verbs_sync_scope`, GIN's `ncclMemFenceScope`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FenceScope {
    /// The threads of the block.
    Block,
    /// All threads of the GPU.
    Gpu,
    /// Peers, NICs and the host too.
    System,
}

impl<S: Sharing> Ctx<S> {
    /// Orders: what the calling thread put, set or signalled before is delivered to each PE before what it issues
    /// to that PE afterwards. Completes nothing. OpenSHMEM 1.6 section 9.11, `shmem_fence`.
    ///
    /// # Errors
    /// Those of [`Ctx::quiet`], when it has to wait: several QPs serve a peer, or atomics on memory that is mapped
    /// here, at least this PE's own, go through the NIC.
    #[inline(always)]
    #[track_caller]
    pub fn fence(&self) -> Result {
        if self.p2p_all() {
            Sys::fence();
            return Ok(());
        }
        fence_slow::<S>(CtxRef::of(self))
    }

    /// Completes: everything posted through this context before, by whatever thread, is delivered and visible at
    /// its PE, gets and fetches have their results. OpenSHMEM 1.6 section 9.11, `shmem_quiet`.
    ///
    /// The threads of the group share the work of looking at the queues.
    ///
    /// # Errors
    /// [`Error::Completion`](crate::Error::Completion) if the NIC ended an operation with an error,
    /// [`Error::Timeout`](crate::Error::Timeout), [`Error::Aborted`](crate::Error::Aborted).
    #[inline(always)]
    #[track_caller]
    pub fn quiet<G: Group>(&self, group: G) -> Result {
        group.sync();
        if self.p2p_all() {
            // The barrier before it makes it speak for all threads of the group, and the one after it tells them.
            if group.leader() {
                Sys::release();
            }
            group.sync();
            return Ok(());
        }
        Sys::fence();
        flush_slow::<G, S>(group, CtxRef::of(self))
    }

    /// [`Ctx::fence`] for a group: covers what each of its threads issued before, and orders it before what any of them
    /// issues afterwards.
    ///
    /// # Errors
    /// Those of [`Ctx::fence`].
    #[inline(always)]
    #[track_caller]
    pub fn fence_group<G: Group>(&self, group: G) -> Result {
        group.sync();
        Sys::fence();
        let mine = if group.leader() { self.fence() } else { Ok(()) };
        agree(group, mine)
    }

    /// [`Ctx::fence`] towards one PE only: what goes to others is not waited for. rocSHMEM's `rocshmem_fence(pe)`.
    ///
    /// # Errors
    /// [`Error::BadPe`](crate::Error::BadPe), and those of [`Ctx::fence`].
    #[inline(always)]
    #[track_caller]
    pub fn fence_pe(&self, pe: u32) -> Result {
        self.check_pe(pe)?;
        if !self.p2p_all() && (self.parts_ref().n_sets > 1 || self.peer_addr::<u8>(pe, 0).is_some()) {
            return self.quiet_pe(pe);
        }
        Sys::fence();
        Ok(())
    }

    /// [`Ctx::quiet`] towards one PE only, for one thread. OpenSHMEM 1.6 section 9.11, `shmem_pe_quiet`; NVSHMEM's
    /// `nvshmemx_qp_quiet`.
    ///
    /// # Errors
    /// [`Error::BadPe`](crate::Error::BadPe), and those of [`Ctx::quiet`].
    #[inline(always)]
    #[track_caller]
    pub fn quiet_pe(&self, pe: u32) -> Result {
        self.check_pe(pe)?;
        Sys::fence();
        self.flush_queues_to(pe)
    }

    /// [`Ctx::quiet`] towards the PEs in `pes` only; the threads of the group share them. OpenSHMEM 1.6 section 9.11,
    /// `shmem_pe_quiet`.
    ///
    /// # Errors
    /// Those of [`Ctx::quiet_pe`].
    #[inline(always)]
    #[track_caller]
    pub fn quiet_pes<G: Group>(&self, group: G, pes: View<u32>) -> Result {
        group.sync();
        let mut mine = Ok(());
        let mut i = group.rank() as usize;
        while i < pes.len() {
            mine = mine.and(self.quiet_pe(pes.load(i)));
            i += group.size() as usize;
        }
        agree(group, mine)
    }

    /// Waits until the sources of all puts posted through this context before may be reused. It says nothing of
    /// delivery, though on a reliable connection both come together. NVSHMEM's `nvshmemx_flush`, GIN's `flush`.
    ///
    /// # Errors
    /// Those of [`Ctx::quiet`].
    #[inline(always)]
    #[track_caller]
    pub fn flush<G: Group>(&self, group: G) -> Result {
        group.sync();
        if self.p2p_all() {
            return Ok(());
        }
        flush_slow::<G, S>(group, CtxRef::of(self))
    }

    /// [`Ctx::flush`] towards one PE only, for one thread.
    ///
    /// # Errors
    /// [`Error::BadPe`](crate::Error::BadPe), and those of [`Ctx::quiet`].
    #[inline(always)]
    #[track_caller]
    pub fn flush_pe(&self, pe: u32) -> Result {
        self.check_pe(pe)?;
        self.flush_queues_to(pe)
    }

    /// Makes this thread's plain stores before it visible to all observers, peers and NICs included, before its
    /// operations after it, and its loads after it see what others have published. `quiet` and `fence` contain one; puts and
    /// signals order what they tell their PE of: stores to this PE's memory, to registered buffers, and to that PE. CUDA's
    /// `__threadfence_system`, rocSHMEM's `rocshmem_threadfence_system`.
    #[inline(always)]
    pub fn fence_system(&self) {
        Sys::fence();
    }

    /// Orders what the calling thread has stored, and has seen of others, before the stores that it makes afterwards, for those
    /// of the `scope` who see one of these and then make a [`Ctx::fence_acquire`]. So one thread can write a source and another
    /// put it: between the two the scope of both is enough, since every put fences for its peer and the NIC by itself. GPUNetIO's
    /// `doca_gpu_dev_verbs_fence_release`.
    ///
    /// ```ignore
    /// source.store(0, value); // a thread of one block
    /// ctx.fence_release(FenceScope::Gpu);
    /// written.store_relaxed(0, 1);
    ///
    /// while written.load_relaxed(0) == 0 {} // a thread of another
    /// ctx.fence_acquire(FenceScope::Gpu);
    /// ctx.put_nbi(Thread, dst, src, pe)?;      // sends `value`
    /// ```
    #[inline(always)]
    pub fn fence_release(&self, scope: FenceScope) {
        match scope {
            FenceScope::Block => Cta::release(),
            FenceScope::Gpu => Gpu::release(),
            FenceScope::System => Sys::release(),
        }
    }

    /// The other half of [`Ctx::fence_release`]: after a load that has seen a store behind such a fence, what that one ordered
    /// may be read, and put. Waits and tests of this crate contain one at system scope. GPUNetIO's
    /// `doca_gpu_dev_verbs_fence_acquire`.
    #[inline(always)]
    pub fn fence_acquire(&self, scope: FenceScope) {
        match scope {
            FenceScope::Block => Cta::acquire(),
            FenceScope::Gpu => Gpu::acquire(),
            FenceScope::System => Sys::acquire(),
        }
    }

    /// Sees to it that what is posted to `pe` from now on by any QP comes after what was posted before by any.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn order_queues(&self, pe: u32) -> Result {
        let several = self.parts_ref().n_sets > 1 && !self.p2p_all();
        if several { self.quiet_pe(pe) } else { self.check_pe(pe) }
    }

    /// Waits until what was posted to `pe`, which is below `n_pes`, is complete.
    #[inline(always)]
    #[track_caller]
    fn flush_queues_to(&self, pe: u32) -> Result {
        if self.p2p_all() { Ok(()) } else { flush_pe_slow::<S>(CtxRef::of(self), pe) }
    }

    /// Waits until all QPs of this context to `pe` have completed what was posted.
    #[inline(always)]
    #[track_caller]
    fn wait_queues(&self, pe: u32) -> Result {
        let p = self.parts_ref();
        let mut mine = Ok(());
        let mut set = p.first_set;
        while set < p.first_set + p.n_sets {
            let qp = self.qp_of_set(set, pe);
            mine = mine.and(qp.wait(qp.last(), Location::caller()));
            set += 1;
        }
        mine
    }
}

/// A [`Ctx::fence`] where not all goes to near PEs.
#[inline(never)]
#[track_caller]
fn fence_slow<S: Sharing>(ctx_ref: CtxRef) -> Result {
    let ctx = ctx_ref.ctx::<S>();
    let p = ctx.parts_ref();
    if p.n_sets > 1 {
        return ctx.quiet(Thread);
    }
    let mut pe = p.mixed_from;
    while pe < p.mixed_to {
        if ctx.peer_addr::<u8>(pe, 0).is_some() {
            let qp = ctx.qp(pe);
            qp.wait(qp.last(), Location::caller())?;
        }
        pe += 1;
    }
    Sys::fence();
    Ok(())
}

/// Waits until all QPs have completed what was posted; the threads of the group share them.
#[inline(never)]
#[track_caller]
fn flush_slow<G: Group, S: Sharing>(group: G, ctx_ref: CtxRef) -> Result {
    let ctx = ctx_ref.ctx::<S>();
    let mut mine = Ok(());
    let mut pe = group.rank();
    while pe < ctx.n_pes() {
        mine = mine.and(ctx.wait_queues(pe));
        pe += group.size();
    }
    agree(group, mine)
}

/// Waits until those to one PE have.
#[inline(never)]
#[track_caller]
fn flush_pe_slow<S: Sharing>(ctx_ref: CtxRef, pe: u32) -> Result {
    ctx_ref.ctx::<S>().wait_queues(pe)
}
