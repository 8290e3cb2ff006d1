//! The context of a kernel: its PE, its view of memory, and its queues.
#![allow(unsafe_code, reason = "a context trusts the addresses that the host gave it")]

use core::marker::PhantomData;
use core::panic::Location;

use bytemuck::Pod;

use crate::abi::{self, CtxParts, DevAddr, PeerDesc, QpEntry, ctx_flags};
use crate::arch::{self, Scope, Sys, SysWord};
use crate::ctx_ref::CtxRef;
use crate::error::{Detail, Error, Result, Site, bad_pe, out_of_range, record, write_record};
use crate::heap::{LocalBuffer, Sym, SymSlice, local_operand};
use crate::segment;
use crate::sharing::{Exclusive, PerBlock, PerGpu, Sharing};
use crate::sq::Qp;
use crate::team::Team;
use crate::view::{RemoteView, View};

/// The context of a kernel. Every operation is a method of it.
///
/// `S` names the threads that share its queues. A kernel gets a `Ctx<PerGpu>`, which any thread of the GPU may use.
/// [`Ctx::per_block`] and [`Ctx::exclusive`] give narrower contexts, which post with less synchronisation. Only the
/// runtime can make a context, because device code trusts its addresses.
#[repr(transparent)]
pub struct Ctx<S = PerGpu> {
    parts: CtxParts,
    _sharing: PhantomData<S>,
}

impl<S> Clone for Ctx<S> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}
impl<S> Copy for Ctx<S> {}

impl Ctx {
    /// Returns a context of these parts.
    ///
    /// # Safety
    /// Every address in `parts` leads to what its field describes, sized for the counts in `parts`. It stays valid
    /// while a kernel may use the context.
    pub const unsafe fn from_parts(parts: CtxParts) -> Self {
        Self { parts, _sharing: PhantomData }
    }

    /// Returns the parts, which are the bytes of a kernel's first parameter.
    pub const fn parts(&self) -> &CtxParts {
        &self.parts
    }

    /// Returns a context with queues of the calling block's own.
    ///
    /// # Errors
    /// - [`Error::NoQp`]: the job has fewer per-block QPs than the grid has blocks (setting `block_qps`).
    #[inline(always)]
    #[track_caller]
    pub fn per_block(&self) -> Result<Ctx<PerBlock>> {
        let p = &self.parts;
        let block = arch::block();
        if block >= p.block_sets {
            let d = Detail { found: p.block_sets as u64, wanted: block as u64 + 1, ..Detail::NONE };
            return Err(self.fail(Error::NoQp, d));
        }
        Ok(self.narrowed(p.n_sets + block * p.rails))
    }

    /// Returns a context with queues of the calling thread's own: set `index` of the job's exclusive sets.
    ///
    /// Posting to it needs no atomic operation. [`Ctx::release`] gives it back.
    ///
    /// # Errors
    /// - [`Error::NoQp`]: there is no such set (setting `exclusive_qps`).
    /// - [`Error::Busy`]: another thread has the set.
    #[inline(always)]
    #[track_caller]
    pub fn exclusive(&self, index: u32) -> Result<Ctx<Exclusive>> {
        let p = &self.parts;
        if index >= p.exclusive_sets {
            let d = Detail { found: p.exclusive_sets as u64, wanted: index as u64 + 1, ..Detail::NONE };
            return Err(self.fail(Error::NoQp, d));
        }
        let set = p.n_sets + (p.block_sets + index) * p.rails;
        let mine = self.narrowed(set);
        if mine.owner_qp().take_set(u64::MAX) { Ok(mine) } else { Err(self.fail(Error::Busy, Detail::NONE)) }
    }

    /// Records that host and kernel do not agree on the layout. Only the fixed part of the header can be trusted then.
    #[cold]
    pub(crate) fn report_layout(&self) {
        let h = &self.parts.header;
        if h.magic != abi::MAGIC {
            return; // not a context at all: there is no page to write to
        }
        let (code, none, version) = (Error::Layout as u32, u64::MAX, h.version as u64);
        write_record(
            h.control,
            0,
            u32::MAX,
            code,
            none,
            0,
            h.layout,
            abi::LAYOUT,
            version,
            Location::caller(),
        );
    }

    /// Returns whether an earlier launch of the same launch queue has failed. All threads of a launch get the same
    /// answer, because what they set themselves does not count.
    ///
    /// The first launch that follows seals the status word, so that the failed launch does not run again in a graph.
    #[inline(always)]
    pub(crate) fn follows_failure(&self) -> bool {
        let p = &self.parts;
        if p.status.0 == 0 {
            return false;
        }
        // SAFETY: the host made the word, and only atomics touch it while kernels run.
        let found = unsafe { Sys::load_relaxed(p.status.ptr()) };
        if found == 0 || found == p.mark {
            return false;
        }
        // SAFETY: as above; all who write now write the same.
        unsafe { Sys::store_relaxed(p.status.ptr(), found | abi::SEALED) };
        true
    }

    /// Marks this launch as failed, unless an earlier one has failed.
    #[cold]
    pub(crate) fn mark_failed(&self) {
        mark_failed(self.parts.status, self.parts.mark);
    }

    /// Returns whether host and kernel agree on the layout.
    pub(crate) fn trusted(&self) -> bool {
        let h = &self.parts.header;
        h.magic == abi::MAGIC && h.version == abi::VERSION && h.layout == abi::LAYOUT
    }
}

impl Ctx<Exclusive> {
    /// Gives the exclusive queues back. Posted operations continue; call [`Ctx::quiet`] first to complete them.
    #[inline(always)]
    pub fn release(self) {
        self.owner_qp().release_set()
    }
}

impl<S> Ctx<S> {
    /// Returns the number of this PE.
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

    /// Returns the PE `k` places after this one in a ring of all PEs.
    #[inline(always)]
    pub fn pe_after(&self, k: u32) -> u32 {
        let (pe, n) = (self.parts.pe as u64 + k as u64, self.parts.n_pes as u64);
        pe.checked_rem(n).unwrap_or(0) as u32
    }

    /// Returns this PE's copy of a symmetric object, or its registered buffer, for plain loads and stores.
    ///
    /// An invalid handle gives an empty view, and an error record.
    #[inline(always)]
    #[track_caller]
    pub fn local<T: Pod>(&self, object: impl LocalBuffer<T>) -> View<T> {
        let object = local_operand(object);
        let (base, len) = match self.local_addr(object) {
            Ok(base) => (base, object.len()),
            Err(_) => (core::ptr::null_mut(), 0),
        };
        // SAFETY: inside of this PE's memory; the allocator aligned it for `T`.
        unsafe { View::new(base, len, self.parts.state) }
    }

    /// Returns this PE's copy of a symmetric element, for plain loads and stores of element 0.
    #[inline(always)]
    #[track_caller]
    pub fn local_one<T: Pod>(&self, object: Sym<T>) -> View<T> {
        self.local(object.as_slice())
    }

    /// Returns the copy of `object` on `pe`, for loads and stores.
    ///
    /// Returns `None` if that PE is not a P2P peer, or if there is no such PE or object. A PE can always access its own
    /// copy. The setting `peer_path` decides at the start of the job which PEs are P2P peers.
    ///
    /// OpenSHMEM 1.6 section 9.2, `shmem_ptr`.
    #[inline(always)]
    pub fn ptr<T: Pod>(&self, object: SymSlice<T>, pe: u32) -> Option<RemoteView<T>> {
        let base = match self.p2p_addr(pe, object.offset(), object.bytes()) {
            Some(base) => base,
            None => {
                let found = ptr_slow(CtxRef::of(self), object.offset(), object.bytes(), pe);
                if found.0 == 0 {
                    return None;
                }
                found.ptr()
            }
        };
        // SAFETY: inside of symmetric memory, which is mapped; the allocator aligned it for `T`.
        Some(RemoteView::new(unsafe { View::new(base, object.len(), self.parts.state) }))
    }

    /// Returns the copy of `object` on member `index` of `team`, like [`Ctx::ptr`]. Returns `None` also if there is no
    /// such member or team.
    ///
    /// OpenSHMEM 1.6 section 9.2, `shmem_team_ptr`.
    #[inline(always)]
    pub fn team_ptr<T: Pod>(&self, team: Team, object: SymSlice<T>, index: u32) -> Option<RemoteView<T>> {
        self.ptr(object, self.translate_pe(team, index, Team::WORLD)?)
    }

    /// Returns whether this PE can access the heap of `pe` by loads and stores, so that [`Ctx::ptr`] succeeds.
    #[inline(always)]
    pub fn reaches(&self, pe: u32) -> bool {
        pe < self.parts.n_pes && (pe == self.parts.pe || self.peer_addr::<u8>(pe, 0).is_some())
    }

    /// Returns the block's dynamic shared memory, as many `T` as fit. On a GPU its initial content is undefined.
    #[inline(always)]
    pub fn shared<T: Pod>(&self) -> View<T> {
        let (base, bytes) = arch::shared();
        let len = bytes.checked_div(size_of::<T>()).unwrap_or(0);
        // SAFETY: the launch gave the block `bytes` bytes at `base`, aligned to 16.
        unsafe { View::new(base.cast(), len, self.parts.state) }
    }

    /// Returns the context that a [`CtxRef`] has found.
    ///
    /// # Safety
    /// The rules of [`Ctx::from_parts`] hold. The QP sets exist, and `S` names the threads that share them.
    #[inline(always)]
    pub(crate) const unsafe fn from_ctx_ref(parts: CtxParts) -> Self {
        Self { parts, _sharing: PhantomData }
    }

    /// Returns a context of the queues of one set for each rail, from `set` on.
    pub(crate) fn narrowed<Q>(&self, set: u32) -> Ctx<Q> {
        let n_sets = self.parts.rails;
        let parts = CtxParts {
            first_set: set,
            n_sets,
            block_sets: 0,
            exclusive_sets: 0,
            context_sets: 0,
            ..self.parts
        };
        Ctx { parts, _sharing: PhantomData }
    }

    /// Returns a context of the same queues with another sharing.
    #[inline(always)]
    pub(crate) fn shared_as<Q>(&self) -> Ctx<Q> {
        Ctx { parts: self.parts, _sharing: PhantomData }
    }

    #[inline(always)]
    pub(crate) fn parts_ref(&self) -> &CtxParts {
        &self.parts
    }

    /// Returns the address of this PE's memory at a checked offset.
    #[inline(always)]
    pub(crate) fn address<T>(&self, offset: u64) -> *mut T {
        let p = &self.parts;
        if offset < p.heap_bytes {
            return p.heap.add(offset).ptr();
        }
        segment::address(p.segments, offset).ptr()
    }

    /// Records `error` with the caller's location; returns it.
    #[cold]
    #[inline(always)]
    #[track_caller]
    pub(crate) fn fail(&self, error: Error, detail: Detail) -> Error {
        record(self.parts.state, error, detail, Location::caller())
    }

    /// Checks that there is a PE with this number.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn check_pe(&self, pe: u32) -> Result {
        if pe < self.parts.n_pes {
            return Ok(());
        }
        Err(bad_pe(self.parts.state, pe, self.parts.n_pes, Location::caller()))
    }

    /// Returns the address of `bytes` bytes at `offset` on `pe`, if `pe` is a P2P peer and its heap contains all of
    /// them.
    ///
    /// This is the fast path of almost all P2P accesses, with one branch. On `None`, the caller's slow path checks
    /// everything.
    #[inline(always)]
    pub(crate) fn p2p_addr<T>(&self, pe: u32, offset: u64, bytes: u64) -> Option<*mut T> {
        let p = &self.parts;
        if p.is_p2p(pe) & p.has(offset, bytes) { Some(heap_of(p, pe).add(offset).ptr()) } else { None }
    }

    /// Returns the address of a checked offset on `pe`, which is below `n_pes`, if that memory is mapped here.
    #[inline(always)]
    pub(crate) fn peer_addr<T>(&self, pe: u32, offset: u64) -> Option<*mut T> {
        let p = &self.parts;
        if p.is_p2p(pe) && offset < p.heap_bytes {
            return Some(heap_of(p, pe).add(offset).ptr());
        }
        // SAFETY: the host filled a descriptor for each PE, and does not change them while kernels run.
        let direct = unsafe { (*p.peers.ptr::<PeerDesc>().add(pe as usize)).direct };
        let there = if direct.0 == 0 {
            direct
        } else if offset < p.heap_bytes {
            direct.add(offset)
        } else {
            segment::mapped(p.segments, offset, pe)
        };
        if there.0 != 0 { Some(there.ptr()) } else { None }
    }

    /// Returns [`Ctx::peer_addr`] if atomics on that memory are processor atomics.
    #[inline(always)]
    pub(crate) fn peer_atomic_addr<T>(&self, pe: u32, offset: u64) -> Option<*mut T> {
        if self.parts.flags & ctx_flags::P2P_ATOMICS != 0 { self.peer_addr(pe, offset) } else { None }
    }

    /// Returns [`Ctx::p2p_addr`] if atomics on that memory are processor atomics.
    #[inline(always)]
    pub(crate) fn p2p_atomic_addr<T>(&self, pe: u32, offset: u64, bytes: u64) -> Option<*mut T> {
        let direct = self.parts.flags & ctx_flags::P2P_ATOMICS != 0;
        match self.p2p_addr(pe, offset, bytes) {
            Some(p) if direct => Some(p),
            _ => None,
        }
    }

    /// Returns whether nothing goes through a NIC: every heap is mapped, and atomics are processor atomics.
    #[inline(always)]
    pub(crate) fn p2p_all(&self) -> bool {
        self.parts.flags & ctx_flags::P2P_ALL != 0
    }

    /// Returns whether every heap is mapped and atomics on heaps are processor atomics. Unlike [`Ctx::p2p_all`] it says
    /// nothing of segments. All PEs get the same answer as long as the job runs.
    #[inline(always)]
    pub(crate) fn p2p_heaps(&self) -> bool {
        self.parts.p2p_count == self.parts.n_pes && self.parts.flags & ctx_flags::P2P_ATOMICS != 0
    }

    /// Returns the address of a checked heap offset on a P2P peer. If [`Ctx::p2p_heaps`], every PE is one. It needs
    /// kernel parameters only and reads no memory.
    #[inline(always)]
    pub(crate) fn p2p_heap_addr<T>(&self, pe: u32, offset: u64) -> *mut T {
        heap_of(&self.parts, pe).add(offset).ptr()
    }

    /// Returns the address of an object of this PE.
    ///
    /// # Errors
    /// - [`Error::OutOfRange`].
    #[inline(always)]
    #[track_caller]
    pub(crate) fn local_addr<T: Pod>(&self, object: SymSlice<T>) -> Result<*mut T> {
        let p = &self.parts;
        if p.has(object.offset(), object.bytes()) {
            return Ok(p.heap.add(object.offset()).ptr());
        }
        let found = local_addr_slow(CtxRef::of(self), object.offset(), object.bytes());
        if found.0 != 0 { Ok(found.ptr()) } else { Err(Error::OutOfRange) }
    }

    /// Returns whether the heap, or a segment, contains all of the `bytes` bytes from `offset` on.
    #[inline(always)]
    pub(crate) fn has(&self, offset: u64, bytes: u64) -> bool {
        let p = &self.parts;
        p.has(offset, bytes) || segment::holds(p.segments, offset, bytes)
    }

    /// Checks that the heap or a segment contains the bytes.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn check_bytes(&self, offset: u64, bytes: u64) -> Result {
        self.check_bytes_at(offset, bytes, Location::caller())
    }

    /// Checks bytes like [`Ctx::check_bytes`], for a call at `site`.
    #[inline(always)]
    pub(crate) fn check_bytes_at(&self, offset: u64, bytes: u64, site: Site) -> Result {
        if self.has(offset, bytes) {
            return Ok(());
        }
        // A part outside of its object has no offset: see `SymSlice::slice`.
        let wanted = if offset == u64::MAX { u64::MAX } else { self.parts.heap_bytes };
        Err(out_of_range(self.parts.state, bytes, wanted, offset, site))
    }

    /// Checks the arguments of a call for `bytes` bytes at `offset` of `pe`.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn check_word(&self, offset: u64, bytes: u64, pe: u32) -> Result {
        self.check_pe(pe)?;
        self.check_bytes(offset, bytes)
    }

    #[inline(always)]
    #[track_caller]
    pub(crate) fn check_slice<T: Pod>(&self, object: SymSlice<T>) -> Result {
        self.check_bytes(object.offset(), object.bytes())
    }

    #[inline(always)]
    #[track_caller]
    pub(crate) fn check<T: Pod>(&self, object: Sym<T>) -> Result {
        self.check_slice(object.as_slice())
    }

    /// Returns the peer's memory at a checked offset as the NIC of `qp` addresses it: address and rkey.
    #[inline(always)]
    pub(crate) fn remote_end<Q: Sharing>(&self, qp: &Qp<'_, Q>, offset: u64) -> (u64, u32) {
        let (p, desc) = (&self.parts, qp.desc());
        if offset < p.heap_bytes {
            return (offset, desc.rkey);
        }
        let end = p.rails + desc.peer * p.rails + desc.rail;
        segment::end(p.segments, offset, end)
    }

    /// Returns this PE's memory at a checked offset as the NIC of `qp` addresses it: address and lkey.
    #[inline(always)]
    pub(crate) fn local_end<Q: Sharing>(&self, qp: &Qp<'_, Q>, offset: u64) -> (u64, u32) {
        let (p, desc) = (&self.parts, qp.desc());
        if offset < p.heap_bytes {
            return (offset, desc.lkey);
        }
        segment::end(p.segments, offset, desc.rail)
    }

    #[inline(always)]
    pub(crate) fn qp_entry(&self, set: u32, pe: u32) -> *mut QpEntry {
        let i = set as usize * self.parts.n_pes as usize + pe as usize;
        self.parts.qps.ptr::<QpEntry>().wrapping_add(i)
    }
}

impl<S: Sharing> Ctx<S> {
    /// Returns the number of queues that [`Ctx::queue`] can select: the QPs to each peer (setting `qps_per_peer`).
    #[inline(always)]
    pub fn queues(&self) -> u32 {
        self.parts.n_sets.checked_div(self.parts.rails).unwrap_or(0)
    }

    /// Returns this context restricted to queue `index`: one QP to each peer and rail, whatever block posts.
    ///
    /// Queues are independent: ordering or completing one says nothing about another. The context itself covers all of
    /// its queues. Without this call, a block uses queue `block % queues`. NVSHMEM: `nvshmemx_qp` handles.
    ///
    /// # Errors
    /// - [`Error::NoQp`]: there is no such queue (setting `qps_per_peer`).
    #[inline(always)]
    #[track_caller]
    pub fn queue(&self, index: u32) -> Result<Self> {
        let p = &self.parts;
        if index >= self.queues() {
            let d = Detail { found: self.queues() as u64, wanted: index as u64 + 1, ..Detail::NONE };
            return Err(self.fail(Error::NoQp, d));
        }
        Ok(self.narrowed(p.first_set + index * p.rails))
    }

    /// Returns the QP that this block uses to `pe`, which is below `n_pes`.
    #[inline(always)]
    pub(crate) fn qp(&self, pe: u32) -> Qp<'_, S> {
        let p = &self.parts;
        self.release_to(pe);
        let spread = if p.n_sets > 1 { arch::block().checked_rem(p.n_sets).unwrap_or(0) } else { 0 };
        self.qp_of_set(p.first_set + spread, pe)
    }

    /// Returns the QP that this block uses for atomics on the heap of `pe`. All of them go through one NIC of that PE,
    /// because atomics of two NICs are not atomic with each other.
    #[inline(always)]
    pub(crate) fn atomic_qp(&self, pe: u32) -> Qp<'_, S> {
        let p = &self.parts;
        if p.rails == 1 {
            return self.qp(pe);
        }
        self.release_to(pe);
        let groups = p.n_sets.checked_div(p.rails).unwrap_or(1);
        let spread = arch::block().checked_rem(groups).unwrap_or(0) * p.rails;
        self.qp_of_set(p.first_set + spread, pe)
    }

    /// Orders earlier stores outside of this GPU's memory before a message to `pe`: stores to host memory, and stores
    /// to that PE's mapped memory. A doorbell's fence orders them already, unless it is one at GPU scope.
    #[inline(always)]
    fn release_to(&self, pe: u32) {
        let p = &self.parts;
        let mapped = pe.wrapping_sub(p.mixed_from) < p.mixed_to.wrapping_sub(p.mixed_from);
        if p.flags & ctx_flags::GPU_QUEUES != 0 && (mapped || p.flags & ctx_flags::HOST_MEMORY != 0) {
            release_far();
        }
    }

    #[inline(always)]
    pub(crate) fn qp_of_set(&self, set: u32, pe: u32) -> Qp<'_, S> {
        // SAFETY: the host filled an entry for every set and PE, and keeps it while kernels run.
        unsafe { Qp::new(self.qp_entry(set, pe)) }
    }
}

/// Makes a release fence at system scope. Outlined: otherwise ptxas predicates the fence, and a fence costs 60 cycles
/// even where its predicate is false.
#[cold]
#[inline(never)]
fn release_far() {
    Sys::release();
}

/// Marks a launch as failed. Outlined, since a kernel rarely fails, with plain words as arguments, so that kernels need
/// no stack.
#[cold]
#[inline(never)]
fn mark_failed(status: DevAddr, mark: u64) {
    if status.0 != 0 {
        // SAFETY: the host made the word, and only atomics touch it while kernels run.
        unsafe { <u64 as SysWord>::compare_swap(status.ptr(), 0, mark) };
    }
}

/// Returns the address of a P2P peer's heap. There is no branch, because values loaded in one branch only are not kept
/// in registers.
#[inline(always)]
fn heap_of(parts: &CtxParts, pe: u32) -> DevAddr {
    let window = parts.p2p_base.0.wrapping_add(pe.wrapping_sub(parts.p2p_from) as u64 * parts.p2p_stride);
    let own = parts.heap.0;
    DevAddr(if pe == parts.pe { own } else { window })
}

/// Returns the address of an object of this PE that is not in its heap; 0, and a record, if there is none.
#[cold]
#[inline(never)]
#[track_caller]
fn local_addr_slow(ctx_ref: CtxRef, offset: u64, bytes: u64) -> DevAddr {
    let ctx = ctx_ref.ctx::<PerGpu>();
    match ctx.check_bytes(offset, bytes) {
        Ok(()) => segment::address(ctx.parts.segments, offset),
        Err(_) => DevAddr(0),
    }
}

/// Returns the address of an object on a PE that is not a P2P peer; 0 if it is not mapped, or there is no such PE or
/// object.
#[inline(never)]
fn ptr_slow(ctx_ref: CtxRef, offset: u64, bytes: u64, pe: u32) -> DevAddr {
    let ctx = ctx_ref.ctx::<PerGpu>();
    if pe >= ctx.parts.n_pes || !ctx.has(offset, bytes) {
        return DevAddr(0);
    }
    if pe == ctx.parts.pe {
        return DevAddr(ctx.address::<u8>(offset).addr() as u64);
    }
    DevAddr(ctx.peer_addr::<u8>(pe, offset).map_or(0, |p| p.addr() as u64))
}
