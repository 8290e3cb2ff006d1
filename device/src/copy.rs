//! Moving bytes with loads and stores, by all threads of a group.

use bytemuck::Pod;

use crate::arch;
use crate::group::Group;

/// Loads that each thread has in flight before its first store: a peer's memory is far away.
const IN_FLIGHT: usize = 8;

/// Copies `len` elements, each thread of the group its share: 16 bytes at a time where both ends are equally far from
/// a multiple of 16, else as many as they have in common.
///
/// An aligned word of the element's alignment is read and written at once, and nothing is touched beside the elements.
///
/// # Safety
/// Both ends are valid for `len` elements and aligned for `T`, and do not overlap.
#[inline(always)]
pub(crate) unsafe fn copy<T: Pod, G: Group>(group: G, to: *mut T, from: *const T, len: usize) {
    let share = Share { rank: group.rank() as usize, of: group.size() as usize };
    let bytes = len * size_of::<T>();
    // SAFETY: the caller's promise.
    unsafe { copy_bytes(share, to.cast(), from.cast(), bytes, align_of::<T>()) }
}

/// A thread's place in its group.
#[derive(Clone, Copy)]
struct Share {
    rank: usize,
    of: usize,
}

/// Copies `bytes` bytes, a multiple of `unit`, to which both ends are aligned. Not inlined: one copy of it serves all
/// types.
///
/// # Safety
/// As [`copy`].
#[inline(never)]
unsafe fn copy_bytes(share: Share, to: *mut u8, from: *const u8, bytes: usize, unit: usize) {
    // Whether an end is aligned to 16 is told by the lowest bit in which the two differ.
    let width = 1 << ((to.addr() ^ from.addr()) | 16).trailing_zeros();
    let head = (to.addr().wrapping_neg() & (width - 1)).min(bytes);
    let body = (bytes - head) & !(width - 1);
    let tail = head + body;
    // SAFETY: three parts of the whole; the middle one begins at a multiple of `width` on both sides, the others are
    // shorter than it and aligned as the whole is.
    unsafe {
        if width == 16 {
            stream::<[u32; 4]>(share, to.add(head).cast(), from.add(head).cast(), body / 16);
        } else {
            narrow(share, to.add(head), from.add(head), body, width);
        }
        narrow(share, to, from, head, unit);
        narrow(share, to.add(tail), from.add(tail), bytes - tail, unit);
    }
}

/// Copies in words of `width` bytes, below 16.
///
/// # Safety
/// As [`copy`]; both ends are aligned to `width`, and `bytes` is a multiple of it.
#[inline(always)]
unsafe fn narrow(share: Share, to: *mut u8, from: *const u8, bytes: usize, width: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        match width {
            8 => stream::<u64>(share, to.cast(), from.cast(), bytes / 8),
            4 => stream::<u32>(share, to.cast(), from.cast(), bytes / 4),
            2 => stream::<u16>(share, to.cast(), from.cast(), bytes / 2),
            _ => stream::<u8>(share, to, from, bytes),
        }
    }
}

/// What one load or store moves.
trait Word: Copy {
    /// # Safety
    /// `p` is aligned and readable.
    unsafe fn load(p: *const Self) -> Self;
    /// # Safety
    /// `p` is aligned and writable.
    unsafe fn store(p: *mut Self, v: Self);
}

macro_rules! word {
    ($($t:ty, $load:ident, $store:ident;)*) => {$(
        impl Word for $t {
            #[inline(always)]
            unsafe fn load(p: *const Self) -> Self {
                // SAFETY: the caller's promise.
                unsafe { arch::$load(p) }
            }
            #[inline(always)]
            unsafe fn store(p: *mut Self, v: Self) {
                // SAFETY: the caller's promise.
                unsafe { arch::$store(p, v) }
            }
        }
    )*};
}
word! { [u32; 4], load16, store16; u64, read, write; u32, read, write; u16, read, write; u8, read, write; }

/// Copies `count` words, with [`IN_FLIGHT`] loads before the stores as long as there are so many.
///
/// # Safety
/// As [`copy`]; both ends are aligned for `W`.
#[inline(never)]
unsafe fn stream<W: Word>(share: Share, to: *mut W, from: *const W, count: usize) {
    let Share { rank: mut i, of: step } = share;
    while i + (IN_FLIGHT - 1) * step < count {
        // SAFETY: the last of them is in bounds.
        unsafe {
            let words: [W; IN_FLIGHT] = core::array::from_fn(|k| W::load(from.add(i + k * step)));
            let mut k = 0;
            for word in words {
                W::store(to.add(i + k * step), word);
                k += 1;
            }
        }
        i += IN_FLIGHT * step;
    }
    while i < count {
        // SAFETY: in bounds.
        unsafe { W::store(to.add(i), W::load(from.add(i))) };
        i += step;
    }
}
