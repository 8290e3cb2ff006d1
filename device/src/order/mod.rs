//! Ordering and completion of operations.
//!
//! | call | through a NIC | through mapped memory |
//! |---|---|---|
//! | `fence` | nothing while one QP serves a peer and delivers in order, a posting if it does not; with several QPs, a wait for all of them | a fence at system scope |
//! | `quiet` | a wait until all postings have completed; a read-back before it, where an ACK does not suffice | a release fence at system scope |
//! | `flush` | the same wait without a read-back: a reliable connection acknowledges received data, so the source is not free any earlier | nothing: the call has read the source |
//!
//! `fence_pe`, `quiet_pe`, `quiet_pes` and `flush_pe` do the same for the PEs they name. All of them cover earlier
//! postings through this context by any thread. "Earlier" means program order, extended by the program's own
//! synchronisation: a block barrier between a put by one thread and a fence by another suffices.
//!
//! Where atomics must use the NIC, as in jobs that span nodes, even a mapped heap is also accessed through the NIC.
//! Stores before such an atomic arrive before it, because a fence precedes every doorbell. Stores after it could
//! overtake it, so `fence` waits for the QPs to those PEs. `delivery.rs` describes strong fences and read-backs.

mod delivery;

use core::panic::Location;

use crate::arch::{Cta, Gpu, Scope, Sys};
use crate::ctx::Ctx;
use crate::ctx::CtxRef;
use crate::error::{Result, both};
use crate::group::{Group, Thread, agree};
use crate::scope::FenceScope;
use crate::sharing::Sharing;
use crate::view::View;
use crate::watch::{self, Event, Ordering};

/// # Fence, quiet and flush
///
/// Ordering and completion of earlier operations.
impl<S: Sharing> Ctx<'_, S> {
    /// Orders delivery: at each PE, the calling thread's earlier puts, sets and signals are delivered before its later
    /// ones.
    ///
    /// Also publishes the thread's earlier stores, to any PE, with its later puts, signals and atomics. Does not
    /// complete any operation, and usually does not wait: see the errors.
    ///
    /// OpenSHMEM 1.6 section 9.11, `shmem_fence`.
    ///
    /// # Errors
    /// - The errors of [`Ctx::quiet`], where it has to wait: several QPs serve a peer, or atomics on mapped memory go
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

    /// Waits until everything posted through this context so far, by any thread, is complete.
    ///
    /// After it, puts are delivered and visible at their PEs, and gets and fetching atomics have stored their results.
    /// All threads of the group call it, and share the queues to wait for. Work posted by threads outside the group is
    /// covered only if it is ordered before the call.
    ///
    /// OpenSHMEM 1.6 section 9.11, `shmem_quiet`.
    ///
    /// # Errors
    /// - [`Error::Completion`](crate::Error::Completion): the NIC completed an operation with an error.
    /// - [`Error::Poisoned`](crate::Error::Poisoned): an earlier error has broken the QP.
    /// - [`Error::PeerLost`](crate::Error::PeerLost): the peer of an operation was lost, and no other error occurred.
    /// - [`Error::Timeout`](crate::Error::Timeout), [`Error::Aborted`](crate::Error::Aborted).
    /// - [`Error::InGroup`](crate::Error::InGroup): another thread of the group encountered the error.
    #[inline(always)]
    #[track_caller]
    pub fn quiet<G: Group>(&self, group: G) -> Result {
        group.sync();
        let _call = watch::lead_own(group, "quiet", Event::order(self.parts_ref(), Ordering::Quiet, None));
        if self.p2p_all() {
            // The first barrier makes the release cover all threads of the group; after the second, all may rely on it.
            // By the PTX model, each thread that announces something later would need its own fence, and `fence.sc` to
            // rule out store buffering. Both would cost a put of 8 bytes with quiet 11 % on an H200. The hardware needs
            // neither, because the fence waits until stores are performed. It does not acquire either: that would
            // invalidate the L1 cache, from which the next put may read its source.
            if group.leader() {
                Sys::release();
            }
            group.sync();
            return Ok(());
        }
        quiet_slow::<G, S, true>(group, CtxRef::of(self))
    }

    /// Completes postings like [`Ctx::quiet`], without ordering stores. The threads of the group must have
    /// synchronised.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn complete_postings<G: Group>(&self, group: G) -> Result {
        quiet_slow::<G, S, false>(group, CtxRef::of(self))
    }

    /// Orders delivery like [`Ctx::fence`] for a whole group: earlier operations of all its threads precede later ones
    /// of any.
    ///
    /// # Errors
    /// - The errors of [`Ctx::fence`].
    #[inline(always)]
    #[track_caller]
    pub fn fence_group<G: Group>(&self, group: G) -> Result {
        watch::note("fence_group", Event::OwnStores);
        group.sync();
        // Each thread fences for its own stores; the leader's fence covers the postings of all.
        Sys::fence();
        let mine = if group.leader() { self.fence() } else { Ok(()) };
        let done = agree(group, mine);
        watch::note("fence_group", Event::OwnOrder { acquires: true, scope: FenceScope::System });
        done
    }

    /// Orders delivery like [`Ctx::fence`], but only at `pe`. Does not wait for operations to other PEs.
    ///
    /// rocSHMEM: `rocshmem_fence(pe)`.
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
            // Several QPs, or stores that bypass the QP, cannot be ordered without waiting. `quiet_pe` fences too.
            return self.quiet_pe(pe);
        } else if self.has_weak() {
            fence_pe_slow::<S>(CtxRef::of(self), pe)
        } else {
            // A single QP that delivers in order needs no help.
            Ok(())
        };
        // Orders this thread's stores, including those to mapped memory.
        Sys::fence();
        ordered
    }

    /// Waits like [`Ctx::quiet`], but only for operations to `pe`, and in one thread.
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
        // Covers this thread's stores to mapped memory, which no CQ reports.
        Sys::fence();
        if self.p2p_all() { Ok(()) } else { quiet_pe_slow::<S>(CtxRef::of(self), pe) }
    }

    /// Waits like [`Ctx::quiet`], but only for operations to the PEs in `pes`, which the threads of the group share.
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
            // Keep the first error, but wait for the other PEs as well.
            mine = mine.and(self.quiet_pe(pes.load(i)));
            i += group.size() as usize;
        }
        let done = agree(group, mine);
        watch::note("quiet_pes", Event::OwnOrder { acquires: false, scope: FenceScope::System });
        done
    }

    /// Waits until the sources of all earlier puts through this context may be reused.
    ///
    /// Does not guarantee delivery, although on a reliable connection both coincide. NVSHMEM: `nvshmemx_flush`. GIN:
    /// `flush`.
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

    /// Waits like [`Ctx::flush`], but only for puts to `pe`, and in one thread.
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

    /// Issues a fence at system scope: all observers, including peers and NICs, see this thread's earlier stores before
    /// its later operations, and its later loads see what others have published.
    ///
    /// [`Ctx::quiet`] and [`Ctx::fence`] include this fence, and calls with a signal publish earlier stores too. Other
    /// puts, [`Ctx::p`], [`Ctx::signal_op`] and atomics do not: fence before one of them announces a store.
    ///
    /// CUDA: `__threadfence_system`. rocSHMEM: `rocshmem_threadfence_system`.
    #[inline(always)]
    pub fn fence_system(&self) {
        let fence = Event::MemoryFence { releases: true, acquires: true, scope: FenceScope::System };
        watch::note("fence_system", fence);
        Sys::fence();
    }

    /// Issues a release fence: orders everything this thread has stored or observed before its later stores, for
    /// threads within `scope` that see one of those stores and then issue [`Ctx::fence_acquire`].
    ///
    /// This allows one thread to write a source and another to put it, if `scope` contains both. Towards the peer and
    /// the NIC, every put fences by itself. GPUNetIO: `doca_gpu_dev_verbs_fence_release`.
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

    /// Issues an acquire fence, the counterpart of [`Ctx::fence_release`]. Call it after a load that has seen a store
    /// made after a release fence; what that fence ordered may then be read, and put.
    ///
    /// Waits and tests of this crate include an acquire fence at system scope. GPUNetIO:
    /// `doca_gpu_dev_verbs_fence_acquire`.
    #[inline(always)]
    pub fn fence_acquire(&self, scope: FenceScope) {
        watch::note("fence_acquire", Event::MemoryFence { releases: false, acquires: true, scope });
        match scope {
            FenceScope::Block => Cta::acquire(),
            FenceScope::Gpu => Gpu::acquire(),
            FenceScope::System => Sys::acquire(),
        }
    }

    /// Orders later postings to `pe` on any QP after all earlier ones on any QP.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn order_queues(&self, pe: u32) -> Result {
        self.check_pe(pe)?;
        // On mapped memory, a store could overtake postings to the same PE.
        let several = || self.parts_ref().n_sets > 1 || self.peer_addr::<u8>(pe, 0).is_some();
        if !self.p2p_all() && several() { self.quiet_pe(pe) } else { Ok(()) }
    }

    /// Waits for the completion of all postings of this context to `pe`, on all QPs.
    #[inline(always)]
    #[track_caller]
    fn wait_queues(&self, pe: u32) -> Result {
        let p = self.parts_ref();
        let mut mine = Ok(());
        // An error does not skip the QPs after it: they still complete what was posted to them.
        let mut set = p.first_set;
        while set < p.first_set + p.n_sets {
            let qp = self.qp_of_set(set, pe);
            mine = both(mine, qp.wait(qp.last(), Location::caller()));
            set += 1;
        }
        mine
    }
}

#[inline(never)]
#[track_caller]
fn fence_slow<S: Sharing>(ctx_ref: CtxRef) -> Result {
    let ctx = ctx_ref.ctx::<S>();
    let p = ctx.parts_ref();
    if p.n_sets > 1 {
        // One QP cannot be ordered after another without waiting.
        return ctx.quiet(Thread);
    }
    // The loss of one PE does not leave the operations to others unordered.
    let (mut pe, mut mine) = (p.mixed_from, Ok(()));
    while pe < p.mixed_to {
        // Mapped, and accessed through the NIC as well: later stores could overtake what the NIC has not delivered.
        if ctx.peer_addr::<u8>(pe, 0).is_some() {
            mine = both(mine, both(ctx.read_back_all(pe), ctx.wait_queues(pe)));
        }
        pe += 1;
    }
    // Only weak QPs need a posting. Without any, skip the loop.
    if ctx.has_weak() {
        let mut pe = 0;
        while pe < p.n_pes {
            mine = both(mine, ctx.fence_queue(pe));
            pe += 1;
        }
    }
    Sys::fence();
    mine
}

#[inline(never)]
#[track_caller]
fn fence_pe_slow<S: Sharing>(ctx_ref: CtxRef, pe: u32) -> Result {
    ctx_ref.ctx::<S>().fence_queue(pe)
}

/// Implements [`Ctx::quiet`] and [`Ctx::complete_postings`] for jobs with NIC peers. With `STORES`, also orders the
/// group's stores.
///
/// Includes the group's agreement on the result, because no call may separate two barriers at the call site: see
/// `sync_block`.
#[inline(never)]
#[track_caller]
fn quiet_slow<G: Group, S: Sharing, const STORES: bool>(group: G, ctx_ref: CtxRef) -> Result {
    // The acquire side of this fence is in the polls, which order what the NIC has written before the final barrier.
    if STORES && group.leader() {
        Sys::fence();
    }
    let ctx = ctx_ref.ctx::<S>();
    let mut mine = Ok(());
    if ctx.has_early_acks() {
        // Post all read-backs before waiting for any, to overlap their round trips.
        let mut i = group.rank();
        while i < ctx.n_entries() {
            mine = both(mine, ctx.read_back(ctx.nth_entry(i)));
            i += group.size();
        }
    }
    agree(group, both(mine, wait_share::<S>(ctx_ref, group.rank(), group.size())))
}

/// Waits for the completion of all postings to `pe`.
#[inline(never)]
#[track_caller]
pub(crate) fn quiet_pe_slow<S: Sharing>(ctx_ref: CtxRef, pe: u32) -> Result {
    let ctx = ctx_ref.ctx::<S>();
    ctx.read_back_all(pe).and(ctx.wait_queues(pe))
}

/// Waits for the completion of all postings to every `step`-th QP of the context, starting with QP `first`. Outlined to
/// keep the register count of its callers low.
#[inline(never)]
#[track_caller]
fn wait_share<S: Sharing>(ctx_ref: CtxRef, first: u32, step: u32) -> Result {
    let ctx = ctx_ref.ctx::<S>();
    let (mut mine, mut i) = (Ok(()), first);
    while i < ctx.n_entries() {
        let qp = ctx.nth_qp(i);
        mine = both(mine, qp.wait_here(qp.last(), Location::caller()));
        i += step;
    }
    mine
}

#[inline(never)]
#[track_caller]
fn flush_slow<G: Group, S: Sharing>(group: G, ctx_ref: CtxRef) -> Result {
    agree(group, wait_share::<S>(ctx_ref, group.rank(), group.size()))
}

#[inline(never)]
#[track_caller]
fn flush_pe_slow<S: Sharing>(ctx_ref: CtxRef, pe: u32) -> Result {
    ctx_ref.ctx::<S>().wait_queues(pe)
}
