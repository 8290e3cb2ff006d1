//! Symmetric memory beyond the heap, and buffers of the user's: found by their offsets in the table of the launch.
//!
//! Offsets below the heap's length never come here. The table is searched from its beginning, one entry after the
//! other: there is one for each registered buffer, and few for a heap that doubles each time it grows.
#![allow(unsafe_code, reason = "reads the segment table of the launch")]

use crate::abi::{DevAddr, SegmentDesc, SegmentEnd, SegmentTable};

/// The segment that holds `bytes` bytes from `offset` on; null if there is none.
#[inline(always)]
fn find(table: DevAddr, offset: u64, bytes: u64) -> *const SegmentDesc {
    let head = table.ptr::<SegmentTable>().cast_const();
    // SAFETY: the host made the table, and keeps it while the kernel runs.
    let mut left = unsafe { (*head).count };
    let mut segment = head.wrapping_add(1).cast::<SegmentDesc>();
    while left > 0 {
        // SAFETY: the table has `count` entries.
        let (begin, len) = unsafe { ((*segment).begin, (*segment).bytes) };
        let at = offset.wrapping_sub(begin);
        if at <= len && bytes <= len - at {
            return segment;
        }
        segment = segment.wrapping_add(1);
        left -= 1;
    }
    core::ptr::null()
}

/// True if one segment holds `bytes` bytes from `offset` on.
#[cold]
#[inline(never)]
pub(crate) fn holds(table: DevAddr, offset: u64, bytes: u64) -> bool {
    !find(table, offset, bytes).is_null()
}

/// Where this PE's memory at `offset` is; 0 if there is none, as at the end of the heap.
#[cold]
#[inline(never)]
pub(crate) fn address(table: DevAddr, offset: u64) -> DevAddr {
    let segment = find(table, offset, 0);
    if segment.is_null() {
        return DevAddr(0);
    }
    // SAFETY: an entry of the table.
    unsafe { (*segment).addr.add(offset - (*segment).begin) }
}

/// Where the memory of `pe` at `offset` is mapped here; 0 if it is not.
#[cold]
#[inline(never)]
pub(crate) fn mapped(table: DevAddr, offset: u64, pe: u32) -> DevAddr {
    let segment = find(table, offset, 0);
    // SAFETY: an entry of the table; the addresses are those of all PEs, or there are none.
    unsafe {
        if segment.is_null() || (*segment).mapped.0 == 0 {
            return DevAddr(0);
        }
        let there = *(*segment).mapped.ptr::<DevAddr>().wrapping_add(pe as usize);
        if there.0 == 0 { there } else { there.add(offset - (*segment).begin) }
    }
}

/// What end number `end` of a segment says of `offset`: address on the wire and key.
#[cold]
#[inline(never)]
pub(crate) fn end(table: DevAddr, offset: u64, end: u32) -> (u64, u32) {
    let segment = find(table, offset, 0);
    if segment.is_null() {
        return (offset, 0); // nothing at the end of the heap, of which no byte is moved
    }
    // SAFETY: an entry of the table. Handles of local buffers are never given to remote ends, so that there is this one.
    unsafe {
        let end = (*segment).ends.ptr::<SegmentEnd>().wrapping_add(end as usize);
        ((*end).base + (offset - (*segment).begin), (*end).key)
    }
}
