//! Ordering and completion.
//!
//! | call | through a NIC | through mapped memory |
//! |---|---|---|
//! | `fence` | nothing while one QP serves a peer and delivers in order, a posting if it does not; with several QPs, a wait for all of them | a fence at system scope |
//! | `quiet` | a wait until the CQ has passed all postings; a read-back before it, if an ACK does not suffice | a release fence at system scope |
//! | `flush` | the same wait without a read-back: a reliable connection acknowledges received data, so the source is free no earlier | nothing: the call has read the source |
//!
//! `fence_pe`, `quiet_pe`, `quiet_pes` and `flush_pe` do the same for the PEs that they name. All of them cover earlier
//! postings through this context by any thread. "Earlier" is the program's own order: a barrier of the block between a
//! put of one thread and a fence of another suffices.
//!
//! A mapped heap is also accessed through the NIC if atomics must use the NIC, as in jobs of several nodes. Stores before
//! such an atomic arrive before it, since a fence precedes every doorbell. Stores after it could overtake it, so `fence`
//! waits for the QPs to those PEs. `delivery.rs` explains strong fences and read-backs.

use core::panic::Location;

use crate::arch::{Cta, Gpu, Scope, Sys};
use crate::ctx::Ctx;
use crate::ctx::CtxRef;
use crate::error::Result;
use crate::group::{Group, Thread, agree};
use crate::scope::FenceScope;
use crate::sharing::Sharing;
use crate::view::View;
use crate::watch::{self, Event, Ordering};

/// # Fence, quiet and flush
///
/// Order and completion of earlier operations.
impl<S: Sharing> Ctx<'_, S> {
    /// Orders delivery: to each PE, the calling thread's earlier puts, sets and signals are delivered before its later
    /// ones. It also publishes the thread's earlier stores, to any PE, with its later puts, signals and atomics. It completes
    /// nothing.
    ///
    /// OpenSHMEM 1.6 section 9.11, `shmem_fence`.
    ///
    /// # Errors
    /// - The errors of [`Ctx::quiet`], if it has to wait: several QPs serve a peer, or atomics on mapped memory go
    ///   through the NIC.
    #[inline(always)]
    #[track_caller]
    pub fn fence(&self) -> Result {
        let _call = watch::call("fence", Event::order(self.parts_ref(), Ordering::Fence, None));
        if self.p2p_all() {
            Sys::fence();
            return Ok(());
        }
        fence_slow::<S>(CtxRef::of(self))
    }

    /// Completes everything posted through this context before, by any thread. Puts are delivered and visible at their
    /// PEs, gets and fetching atomics have their results.
    ///
    /// The threads of the group share the queues to wait for.
    ///
    /// OpenSHMEM 1.6 section 9.11, `shmem_quiet`.
    ///
    /// # Errors
    /// - [`Error::Completion`](crate::Error::Completion): the NIC ended an operation with an error.
    /// - [`Error::Poisoned`](crate::Error::Poisoned): the QP had ended before.
    /// - [`Error::Timeout`](crate::Error::Timeout), [`Error::Aborted`](crate::Error::Aborted).
    /// - [`Error::InGroup`](crate::Error::InGroup): another thread of the group met the error.
    #[inline(always)]
    #[track_caller]
    pub fn quiet<G: Group>(&self, group: G) -> Result {
        group.sync();
        let _call = watch::lead_own(group, "quiet", Event::order(self.parts_ref(), Ordering::Quiet, None));
        if self.p2p_all() {
            // The first barrier makes the release cover all threads of the group; the second one lets all rely on it. PTX would
            // have each thread fence that announces something later, and `fence.sc` to forbid store buffering. Both cost a put of
            // 8 bytes with quiet 11 % on an H200. The hardware needs neither: the fence waits until stores are performed. Nor
            // does it acquire, since that would empty the L1 cache, from which the next put may read its source.
            if group.leader() {
                Sys::release();
            }
            group.sync();
            return Ok(());
        }
        quiet_slow::<G, S, true>(group, CtxRef::of(self))
    }

    /// Completes postings like [`Ctx::quiet`], and orders no stores. The group has synchronised.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn complete_postings<G: Group>(&self, group: G) -> Result {
        quiet_slow::<G, S, false>(group, CtxRef::of(self))
    }

    /// Orders delivery like [`Ctx::fence`], for a group: earlier operations of all its threads before later ones of
    /// any.
    ///
    /// # Errors
    /// - The errors of [`Ctx::fence`].
    #[inline(always)]
    #[track_caller]
    pub fn fence_group<G: Group>(&self, group: G) -> Result {
        watch::note("fence_group", Event::OwnStores);
        group.sync();
        Sys::fence();
        let mine = if group.leader() { self.fence() } else { Ok(()) };
        let done = agree(group, mine);
        watch::note("fence_group", Event::OwnOrder { acquires: true, scope: FenceScope::System });
        done
    }

    /// Orders delivery like [`Ctx::fence`], to one PE only. It does not wait for operations to others. rocSHMEM:
    /// `rocshmem_fence(pe)`.
    ///
    /// # Errors
    /// - [`Error::BadPe`](crate::Error::BadPe), and the errors of [`Ctx::fence`].
    #[inline(always)]
    #[track_caller]
    pub fn fence_pe(&self, pe: u32) -> Result {
        self.check_pe(pe)?;
        watch::note("fence_pe", Event::order(self.parts_ref(), Ordering::Fence, Some(pe)));
        let ordered = if self.p2p_all() {
            Ok(())
        } else if self.parts_ref().n_sets > 1 || self.peer_addr::<u8>(pe, 0).is_some() {
            return self.quiet_pe(pe);
        } else if self.has_weak() {
            fence_pe_slow::<S>(CtxRef::of(self), pe)
        } else {
            Ok(())
        };
        Sys::fence();
        ordered
    }

    /// Completes operations like [`Ctx::quiet`], to one PE only, for one thread.
    ///
    /// OpenSHMEM 1.6 section 9.11, `shmem_pe_quiet`. NVSHMEM: `nvshmemx_qp_quiet`.
    ///
    /// # Errors
    /// - [`Error::BadPe`](crate::Error::BadPe), and the errors of [`Ctx::quiet`].
    #[inline(always)]
    #[track_caller]
    pub fn quiet_pe(&self, pe: u32) -> Result {
        self.check_pe(pe)?;
        let _call = watch::call("quiet_pe", Event::order(self.parts_ref(), Ordering::Quiet, Some(pe)));
        Sys::fence();
        if self.p2p_all() { Ok(()) } else { quiet_pe_slow::<S>(CtxRef::of(self), pe) }
    }

    /// Completes operations like [`Ctx::quiet`], to the PEs in `pes` only. The threads of the group share the PEs.
    ///
    /// OpenSHMEM 1.6 section 9.11, `shmem_pe_quiet`.
    ///
    /// # Errors
    /// - The errors of [`Ctx::quiet_pe`].
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
        let done = agree(group, mine);
        watch::note("quiet_pes", Event::OwnOrder { acquires: false, scope: FenceScope::System });
        done
    }

    /// Waits until the sources of all earlier puts through this context may be reused. It does not promise delivery,
    /// although on a reliable connection both come together. NVSHMEM: `nvshmemx_flush`. GIN: `flush`.
    ///
    /// # Errors
    /// - The errors of [`Ctx::quiet`].
    #[inline(always)]
    #[track_caller]
    pub fn flush<G: Group>(&self, group: G) -> Result {
        group.sync();
        let _call = watch::call("flush", Event::order(self.parts_ref(), Ordering::Flush, None));
        if self.p2p_all() {
            return Ok(());
        }
        flush_slow::<G, S>(group, CtxRef::of(self))
    }

    /// Waits like [`Ctx::flush`], for puts to one PE only, in one thread.
    ///
    /// # Errors
    /// - [`Error::BadPe`](crate::Error::BadPe), and the errors of [`Ctx::quiet`].
    #[inline(always)]
    #[track_caller]
    pub fn flush_pe(&self, pe: u32) -> Result {
        self.check_pe(pe)?;
        let _call = watch::call("flush_pe", Event::order(self.parts_ref(), Ordering::Flush, Some(pe)));
        if self.p2p_all() { Ok(()) } else { flush_pe_slow::<S>(CtxRef::of(self), pe) }
    }

    /// Makes a fence at system scope: all observers, peers and NICs included, see this thread's earlier stores before
    /// its later operations. Its later loads see what others have published.
    ///
    /// [`Ctx::quiet`] and [`Ctx::fence`] contain one, and calls with a signal publish earlier stores, too. Other puts, `p`,
    /// [`Ctx::signal_op`] and atomics publish nothing: make this fence before one that announces a store. CUDA: `__threadfence_system`. rocSHMEM: `rocshmem_threadfence_system`.
    #[inline(always)]
    pub fn fence_system(&self) {
        let fence = Event::MemoryFence { releases: true, acquires: true, scope: FenceScope::System };
        watch::note("fence_system", fence);
        Sys::fence();
    }

    /// Makes a release fence: orders everything that the calling thread has stored or seen before its later stores. It
    /// applies to threads of the `scope` that see one of these stores and then make a [`Ctx::fence_acquire`].
    ///
    /// So one thread can write a source and another can put it, with the scope that contains both. Every put fences for
    /// its peer and the NIC by itself. GPUNetIO: `doca_gpu_dev_verbs_fence_release`.
    ///
    /// ```
    /// # use rushmem_device::prelude::*;
    /// /// Block 0 writes the source, block 1 sends it.
    /// #[kernel]
    /// pub fn hand_over(ctx: &Ctx, dst: SymSlice<u64>, src: SymSlice<u64>, written: SymSlice<u64>) -> Result {
    ///     if Block::current().id() == 0 {
    ///         ctx.local(src).store(0, 7);
    ///         ctx.fence_release(FenceScope::Gpu);
    ///         ctx.local(written).store_relaxed(0, 1);
    ///         return Ok(());
    ///     }
    ///     while ctx.local(written).load_relaxed(0) == 0 {
    ///         rushmem_device::arch::spin();
    ///     }
    ///     ctx.fence_acquire(FenceScope::Gpu);
    ///     ctx.put(Thread, dst, src, ctx.pe_after(1)) // sends 7
    /// }
    /// # fn main() {}
    /// ```
    #[inline(always)]
    pub fn fence_release(&self, scope: FenceScope) {
        watch::note("fence_release", Event::MemoryFence { releases: true, acquires: false, scope });
        match scope {
            FenceScope::Block => Cta::release(),
            FenceScope::Gpu => Gpu::release(),
            FenceScope::System => Sys::release(),
        }
    }

    /// Makes an acquire fence, the counterpart of [`Ctx::fence_release`]: call it after a load that has seen a store
    /// behind such a fence. The stores ordered by that fence may then be read, and put.
    ///
    /// Waits and tests of this crate contain one at system scope. GPUNetIO: `doca_gpu_dev_verbs_fence_acquire`.
    #[inline(always)]
    pub fn fence_acquire(&self, scope: FenceScope) {
        watch::note("fence_acquire", Event::MemoryFence { releases: false, acquires: true, scope });
        match scope {
            FenceScope::Block => Cta::acquire(),
            FenceScope::Gpu => Gpu::acquire(),
            FenceScope::System => Sys::acquire(),
        }
    }

    /// Orders later postings to `pe` by any QP after all earlier ones by any QP.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn order_queues(&self, pe: u32) -> Result {
        self.check_pe(pe)?;
        // A store to a P2P peer could overtake postings to it.
        let several = || self.parts_ref().n_sets > 1 || self.peer_addr::<u8>(pe, 0).is_some();
        if !self.p2p_all() && several() { self.quiet_pe(pe) } else { Ok(()) }
    }

    /// Waits until all QPs of this context to `pe` have completed their postings.
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

/// Fences where some PEs are not P2P peers.
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
            ctx.read_back_all(pe)?;
            ctx.wait_queues(pe)?;
        }
        pe += 1;
    }
    if ctx.has_weak() {
        let mut pe = 0;
        while pe < p.n_pes {
            ctx.fence_queue(pe)?;
            pe += 1;
        }
    }
    Sys::fence();
    Ok(())
}

/// Fences for one PE where its QP may be weak.
#[inline(never)]
#[track_caller]
fn fence_pe_slow<S: Sharing>(ctx_ref: CtxRef, pe: u32) -> Result {
    ctx_ref.ctx::<S>().fence_queue(pe)
}

/// Completes all postings. The threads of the group share the QPs. With `STORES`, their stores are ordered too.
///
/// The group agrees here and not at the call site, because a call may not lie between two barriers: see `sync_block`.
#[inline(never)]
#[track_caller]
fn quiet_slow<G: Group, S: Sharing, const STORES: bool>(group: G, ctx_ref: CtxRef) -> Result {
    // The acquire side of this fence is in the polls: they order what the NIC has written before the barrier at the end.
    if STORES && group.leader() {
        Sys::fence();
    }
    let ctx = ctx_ref.ctx::<S>();
    let mut mine = Ok(());
    if ctx.has_early_acks() {
        // All read-backs travel together.
        let mut i = group.rank();
        while i < ctx.n_entries() {
            mine = mine.and(ctx.read_back(ctx.nth_entry(i)));
            i += group.size();
        }
    }
    agree(group, mine.and(wait_share::<S>(ctx_ref, group.rank(), group.size())))
}

/// Completes all postings to one PE.
#[inline(never)]
#[track_caller]
pub(crate) fn quiet_pe_slow<S: Sharing>(ctx_ref: CtxRef, pe: u32) -> Result {
    let ctx = ctx_ref.ctx::<S>();
    ctx.read_back_all(pe).and(ctx.wait_queues(pe))
}

/// Waits until every `step`-th QP, from QP `first` on, has completed its postings. Outlined, so that its callers keep few
/// registers.
#[inline(never)]
#[track_caller]
fn wait_share<S: Sharing>(ctx_ref: CtxRef, first: u32, step: u32) -> Result {
    let ctx = ctx_ref.ctx::<S>();
    let (mut mine, mut i) = (Ok(()), first);
    while i < ctx.n_entries() {
        let qp = ctx.nth_qp(i);
        mine = mine.and(qp.wait_here(qp.last(), Location::caller()));
        i += step;
    }
    mine
}

/// Waits until all QPs have completed their postings. The threads of the group share the QPs.
#[inline(never)]
#[track_caller]
fn flush_slow<G: Group, S: Sharing>(group: G, ctx_ref: CtxRef) -> Result {
    agree(group, wait_share::<S>(ctx_ref, group.rank(), group.size()))
}

/// Waits until all QPs to one PE have completed their postings.
#[inline(never)]
#[track_caller]
fn flush_pe_slow<S: Sharing>(ctx_ref: CtxRef, pe: u32) -> Result {
    ctx_ref.ctx::<S>().wait_queues(pe)
}
