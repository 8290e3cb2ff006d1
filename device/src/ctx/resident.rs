//! Contexts found by their address, for kernels in languages without `#[kernel]`.
#![allow(unsafe_code, reason = "finds the context in a segment table of the host")]

use core::panic::Location;

use super::Ctx;
use super::segment;
use crate::abi::{CtxParts, DevAddr};
use crate::arch;
use crate::error::{Detail, Error, Result, name_call, out_of_range};
use crate::invalid_range::InvalidRange;

/// Number of 16-byte loads of a context.
const PAIRS: usize = size_of::<CtxParts>() / 16;

/// # Resident contexts
///
/// For functions that kernels in other languages call: `bindings/device`. Such a kernel gets the address of its PE's
/// context, and passes symmetric memory by address.
impl<'k> Ctx<'k> {
    /// Returns the context at `table`, the address of a [`SegmentTable`](crate::abi::SegmentTable).
    ///
    /// # Errors
    /// - [`Error::Layout`]: the host comes from another build.
    ///
    /// # Safety
    /// The host returned the address for this PE, and the PE has not ended.
    #[inline(always)]
    pub unsafe fn resident(table: DevAddr) -> Result<Self> {
        let words = table.ptr::<[u64; 2]>().cast_const();
        // Issue all loads before the first check, because otherwise each check would wait for its own load.
        // SAFETY: a segment table starts with the parts of a context, and its memory is longer than those of any build.
        let parts = core::array::from_fn(|i| unsafe { arch::load_constant(words.wrapping_add(i)) });
        // SAFETY: the parts of this PE's context, by this function's contract.
        let ctx = unsafe { Self::from_parts(bytemuck::must_cast::<[[u64; 2]; PAIRS], CtxParts>(parts)) };
        if ctx.trusted() {
            return Ok(ctx);
        }
        report_layout(table);
        Err(Error::Layout)
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

    /// Names the function whose call has failed with `error` in the calling thread, in place of a line in its error
    /// record. Does nothing if the call wrote no record.
    #[cold]
    #[inline(always)]
    pub fn name_failed_call(&self, name: &'static str, error: Error) {
        name_call(self.parts_ref().state, name, error);
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
