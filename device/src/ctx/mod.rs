//! The context of a kernel: its PE, its symmetric memory and its queues.
#![allow(unsafe_code, reason = "a context trusts the addresses that the host gave it")]

mod addresses;
mod context;
mod ctx_ref;
mod exit;
mod position;
mod queues;
mod resident;
pub(crate) mod segment;

use core::marker::PhantomData;
use core::panic::Location;

use crate::abi::{self, CtxParts, DevAddr, ctx_flags};
use crate::arch::{self, Scope, Sys, SysWord};
use crate::error::{Detail, Error, Result, record, write_record};
use crate::sharing::{Exclusive, PerBlock, PerGpu};

pub use context::{ClaimableSharing, Context};
pub(crate) use ctx_ref::CtxRef;
pub(crate) use queues::far_end;

/// The context of a kernel. Every operation is a method of it.
///
/// `S` is the set of threads that share its queues. A kernel receives a `Ctx<PerGpu>`, which any thread of the GPU may
/// use. [`Ctx::per_block`] and [`Ctx::exclusive`] return narrower contexts, which post with less synchronisation. Only
/// the runtime can create a context, because device code trusts the addresses in it.
///
/// `'k` is the lifetime of the kernel. A context cannot outlive it or move to another host thread:
///
/// ```compile_fail
/// # use rushmem_device::prelude::*;
/// fn keep(ctx: &Ctx) -> &'static Ctx<'static> {
///     ctx
/// }
/// ```
#[repr(transparent)]
pub struct Ctx<'k, S = PerGpu> {
    parts: CtxParts,
    /// The sharing, the lifetime of the kernel, and a pointer that makes the context neither `Send` nor `Sync`.
    _marker: PhantomData<(S, &'k (), *mut ())>,
}

/// # Construction
///
/// For code that launches kernels itself.
impl<S> Ctx<'_, S> {
    /// Creates a context from its parts.
    ///
    /// # Safety
    /// Every address in `parts` leads to what its field describes, sized for the counts in `parts`. It stays valid
    /// while a kernel may use the context. `S` names the threads that share the QP sets.
    #[inline(always)]
    pub const unsafe fn from_parts(parts: CtxParts) -> Self {
        Self { parts, _marker: PhantomData }
    }

    /// Returns whether host and kernel agree on the ABI layout.
    #[inline(always)]
    pub(crate) fn trusted(&self) -> bool {
        let h = &self.parts.header;
        (h.magic == abi::MAGIC) & (h.version == abi::VERSION) & (h.layout == abi::LAYOUT)
    }
}

/// # Contexts of a block or of a thread
///
/// Contexts whose QPs are shared by fewer threads.
impl Ctx<'_> {
    /// Returns a context with queues for the calling block only.
    ///
    /// The kernel needs the attribute `#[kernel(per_block)]`. Blocks with the same index use the same queues in all
    /// kernels, so the host refuses to launch such a kernel while another kernel of the PE may be running. Kernels that
    /// run concurrently use contexts created by the host instead: see [`Ctx::context`].
    ///
    /// # Errors
    /// - [`Error::NoQp`]: the job has fewer per-block QPs than the grid has blocks (setting `block_qps`), or the kernel lacks
    ///   the attribute.
    #[inline(always)]
    #[track_caller]
    pub fn per_block(&self) -> Result<Ctx<'_, PerBlock>> {
        let p = &self.parts;
        let block = arch::block();
        if block >= p.block_sets || p.flags & ctx_flags::PER_BLOCK == 0 {
            let d = Detail { found: p.block_sets as u64, wanted: block as u64 + 1, ..Detail::NONE };
            return Err(self.fail(Error::NoQp, d));
        }
        Ok(self.narrowed(p.n_sets + block * p.rails))
    }

    /// Claims set `index` of the job's exclusive queues for the calling thread, and returns a context with them.
    ///
    /// Posting through it needs no atomic operations. [`Ctx::release`] returns the set.
    ///
    /// # Errors
    /// - [`Error::NoQp`]: there is no such set (setting `exclusive_qps`).
    /// - [`Error::Busy`]: another thread holds the set.
    #[inline(always)]
    #[track_caller]
    pub fn exclusive(&self, index: u32) -> Result<Ctx<'_, Exclusive>> {
        let p = &self.parts;
        if index >= p.exclusive_sets {
            let d = Detail { found: p.exclusive_sets as u64, wanted: index as u64 + 1, ..Detail::NONE };
            return Err(self.fail(Error::NoQp, d));
        }
        // Exclusive sets are stored after the shared and the per-block ones.
        let set = p.n_sets + (p.block_sets + index) * p.rails;
        let mine = self.narrowed(set);
        // The claimant with all bits set is a single thread: see `take_set`.
        if mine.owner_qp().take_set(u64::MAX) { Ok(mine) } else { Err(self.fail(Error::Busy, Detail::NONE)) }
    }

    /// Records that host and kernel disagree on the ABI layout. In that case, only the fixed part of the header can be
    /// trusted.
    #[cold]
    pub(crate) fn report_layout(&self) {
        let h = &self.parts.header;
        if h.magic != abi::MAGIC {
            return; // not a context at all, so there is no page to write to
        }
        let d = Detail { found: h.layout, wanted: abi::LAYOUT, offset: h.version as u64, ..Detail::NONE };
        write_record(h.control, 0, u32::MAX, Error::Layout as u32, d, Location::caller());
    }

    /// Marks this launch as failed in the status word of its launch queue, unless an earlier launch has failed already.
    #[cold]
    pub(crate) fn mark_failed(&self) {
        mark_failed(self.parts.status, self.parts.mark);
    }
}

impl<S> Ctx<'_, S> {
    /// Returns whether an earlier launch of the same launch queue has failed. Ignores a failure of this launch itself,
    /// so all threads of the launch get the same answer.
    ///
    /// The first launch after the failed one seals the status word, so a graph does not run the failed launch again.
    #[inline(always)]
    pub(crate) fn follows_failure(&self) -> bool {
        let p = &self.parts;
        if p.status.0 == 0 {
            return false;
        }
        // SAFETY: the host made the word, and only atomics touch it while kernels run.
        let found = unsafe { Sys::load_relaxed(p.status.ptr()) };
        // A failure of this launch does not count, or its threads could disagree.
        if found == 0 || found == p.mark {
            return false;
        }
        // SAFETY: as above; all who write now write the same.
        unsafe { Sys::store_relaxed(p.status.ptr(), found | abi::SEALED) };
        true
    }
}

/// # Atomics within a node
///
/// Atomics on words that only PEs of one node update.
impl<S> Ctx<'_, S> {
    /// Returns a context with the same queues, for atomics and signals on words that only PEs of one node update.
    ///
    /// Processor atomics and NIC atomics are not atomic with respect to each other. In a job that spans nodes, atomics
    /// and signals with [`SignalOp::Add`](crate::SignalOp::Add) to P2P peers therefore go through the NIC. The returned
    /// context executes them as processor atomics, as every context does in a job on one node. If the links within the
    /// node do not support atomics, the NIC still executes them.
    ///
    /// **The promise**: the word is only accessed by atomics and signals through such contexts, and only by its own PE
    /// and P2P peers of that PE. Other PEs do not even read it atomically. If the promise is broken, updates may be
    /// lost. The setting `p2p_atomics` makes this promise for all words of a job.
    ///
    /// ```
    /// # use rushmem_device::prelude::*;
    /// /// Draws a ticket of this node. Only PEs of the node use the word.
    /// #[kernel]
    /// pub fn draw(ctx: &Ctx, tickets: Sym<u64>, first_of_node: u32, mine: Sym<u64>) -> Result {
    ///     if Thread::index() == 0 {
    ///         let ticket = ctx.for_node_words().atomic_fetch_inc(tickets, first_of_node)?;
    ///         ctx.local(mine.as_slice()).store(0, ticket);
    ///     }
    ///     Ok(())
    /// }
    /// # fn main() {}
    /// ```
    #[inline(always)]
    pub fn for_node_words(&self) -> Ctx<'_, S> {
        const { assert!(ctx_flags::NODE_ATOMICS == ctx_flags::P2P_ATOMICS << 5) };
        // Shift the flag into place instead of branching on it.
        let atomics = self.parts.flags >> 5 & ctx_flags::P2P_ATOMICS;
        self.with_flags(self.parts.flags | atomics)
    }

    /// Returns a context with the same queues, for atomics on words that any PE of the job may update.
    #[inline(always)]
    pub(crate) fn for_job_words(&self) -> Ctx<'_, S> {
        // Any PE may update the word, so processor atomics are safe only if no heap is accessed through a NIC.
        let atomics = if self.p2p_heaps() { ctx_flags::P2P_ATOMICS } else { 0 };
        self.with_flags(self.parts.flags & !ctx_flags::P2P_ATOMICS | atomics)
    }

    #[inline(always)]
    fn with_flags(&self, flags: u32) -> Ctx<'_, S> {
        Ctx { parts: CtxParts { flags, ..self.parts }, _marker: PhantomData }
    }
}

/// # Release of a thread's context
///
/// Release of the QPs that [`Ctx::exclusive`] has claimed.
impl Ctx<'_, Exclusive> {
    /// Releases the exclusive queues. Does not wait for posted operations: call [`Ctx::quiet`] first to complete them.
    #[inline(always)]
    pub fn release(self) {
        self.owner_qp().release_set()
    }
}

/// # PEs
///
/// Number of this PE, number of PEs in the job, and which of them are P2P peers.
impl<S> Ctx<'_, S> {
    /// Returns this PE's number, from 0 to `n_pes() - 1`.
    ///
    /// OpenSHMEM 1.6 section 9.2, `shmem_my_pe`.
    #[inline(always)]
    pub fn my_pe(&self) -> u32 {
        self.parts.pe
    }

    /// Returns the number of PEs in the job.
    ///
    /// OpenSHMEM 1.6 section 9.2, `shmem_n_pes`.
    #[inline(always)]
    pub fn n_pes(&self) -> u32 {
        self.parts.n_pes
    }

    /// Returns the PE that follows this one at distance `k` in the ring of all PEs.
    #[inline(always)]
    pub fn pe_after(&self, k: u32) -> u32 {
        let (pe, n) = (self.parts.pe as u64 + k as u64, self.parts.n_pes as u64);
        // `checked_rem`, because device code must not have panic paths.
        pe.checked_rem(n).unwrap_or(0) as u32
    }

    /// Returns whether this PE can access the heap of `pe` by loads and stores, which makes [`Ctx::ptr`] succeed.
    #[inline(always)]
    pub fn reaches(&self, pe: u32) -> bool {
        pe < self.parts.n_pes && (pe == self.parts.pe || self.peer_addr::<u8>(pe, 0).is_some())
    }

    /// Returns a context with one queue set per rail, starting with `set`.
    pub(crate) fn narrowed<Q>(&self, set: u32) -> Ctx<'_, Q> {
        // A narrowed context has no further sets to hand out, hence the zeros.
        let n_sets = self.parts.rails;
        let parts = CtxParts {
            first_set: set,
            n_sets,
            block_sets: 0,
            exclusive_sets: 0,
            context_sets: 0,
            ..self.parts
        };
        Ctx { parts, _marker: PhantomData }
    }

    /// Returns a context with the same queues, whose type names other threads as the ones that share them.
    #[inline(always)]
    pub(crate) fn shared_as<Q>(&self) -> Ctx<'_, Q> {
        Ctx { parts: self.parts, _marker: PhantomData }
    }

    #[inline(always)]
    pub(crate) fn parts_ref(&self) -> &CtxParts {
        &self.parts
    }

    /// Records `error` for the host, with `detail` and the caller's location, and returns it.
    #[cold]
    #[inline(always)]
    #[track_caller]
    pub(crate) fn fail(&self, error: Error, detail: Detail) -> Error {
        record(self.parts.state, error, detail, Location::caller())
    }
}

/// Marks a launch as failed in the status word of its launch queue. Outlined because it is rare. Takes plain words,
/// because a struct would require stack memory.
#[cold]
#[inline(never)]
fn mark_failed(status: DevAddr, mark: u64) {
    if status.0 != 0 {
        // SAFETY: the host made the word, and only atomics touch it while kernels run.
        unsafe { <u64 as SysWord>::compare_swap(status.ptr(), 0, mark) };
    }
}
