//! Contexts found by their address, for kernels in languages without `#[kernel]`.
#![allow(unsafe_code, reason = "finds the context in a segment table of the host")]

use core::panic::Location;

use super::Ctx;
use super::segment;
use crate::abi::{CtxParts, DevAddr, LOCAL_OFFSETS};
use crate::arch;
use crate::error::{Detail, Error, Result, name_call, out_of_range};
use crate::invalid_range::InvalidRange;

/// Number of 16-byte loads of a context.
const PAIRS: usize = size_of::<CtxParts>() / 16;

/// # Resident contexts
///
/// For functions that kernels in other languages call: `bindings/device`. Such a kernel gets the address of its PE's
/// context, and passes symmetric memory by address.
impl<'k, S> Ctx<'k, S> {
    /// Returns the context at `table`, the address of a [`SegmentTable`](crate::abi::SegmentTable).
    ///
    /// # Errors
    /// - [`Error::Layout`]: the host comes from another build.
    ///
    /// # Safety
    /// The host returned the address for this PE, and the PE has not ended.
    #[inline(always)]
    pub unsafe fn resident(table: DevAddr) -> Result<Self> {
        // SAFETY: by this function's contract.
        let ctx = unsafe { Self::at(table) };
        if ctx.trusted() {
            return Ok(ctx);
        }
        report_layout(table);
        Err(Error::Layout)
    }

    /// Returns whether `test` holds for the context at `table`, and the host comes from this build. Records nothing.
    ///
    /// To wait for all loads once, `test` runs even on a context of another build. It must not follow its addresses.
    ///
    /// # Safety
    /// The same as for [`Ctx::resident`].
    #[inline(always)]
    pub unsafe fn resident_passes(table: DevAddr, test: impl FnOnce(&Self) -> bool) -> bool {
        // SAFETY: by this function's contract.
        let ctx = unsafe { Self::at(table) };
        ctx.trusted() & test(&ctx)
    }

    /// Names the function whose call has failed with `error` in the calling thread, in place of a line in its error
    /// record. Does nothing if the call wrote no record.
    ///
    /// # Safety
    /// The same as for [`Ctx::resident`], which has succeeded.
    #[cold]
    #[inline(always)]
    pub unsafe fn name_failed_call(table: DevAddr, name: &'static str, error: Error) {
        // SAFETY: a segment table starts with the parts of a context, to which `Ctx` is transparent.
        name_call(unsafe { (*table.ptr::<Self>()).parts_ref().state }, name, error);
    }

    /// Returns the context at `table`, which may be one of another build.
    ///
    /// # Safety
    /// The same as for [`Ctx::resident`].
    #[inline(always)]
    unsafe fn at(table: DevAddr) -> Self {
        let words = table.ptr::<[u64; 2]>().cast_const();
        // Issue all loads before the first check, because otherwise each check would wait for its own load.
        // SAFETY: a segment table starts with the parts of a context, and its memory is longer than those of any build.
        let parts = core::array::from_fn(|i| unsafe { arch::load_constant(words.wrapping_add(i)) });
        // SAFETY: the parts of this PE's context, by this function's contract.
        unsafe { Self::from_parts(bytemuck::must_cast::<[[u64; 2]; PAIRS], CtxParts>(parts)) }
    }

    /// Returns the offset of the `bytes` bytes at `address` on this PE, in symmetric memory or a registered buffer.
    #[inline(always)]
    pub fn offset_of(&self, address: u64, bytes: u64) -> Option<u64> {
        let p = self.parts_ref();
        let offset = address.wrapping_sub(p.heap.0);
        if p.has(offset, bytes) {
            return Some(offset);
        }
        let offset = segment::offset(p.segments, address, bytes);
        if offset == InvalidRange::NO_OFFSET { None } else { Some(offset) }
    }

    /// Returns whether a transfer of `bytes` bytes between addresses on this PE, of which `remote` stands for the same
    /// object on `pe`, is a copy within mapped heaps. It then calls no outlined function unless it is large.
    #[inline(always)]
    pub fn copies_directly(&self, remote: u64, local: u64, bytes: u64, pe: u32) -> bool {
        let p = self.parts_ref();
        let (remote, local) = (remote.wrapping_sub(p.heap.0), local.wrapping_sub(p.heap.0));
        let in_heap = p.has(remote, bytes) & p.has(local, bytes);
        // Written as in `handle_at` and `p2p_operands`, for the compiler to recognise the same conditions there.
        in_heap & (remote < LOCAL_OFFSETS) & self.is_mapped(pe, remote.max(local), bytes)
    }

    /// Returns whether a store or load of the word at `address` on this PE, which stands for that on `pe`, is one in a
    /// mapped heap. It then calls no outlined function.
    #[inline(always)]
    pub fn accesses_directly<T>(&self, address: u64, pe: u32) -> bool {
        // No heap is at address 0.
        let aligned = if address.is_multiple_of(align_of::<T>() as u64) { address } else { 0 };
        let offset = aligned.wrapping_sub(self.parts_ref().heap.0);
        (offset < LOCAL_OFFSETS) & self.is_mapped(pe, offset, size_of::<T>() as u64)
    }

    /// Returns whether an atomic on the word at `address` is a processor atomic in a mapped heap, like
    /// [`Ctx::accesses_directly`].
    #[inline(always)]
    pub fn updates_directly<T>(&self, address: u64, pe: u32) -> bool {
        self.accesses_directly::<T>(address, pe) & self.p2p_atomics()
    }

    /// Returns whether a fence orders and completes all operations, because none goes through a NIC.
    #[inline(always)]
    pub fn orders_directly(&self) -> bool {
        self.p2p_all()
    }

    /// Records that an address has no [offset](Ctx::offset_of).
    #[cold]
    #[inline(always)]
    #[track_caller]
    pub fn bad_address(&self, bytes: u64) -> Error {
        let p = self.parts_ref();
        out_of_range(p.state, bytes, p.heap_bytes, InvalidRange::ADDRESS.offset(), Location::caller())
    }

    /// Records that `value` is none of the constants of a call.
    #[cold]
    #[inline(always)]
    #[track_caller]
    pub fn bad_constant(&self, value: i32) -> Error {
        self.fail(Error::BadConstant, Detail { found: u64::from(value as u32), ..Detail::NONE })
    }
}

/// Records that the host comes from another build. Outlined to keep calls short.
#[cold]
#[inline(never)]
fn report_layout(table: DevAddr) {
    // SAFETY: a segment table starts with the parts of a context, to which `Ctx` is transparent. The layout of the header,
    // the only part that is read, never changes.
    unsafe { (*table.ptr::<Ctx<'_>>()).report_layout() }
}
