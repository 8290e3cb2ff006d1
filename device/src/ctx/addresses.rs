//! Checks of offsets and PEs, and translation to addresses.
#![allow(unsafe_code, reason = "reads the descriptors of the peers")]

use core::panic::Location;

use bytemuck::Pod;

use super::segment;
use super::{Ctx, CtxRef};
use crate::abi::{CtxParts, DevAddr, PeerDesc, ctx_flags};
use crate::arch;
use crate::error::{Error, Result, Site, bad_pe, out_of_range};
use crate::heap::{Sym, SymSlice};
use crate::sharing::{PerGpu, Sharing};

impl<S> Ctx<'_, S> {
    /// Returns the address of a checked offset on this PE.
    #[inline(always)]
    pub(crate) fn address<T>(&self, offset: u64) -> *mut T {
        let p = &self.parts;
        if offset < p.heap_bytes {
            return p.heap.add(offset).ptr();
        }
        segment::address(p.segments, offset).ptr()
    }

    /// Checks that the job has a PE `pe`, and records an error if not.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn check_pe(&self, pe: u32) -> Result {
        if pe < self.parts.n_pes {
            return Ok(());
        }
        Err(bad_pe(self.parts.state, pe, self.parts.n_pes, Location::caller()))
    }

    /// Returns whether `pe` is a P2P peer whose heap contains all of the `bytes` bytes at `offset`.
    #[inline(always)]
    pub(crate) fn is_mapped(&self, pe: u32, offset: u64, bytes: u64) -> bool {
        self.parts.is_p2p(pe) & self.parts.has(offset, bytes)
    }

    /// Returns the address of a word of `bytes` bytes at `offset` on `pe`, if [`Ctx::is_mapped`] holds: for all converged
    /// lanes, where the sharing votes.
    ///
    /// Almost all P2P accesses to words take this path, which has one branch. On `None`, the caller's slow path repeats
    /// every check.
    #[inline(always)]
    pub(crate) fn p2p_addr<T>(&self, pe: u32, offset: u64, bytes: u64) -> Option<*mut T>
    where
        S: Sharing,
    {
        let mapped = self.is_mapped(pe, offset, bytes);
        let taken = if S::VOTES { arch::together(mapped) } else { mapped };
        if taken { Some(self.p2p_heap_addr(pe, offset)) } else { None }
    }

    /// Returns the address of a word like [`Ctx::p2p_addr`], but tests it for this lane alone.
    ///
    /// Without the vote, a signal arrives 20 ns earlier. With it, loops of many accesses are faster and need fewer
    /// registers.
    #[inline(always)]
    pub(crate) fn p2p_addr_of_one<T>(&self, pe: u32, offset: u64, bytes: u64) -> Option<*mut T> {
        if self.is_mapped(pe, offset, bytes) { Some(self.p2p_heap_addr(pe, offset)) } else { None }
    }

    /// Returns the address of a checked offset on `pe`, which is below `n_pes`, if the memory of `pe` is mapped into
    /// this process.
    #[inline(always)]
    pub(crate) fn peer_addr<T>(&self, pe: u32, offset: u64) -> Option<*mut T> {
        let p = &self.parts;
        if p.is_p2p(pe) && offset < p.heap_bytes {
            return Some(heap_of(p, pe).add(offset).ptr());
        }
        // Not in the window, or past the heap. The PE's descriptor says whether the memory is mapped some other way.
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

    /// Returns the address like [`Ctx::peer_addr`], if atomics on mapped memory are processor atomics.
    #[inline(always)]
    pub(crate) fn peer_atomic_addr<T>(&self, pe: u32, offset: u64) -> Option<*mut T> {
        if self.p2p_atomics() { self.peer_addr(pe, offset) } else { None }
    }

    /// Returns the address like [`Ctx::p2p_addr`], if atomics on mapped memory are processor atomics.
    #[inline(always)]
    pub(crate) fn p2p_atomic_addr<T>(&self, pe: u32, offset: u64, bytes: u64) -> Option<*mut T>
    where
        S: Sharing,
    {
        let direct = self.p2p_atomics();
        match self.p2p_addr(pe, offset, bytes) {
            Some(p) if direct => Some(p),
            _ => None,
        }
    }

    /// Returns whether atomics on mapped memory are processor atomics.
    #[inline(always)]
    pub(crate) fn p2p_atomics(&self) -> bool {
        self.parts.flags & ctx_flags::P2P_ATOMICS != 0
    }

    /// Returns whether no operation goes through a NIC: all heaps are mapped, and atomics are processor atomics.
    #[inline(always)]
    pub(crate) fn p2p_all(&self) -> bool {
        self.parts.flags & ctx_flags::P2P_ALL != 0
    }

    /// Returns whether all heaps are mapped, and atomics on them are processor atomics. Unlike [`Ctx::p2p_all`], this
    /// ignores segments. All PEs get the same answer for the whole job.
    #[inline(always)]
    pub(crate) fn p2p_heaps(&self) -> bool {
        self.parts.p2p_count == self.parts.n_pes && self.p2p_atomics()
    }

    /// Returns the address of a checked heap offset on a P2P peer, which may be any PE if [`Ctx::p2p_heaps`] holds.
    /// Uses only kernel parameters and reads no memory.
    #[inline(always)]
    pub(crate) fn p2p_heap_addr<T>(&self, pe: u32, offset: u64) -> *mut T {
        heap_of(&self.parts, pe).add(offset).ptr()
    }

    /// Returns the address of an object on this PE.
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
        // Not in the heap: a segment, or an error. Both are rare.
        let found = local_addr_slow(CtxRef::of(self), object.offset(), object.bytes());
        if found.0 != 0 { Ok(found.ptr()) } else { Err(Error::OutOfRange) }
    }

    /// Returns whether the heap or one segment contains all of the `bytes` bytes at `offset`.
    #[inline(always)]
    pub(crate) fn has(&self, offset: u64, bytes: u64) -> bool {
        let p = &self.parts;
        p.has(offset, bytes) || segment::holds(p.segments, offset, bytes)
    }

    #[inline(always)]
    #[track_caller]
    pub(crate) fn check_bytes(&self, offset: u64, bytes: u64) -> Result {
        self.check_bytes_at(offset, bytes, Location::caller())
    }

    #[inline(always)]
    pub(crate) fn check_bytes_at(&self, offset: u64, bytes: u64, site: Site) -> Result {
        if self.has(offset, bytes) {
            return Ok(());
        }
        Err(out_of_range(self.parts.state, bytes, self.parts.heap_bytes, offset, site))
    }

    /// Checks the target of a call that accesses `bytes` bytes at `offset` on `pe`.
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
}

/// Returns the base address of a P2P peer's heap. Written without a branch, because the compiler does not keep values
/// in registers that only one branch loads.
#[inline(always)]
fn heap_of(parts: &CtxParts, pe: u32) -> DevAddr {
    let window = parts.p2p_base.0.wrapping_add(pe as u64 * parts.p2p_stride);
    let own = parts.heap.0;
    DevAddr(if pe == parts.pe { own } else { window })
}

/// Returns the address of an object on this PE outside of its heap. If there is none, records an error and returns 0.
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
