//! Moving bytes with loads and stores, by all threads of a group.

use bytemuck::Pod;

use crate::arch;
use crate::group::Group;

/// Copies `len` elements, each thread of the group its share: 16 bytes at a time where both ends allow it.
///
/// # Safety
/// Both ends are valid for `len` elements and aligned for `T`.
#[inline(always)]
pub(crate) unsafe fn copy<T: Pod, G: Group>(group: G, to: *mut T, from: *const T, len: usize) {
    let (rank, size) = (group.rank() as usize, group.size() as usize);
    let per_chunk =
        const { if size_of::<T>() > 0 && 16 % size_of::<T>() == 0 { 16 / size_of::<T>() } else { 0 } };
    let wide = per_chunk != 0 && (to.addr() | from.addr()).is_multiple_of(16);
    let chunks = if wide { len.checked_div(per_chunk).unwrap_or(0) } else { 0 };
    let mut i = rank;
    while i < chunks {
        // SAFETY: in bounds, and both ends are aligned to 16.
        unsafe { arch::store16(to.cast::<[u32; 4]>().add(i), arch::load16(from.cast::<[u32; 4]>().add(i))) };
        i += size;
    }
    let mut i = chunks * per_chunk + rank;
    while i < len {
        // SAFETY: in bounds; the caller's promise.
        unsafe { arch::write(to.add(i), arch::read(from.add(i))) };
        i += size;
    }
}
