//! Selection of the QP that a block posts to, and the addresses that the NIC of a QP uses.
#![allow(unsafe_code, reason = "reads the table of QPs of the launch")]

use super::Ctx;
use crate::abi::{CtxParts, QpDesc, QpEntry, ctx_flags};
use crate::arch::{self, Scope, Sys};
use crate::error::{Detail, Error, Result};
use crate::segment;
use crate::sharing::Sharing;
use crate::sq::{HAS_DC, Qp};

impl<S> Ctx<'_, S> {
    /// Returns data of the peer at a checked offset as the NIC of `qp` addresses it: address and rkey.
    #[inline(always)]
    pub(crate) fn remote_data<Q: Sharing>(&self, qp: &Qp<'_, Q>, offset: u64) -> (u64, u32) {
        let (p, desc) = (&self.parts, qp.peer());
        if offset < p.heap_bytes {
            return (offset, desc.rkey);
        }
        segment::data_end(p.segments, offset, far_end(p, desc))
    }

    /// Returns data of this PE at a checked offset as the NIC of `qp` addresses it: address and lkey.
    #[inline(always)]
    pub(crate) fn local_data<Q: Sharing>(&self, qp: &Qp<'_, Q>, offset: u64) -> (u64, u32) {
        let (p, desc) = (&self.parts, qp.desc());
        if offset < p.heap_bytes {
            return (offset, desc.lkey);
        }
        segment::data_end(p.segments, offset, desc.rail)
    }

    /// Returns a word of the peer at a checked offset as the NIC of `qp` addresses it: address and strict rkey.
    #[inline(always)]
    pub(crate) fn remote_word<Q: Sharing>(&self, qp: &Qp<'_, Q>, offset: u64) -> (u64, u32) {
        let (p, desc) = (&self.parts, qp.peer());
        if offset < p.heap_bytes {
            return (offset, desc.strict_rkey);
        }
        segment::word_end(p.segments, offset, far_end(p, desc))
    }

    /// Returns a word of this PE at a checked offset as the NIC of `qp` addresses it: address and strict lkey.
    #[inline(always)]
    pub(crate) fn local_word<Q: Sharing>(&self, qp: &Qp<'_, Q>, offset: u64) -> (u64, u32) {
        let (p, desc) = (&self.parts, qp.desc());
        if offset < p.heap_bytes {
            return (offset, desc.strict_lkey);
        }
        segment::word_end(p.segments, offset, desc.rail)
    }

    /// Returns the entry of `pe` in a set. Its descriptor has the keys of the PE.
    #[inline(always)]
    pub(crate) fn qp_entry(&self, set: u32, pe: u32) -> *mut QpEntry {
        let i = set as usize * self.parts.n_pes as usize + pe as usize;
        self.parts.qps.ptr::<QpEntry>().wrapping_add(i)
    }
}

/// # Queues
///
/// The QPs that all threads share, one by one.
impl Ctx<'_> {
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
    /// Returns the QP that this block uses to `pe`, which is below `n_pes`.
    #[inline(always)]
    pub(crate) fn qp(&self, pe: u32) -> Qp<'_, S> {
        self.qp_at(self.entry(pe))
    }

    /// Returns the QP that this block uses to `pe`, in a job without DC initiators. With them, only its keys are right.
    #[inline(always)]
    pub(crate) fn connected_qp(&self, pe: u32) -> Qp<'_, S> {
        // SAFETY: as in `qp_at`.
        unsafe { Qp::new(self.entry(pe)) }
    }

    /// Returns the entry of `pe` in the QP set that this block uses.
    #[inline(always)]
    fn entry(&self, pe: u32) -> *mut QpEntry {
        let p = &self.parts;
        self.release_to(pe);
        let spread = if p.n_sets > 1 { arch::block().checked_rem(p.n_sets).unwrap_or(0) } else { 0 };
        self.qp_entry(p.first_set + spread, pe)
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

    /// Returns the number of entries of this context: of all PEs in all its sets.
    #[inline(always)]
    pub(crate) fn n_entries(&self) -> u32 {
        self.parts.n_sets * self.parts.n_pes
    }

    /// Returns entry number `i` of this context.
    #[inline(always)]
    pub(crate) fn nth_entry(&self, i: u32) -> *mut QpEntry {
        // The entries of successive sets follow each other.
        self.qp_entry(self.parts.first_set, 0).wrapping_add(i as usize)
    }

    /// Returns the QP of entry number `i` of this context. It is idle if the entry only describes a peer of a DC initiator.
    #[inline(always)]
    pub(crate) fn nth_qp(&self, i: u32) -> Qp<'_, S> {
        // SAFETY: as in `qp_at`.
        unsafe { Qp::new(self.nth_entry(i)) }
    }

    #[inline(always)]
    pub(crate) fn qp_of_set(&self, set: u32, pe: u32) -> Qp<'_, S> {
        self.qp_at(self.qp_entry(set, pe))
    }

    /// Returns the QP towards the PE of an entry.
    #[inline(always)]
    fn qp_at(&self, entry: *mut QpEntry) -> Qp<'_, S> {
        // SAFETY: the host filled an entry for every set and PE, and keeps it while kernels run.
        unsafe { if self.is_dc() { Qp::towards(entry) } else { Qp::new(entry) } }
    }

    /// Returns whether the QPs are DC initiators.
    #[inline(always)]
    pub(crate) fn is_dc(&self) -> bool {
        HAS_DC && self.parts.flags & ctx_flags::DC != 0
    }
}

/// Returns the number of a peer's end, among the ends of a segment. `desc` is the peer's.
#[inline(always)]
pub(crate) fn far_end(p: &CtxParts, desc: &QpDesc) -> u32 {
    p.rails + desc.peer * p.rails + desc.rail
}

/// Makes a release fence at system scope. Outlined: otherwise ptxas predicates the fence, and a fence costs 60 cycles
/// even where its predicate is false.
#[cold]
#[inline(never)]
fn release_far() {
    Sys::release();
}
