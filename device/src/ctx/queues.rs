//! Selects the QP to which a block posts, and translates offsets to the addresses and keys that its NIC uses.
#![allow(unsafe_code, reason = "reads the table of QPs of the launch")]

use super::Ctx;
use super::segment;
use crate::abi::{CtxParts, QpDesc, QpEntry, ctx_flags};
use crate::arch::{self, Scope, Sys};
use crate::error::{Detail, Error, Result};
use crate::sharing::Sharing;
use crate::sq::{HAS_DC, Qp};

impl<S> Ctx<'_, S> {
    /// Returns address and rkey, for the NIC of `qp`, of data at a checked offset on the peer.
    #[inline(always)]
    pub(crate) fn remote_data<Q: Sharing>(&self, qp: &Qp<'_, Q>, offset: u64) -> (u64, u32) {
        let (p, desc) = (&self.parts, qp.peer());
        if offset < p.heap_bytes {
            return (offset, desc.rkey);
        }
        segment::data_end(p.segments, offset, far_end(p, desc))
    }

    /// Returns address and lkey, for the NIC of `qp`, of data at a checked offset on this PE.
    #[inline(always)]
    pub(crate) fn local_data<Q: Sharing>(&self, qp: &Qp<'_, Q>, offset: u64) -> (u64, u32) {
        let (p, desc) = (&self.parts, qp.desc());
        if offset < p.heap_bytes {
            return (offset, desc.lkey);
        }
        segment::data_end(p.segments, offset, desc.rail)
    }

    /// Returns address and strict rkey, for the NIC of `qp`, of a word at a checked offset on the peer.
    #[inline(always)]
    pub(crate) fn remote_word<Q: Sharing>(&self, qp: &Qp<'_, Q>, offset: u64) -> (u64, u32) {
        let (p, desc) = (&self.parts, qp.peer());
        if offset < p.heap_bytes {
            return (offset, desc.strict_rkey);
        }
        segment::word_end(p.segments, offset, far_end(p, desc))
    }

    /// Returns address and strict lkey, for the NIC of `qp`, of a word at a checked offset on this PE.
    #[inline(always)]
    pub(crate) fn local_word<Q: Sharing>(&self, qp: &Qp<'_, Q>, offset: u64) -> (u64, u32) {
        let (p, desc) = (&self.parts, qp.desc());
        if offset < p.heap_bytes {
            return (offset, desc.strict_lkey);
        }
        segment::word_end(p.segments, offset, desc.rail)
    }

    /// Returns the table entry of the QP to `pe` in a set. Its descriptor holds the memory keys of `pe`.
    #[inline(always)]
    pub(crate) fn qp_entry(&self, set: u32, pe: u32) -> *mut QpEntry {
        let i = set as usize * self.parts.n_pes as usize + pe as usize;
        self.parts.qps.ptr::<QpEntry>().wrapping_add(i)
    }
}

/// # Queues
///
/// Selection of one of the queues that all threads share.
impl Ctx<'_> {
    /// Returns the number of queues that [`Ctx::queue`] can select, which is the number of QPs to each peer (setting
    /// `qps_per_peer`).
    #[inline(always)]
    pub fn queues(&self) -> u32 {
        self.parts.n_sets.checked_div(self.parts.rails).unwrap_or(0)
    }

    /// Returns this context restricted to queue `index`: one QP per peer and rail, whichever block posts.
    ///
    /// Queues are independent: ordering or completing one has no effect on another. The original context covers all of
    /// its queues, and a block posts to queue `block % queues` through it. NVSHMEM: `nvshmemx_qp` handles.
    ///
    /// # Errors
    /// - [`Error::NoQp`]: there is no such queue (setting `qps_per_peer`).
    #[inline(always)]
    #[track_caller]
    pub fn queue(&self, index: u32) -> Result<Ctx<'_>> {
        let p = &self.parts;
        if index >= self.queues() {
            let d = Detail { found: self.queues() as u64, wanted: index as u64 + 1, ..Detail::NONE };
            return Err(self.fail(Error::NoQp, d));
        }
        Ok(self.narrowed(p.first_set + index * p.rails))
    }
}

impl<S: Sharing> Ctx<'_, S> {
    /// Returns the QP that this block uses for `pe`, which must be below `n_pes`.
    #[inline(always)]
    pub(crate) fn qp(&self, pe: u32) -> Qp<'_, S> {
        self.qp_at(self.entry(pe))
    }

    /// Like [`Ctx::qp`], for jobs without DC initiators. With them, only the keys of the returned QP are valid.
    #[inline(always)]
    pub(crate) fn connected_qp(&self, pe: u32) -> Qp<'_, S> {
        // SAFETY: as in `qp_at`.
        unsafe { Qp::new(self.entry(pe)) }
    }

    #[inline(always)]
    fn entry(&self, pe: u32) -> *mut QpEntry {
        let p = &self.parts;
        self.release_to(pe);
        let spread = if p.n_sets > 1 { arch::block().checked_rem(p.n_sets).unwrap_or(0) } else { 0 };
        self.qp_entry(p.first_set + spread, pe)
    }

    /// Returns the QP that this block uses for atomics on the heap of `pe`. All of these go through one NIC of that PE,
    /// because atomics of two NICs are not atomic with respect to each other.
    #[inline(always)]
    pub(crate) fn atomic_qp(&self, pe: u32) -> Qp<'_, S> {
        let p = &self.parts;
        if p.rails == 1 {
            return self.qp(pe);
        }
        self.release_to(pe);
        // Set `s` uses rail `s % rails`. In steps of `rails`, every block picks a set of the same rail.
        let groups = p.n_sets.checked_div(p.rails).unwrap_or(1);
        let spread = arch::block().checked_rem(groups).unwrap_or(0) * p.rails;
        self.qp_of_set(p.first_set + spread, pe)
    }

    /// Orders earlier stores to host memory, or to memory of `pe` that is mapped, before a message to `pe`. Only needed
    /// if doorbells are preceded by a fence at GPU scope, which does not order stores to memory outside of this GPU.
    #[inline(always)]
    fn release_to(&self, pe: u32) {
        let p = &self.parts;
        let mapped = pe.wrapping_sub(p.mixed_from) < p.mixed_to.wrapping_sub(p.mixed_from);
        if p.flags & ctx_flags::GPU_QUEUES != 0 && (mapped || p.flags & ctx_flags::HOST_MEMORY != 0) {
            release_far();
        }
    }

    /// Returns the number of QP table entries of this context: one per PE in each of its sets.
    #[inline(always)]
    pub(crate) fn n_entries(&self) -> u32 {
        self.parts.n_sets * self.parts.n_pes
    }

    /// Returns QP table entry `i` of this context, below [`Ctx::n_entries`].
    #[inline(always)]
    pub(crate) fn nth_entry(&self, i: u32) -> *mut QpEntry {
        // Entries of successive sets are adjacent.
        self.qp_entry(self.parts.first_set, 0).wrapping_add(i as usize)
    }

    /// Returns the QP of table entry `i` of this context. If the entry only describes a peer of a DC initiator, its own
    /// QP is idle.
    #[inline(always)]
    pub(crate) fn nth_qp(&self, i: u32) -> Qp<'_, S> {
        // SAFETY: as in `qp_at`.
        unsafe { Qp::new(self.nth_entry(i)) }
    }

    #[inline(always)]
    pub(crate) fn qp_of_set(&self, set: u32, pe: u32) -> Qp<'_, S> {
        self.qp_at(self.qp_entry(set, pe))
    }

    #[inline(always)]
    fn qp_at(&self, entry: *mut QpEntry) -> Qp<'_, S> {
        // SAFETY: the host filled an entry for every set and PE, and keeps it while kernels run.
        unsafe { if self.is_dc() { Qp::towards(entry) } else { Qp::new(entry) } }
    }

    #[inline(always)]
    pub(crate) fn is_dc(&self) -> bool {
        HAS_DC && self.parts.flags & ctx_flags::DC != 0
    }
}

/// Returns the index, in a segment's list of [`SegmentEnd`](crate::abi::SegmentEnd)s, of the peer's NIC that `desc`
/// uses. The list starts with the NICs of this PE.
#[inline(always)]
pub(crate) fn far_end(p: &CtxParts, desc: &QpDesc) -> u32 {
    p.rails + desc.peer * p.rails + desc.rail
}

/// Issues a release fence at system scope. Outlined, because ptxas would otherwise predicate the fence, and a fence
/// costs 60 cycles even when its predicate is false.
#[cold]
#[inline(never)]
fn release_far() {
    Sys::release();
}
