//! Segments: symmetric memory beyond the heap, and registered buffers. They are looked up by offset in the table of the
//! launch.
//!
//! Offsets within the heap are never looked up. The search is linear: there is one entry per registered buffer, and
//! only few for a heap that doubles whenever it grows.
#![allow(unsafe_code, reason = "reads the segment table of the launch")]

use crate::abi::{DevAddr, LOCAL_OFFSETS, SegmentDesc, SegmentEnd, SegmentTable};
use crate::arch;
use crate::error::Result;
use crate::invalid_range::InvalidRange;

/// Half of a [`SegmentDesc`] by which a segment is found: its first offset, or its address, and its length.
#[derive(Clone, Copy)]
enum Half {
    Offsets = 0,
    Addresses = 1,
}

/// Returns the segment that contains all of the `bytes` bytes from `at` on, or null.
#[inline(always)]
fn find(table: DevAddr, half: Half, at: u64, bytes: u64) -> *const SegmentDesc {
    let head = table.ptr::<SegmentTable>().cast_const();
    // SAFETY: the host made the table, and keeps it while the kernel runs.
    let (mut left, in_place) = unsafe { ((*head).count, (*head).in_place != 0) };
    let mut segment = head.wrapping_add(1).cast::<SegmentDesc>();
    while left > 0 {
        // SAFETY: the table has `count` entries.
        let [begin, len] = unsafe { range(segment, half, in_place) };
        // Wraps to a huge value if `at` is before the segment, which then fails the comparison.
        let at = at.wrapping_sub(begin);
        if at <= len && bytes <= len - at && len > 0 {
            return segment;
        }
        segment = segment.wrapping_add(1);
        left -= 1;
    }
    core::ptr::null()
}

/// Returns one half of an entry.
///
/// # Safety
/// `segment` is an entry of a segment table.
#[inline(always)]
unsafe fn range(segment: *const SegmentDesc, half: Half, in_place: bool) -> [u64; 2] {
    let range = segment.cast::<[u64; 2]>().wrapping_add(half as usize);
    // SAFETY: an entry begins with two such pairs. If the host may be replacing it, both words must be of one segment.
    unsafe { if in_place { arch::load_two(range) } else { *range } }
}

/// Calls `visit` with the RDMA address and strict key of the first byte of each symmetric segment, as seen by the NIC
/// with index `end`, until `visit` fails.
///
/// # Errors
/// - The error of `visit`.
#[inline(always)]
pub(crate) fn for_each_end(table: DevAddr, end: u32, mut visit: impl FnMut((u64, u32)) -> Result) -> Result {
    let head = table.ptr::<SegmentTable>().cast_const();
    // SAFETY: the host made the table, and keeps it while the kernel runs.
    let (mut left, in_place) = unsafe { ((*head).count, (*head).in_place != 0) };
    let mut segment = head.wrapping_add(1).cast::<SegmentDesc>();
    while left > 0 {
        // SAFETY: an entry of the table.
        let [begin, bytes] = unsafe { range(segment, Half::Offsets, in_place) };
        // Local buffers are known to this PE's NICs only.
        if begin < LOCAL_OFFSETS && bytes > 0 {
            // SAFETY: symmetric segments have an end for each NIC of each PE.
            let end = unsafe { *(*segment).ends.ptr::<SegmentEnd>().wrapping_add(end as usize) };
            visit((end.base, end.strict_key))?;
        }
        segment = segment.wrapping_add(1);
        left -= 1;
    }
    Ok(())
}

/// Returns whether a single segment contains all of the `bytes` bytes at `offset`.
#[cold]
#[inline(never)]
pub(crate) fn holds(table: DevAddr, offset: u64, bytes: u64) -> bool {
    !find(table, Half::Offsets, offset, bytes).is_null()
}

/// Returns the address of `offset` on this PE, or 0 if no segment contains it. A transfer of 0 bytes may be one past
/// the heap.
#[cold]
#[inline(never)]
pub(crate) fn address(table: DevAddr, offset: u64) -> DevAddr {
    let segment = find(table, Half::Offsets, offset, 0);
    if segment.is_null() {
        return DevAddr(0);
    }
    // SAFETY: an entry of the table.
    unsafe { (*segment).addr.add(offset - (*segment).begin) }
}

/// Returns the offset of the `bytes` bytes at `address` on this PE, or [`InvalidRange::NO_OFFSET`] if no segment contains
/// them.
#[cold]
#[inline(never)]
pub(crate) fn offset(table: DevAddr, address: u64, bytes: u64) -> u64 {
    let segment = find(table, Half::Addresses, address, bytes);
    if segment.is_null() {
        return InvalidRange::NO_OFFSET;
    }
    // SAFETY: an entry of the table.
    unsafe { (*segment).begin + (address - (*segment).addr.0) }
}

/// Returns the address at which `offset` on `pe` is mapped on this PE, or 0 if it is not mapped.
#[cold]
#[inline(never)]
pub(crate) fn mapped(table: DevAddr, offset: u64, pe: u32) -> DevAddr {
    let segment = find(table, Half::Offsets, offset, 0);
    // SAFETY: an entry of the table; there is one address for each PE, or no list.
    unsafe {
        if segment.is_null() || (*segment).mapped.0 == 0 {
            return DevAddr(0);
        }
        let there = *(*segment).mapped.ptr::<DevAddr>().wrapping_add(pe as usize);
        if there.0 == 0 { there } else { there.add(offset - (*segment).begin) }
    }
}

/// Returns the RDMA address and the memory key for data at `offset`, as seen by the NIC with index `end`.
#[cold]
#[inline(never)]
pub(crate) fn data_end(table: DevAddr, offset: u64, end: u32) -> (u64, u32) {
    let (address, SegmentEnd { key, .. }) = find_end(table, offset, end);
    (address, key)
}

/// Returns the RDMA address and the strict memory key for a word at `offset`, as seen by the NIC with index `end`.
#[cold]
#[inline(never)]
pub(crate) fn word_end(table: DevAddr, offset: u64, end: u32) -> (u64, u32) {
    let (address, SegmentEnd { strict_key, .. }) = find_end(table, offset, end);
    (address, strict_key)
}

/// Returns the RDMA address of heap offset `offset` and the memory keys of its segment, for the NIC with index `end`.
#[inline(always)]
fn find_end(table: DevAddr, offset: u64, end: u32) -> (u64, SegmentEnd) {
    let segment = find(table, Half::Offsets, offset, 0);
    if segment.is_null() {
        // One past the heap, for a transfer of 0 bytes.
        return (offset, SegmentEnd { base: 0, key: 0, strict_key: 0 });
    }
    // SAFETY: an entry of the table. Handles of local buffers are never given to remote ends, so that there is this one.
    unsafe {
        let end = *(*segment).ends.ptr::<SegmentEnd>().wrapping_add(end as usize);
        (end.base + (offset - (*segment).begin), end)
    }
}
