//! Copying bytes with loads and stores, by all threads of a group.
#![allow(unsafe_code, reason = "copies bytes between checked addresses")]

use bytemuck::Pod;

use crate::arch;
use crate::group::Group;

/// Copies `len` elements, with all threads of the group. Moves 16 bytes at a time if both sides have the same offset
/// from a multiple of 16, and otherwise the widest words that fit both.
///
/// Every aligned word of the element's alignment is read and written by a single access. Memory next to the elements is
/// not touched.
///
/// # Safety
/// `to` is valid for writes of `len` elements until the kernel returns, and `from` for reads of them. Both are aligned for
/// `T`, and they do not overlap.
#[inline(always)]
pub(crate) unsafe fn copy<T: Pod, G: Group>(group: G, to: *mut T, from: *const T, len: usize) {
    // SAFETY: `to` and `from` are valid for `len` elements, aligned for `T` and apart, by this function's contract.
    unsafe { copy_one(group, false, to, from, len) }
}

/// Copies like [`copy`]. `of_many` means that the group proceeds to the next transfer without a barrier.
///
/// # Safety
/// The same as for [`copy`].
#[inline(always)]
pub(crate) unsafe fn copy_one<T: Pod, G: Group>(
    group: G,
    of_many: bool,
    to: *mut T,
    from: *const T,
    len: usize,
) {
    let bytes = len * size_of::<T>();
    let mut share = Share { rank: group.rank() as usize, of: group.size() as usize };
    let aligned = (to.addr() | from.addr() | bytes) & 15 == 0;
    if aligned && bytes <= share.of * 16 {
        if of_many {
            share = share.turned(to.addr());
            if share.of >= 64 && bytes > share.of * 8 {
                // Some warps move four words per thread. Nobody waits for them, so the others go on to the next
                // transfer, and the loads of several transfers are in flight.
                let of = bytes.div_ceil(64).next_multiple_of(32).min(share.of);
                if share.rank < of {
                    // SAFETY: as for `at_once` below.
                    unsafe { stream::<[u32; 4]>(Share { of, ..share }, to.cast(), from.cast(), bytes / 16) };
                }
                return;
            }
        }
        // For the smallest copies, the call would take as long as everything else.
        //
        // SAFETY: the bytes are valid, by the contract of `copy`. `to`, `from` and `bytes` are multiples of 16.
        return unsafe { at_once::<[u32; 4]>(share, to.cast(), from.cast(), bytes / 16) };
    }
    if aligned {
        // SAFETY: as for `at_once` above.
        return unsafe { stream::<[u32; 4]>(share, to.cast(), from.cast(), bytes / 16) };
    }
    if (to.addr() | from.addr() | bytes) & 7 == 0 && bytes <= share.of * 8 {
        // SAFETY: the bytes are valid, by the contract of `copy`. `to`, `from` and `bytes` are multiples of 8.
        return unsafe { at_once::<u64>(share, to.cast(), from.cast(), bytes / 8) };
    }
    // SAFETY: both ends are valid for `bytes` bytes and apart, by the contract of `copy`. They are aligned for `T`, and the
    // size of `T` is a multiple of its alignment.
    unsafe { copy_bytes(share, to.cast(), from.cast(), bytes, align_of::<T>()) }
}

/// Copies bytes like [`copy`], as elements aligned to `unit`, by thread `rank` of `of`.
///
/// # Safety
/// The same as for [`copy`], with elements of `unit` bytes: both ends and `bytes` are multiples of it. `rank` is below
/// `of`.
#[inline(always)]
pub(crate) unsafe fn copy_part(
    (rank, of): (u32, u32),
    to: *mut u8,
    from: *const u8,
    bytes: usize,
    unit: usize,
) {
    // SAFETY: both ends are valid for `bytes` bytes, aligned to `unit` and apart, by this function's contract.
    unsafe { copy_bytes(Share { rank: rank as usize, of: of as usize }, to, from, bytes, unit) }
}

/// Position of a thread among the threads that share a copy.
#[derive(Clone, Copy)]
struct Share {
    rank: usize,
    of: usize,
}

impl Share {
    /// Rotates the ranks by a number of warps that depends on the address. If few warps suffice for a transfer, and
    /// nobody waits for them, a transfer to another address is then made by other warps.
    #[inline(always)]
    fn turned(self, address: usize) -> Self {
        let warps = self.of / 32;
        // Fibonacci hashing: neighbouring addresses should start at different warps.
        let random = (address as u64 >> 7).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let first = ((random * warps as u64) >> 32) as usize * 32;
        let rank = self.rank + first;
        Self { rank: if rank < self.of { rank } else { rank - self.of }, ..self }
    }
}

/// Copies `bytes` bytes. `unit` divides this number, and both addresses are aligned to it. Outlined, so one copy of the
/// code serves all types.
///
/// # Safety
/// The same as for [`copy_part`].
#[inline(never)]
unsafe fn copy_bytes(share: Share, to: *mut u8, from: *const u8, bytes: usize, unit: usize) {
    // The lowest bit in which the addresses differ limits the width of the words.
    let width = 1 << ((to.addr() ^ from.addr()) | 16).trailing_zeros();
    let head = (to.addr().wrapping_neg() & (width - 1)).min(bytes);
    let body = (bytes - head) & !(width - 1);
    let tail = head + body;
    // SAFETY: three parts of the whole, which is valid by this function's contract. The middle one starts at a multiple of
    // `width` on both sides and is a multiple of it. The others are aligned to `unit`, as the whole is.
    unsafe {
        if width == 16 {
            stream::<[u32; 4]>(share, to.add(head).cast(), from.add(head).cast(), body / 16);
        } else {
            narrow(share, to.add(head), from.add(head), body, width);
        }
        // Most transfers have neither a head nor a tail.
        if head != 0 {
            narrow(share, to, from, head, unit);
        }
        if tail != bytes {
            narrow(share, to.add(tail), from.add(tail), bytes - tail, unit);
        }
    }
}

/// Copies in words of `width` bytes, fewer than 16.
///
/// # Safety
/// The same as for [`copy_part`], with `width` for `unit`.
#[inline(always)]
unsafe fn narrow(share: Share, to: *mut u8, from: *const u8, bytes: usize, width: usize) {
    // SAFETY: both ends are valid for `bytes` bytes, by this function's contract, and aligned to `width`, the size of
    // the word in each arm.
    unsafe {
        match width {
            8 => stream::<u64>(share, to.cast(), from.cast(), bytes / 8),
            4 => stream::<u32>(share, to.cast(), from.cast(), bytes / 4),
            2 => stream::<u16>(share, to.cast(), from.cast(), bytes / 2),
            _ => stream::<u8>(share, to, from, bytes),
        }
    }
}

/// Words that a single load or store moves.
trait Word: Copy {
    /// Loads the word at `p`.
    ///
    /// # Safety
    /// `p` is aligned and readable.
    unsafe fn load(p: *const Self) -> Self;
    /// Stores the word at `p`.
    ///
    /// # Safety
    /// `p` is aligned and writable.
    unsafe fn store(p: *mut Self, v: Self);
}

macro_rules! word {
    ($($t:ty, $load:ident, $store:ident;)*) => {$(
        impl Word for $t {
            #[inline(always)]
            unsafe fn load(p: *const Self) -> Self {
                // SAFETY: `p` is aligned and readable, by the trait's contract. Any bytes are a valid word.
                unsafe { arch::$load(p) }
            }
            #[inline(always)]
            unsafe fn store(p: *mut Self, v: Self) {
                // SAFETY: `p` is aligned and writable, by the trait's contract. A word has no padding.
                unsafe { arch::$store(p, v) }
            }
        }
    )*};
}
word! { [u32; 4], load16, store16; u64, read, write; u32, read, write; u16, read, write; u8, read, write; }

/// Copies `count` words, at most one per thread.
///
/// # Safety
/// The same as for [`copy`], with `count` words `W`. `share.rank` is below `share.of`.
#[inline(always)]
unsafe fn at_once<W: Word>(share: Share, to: *mut W, from: *const W, count: usize) {
    if share.rank < count {
        // SAFETY: `share.rank` is below `count`, and both ends are aligned and valid for `count` words, by this
        // function's contract.
        unsafe { W::store(to.add(share.rank), W::load(from.add(share.rank))) };
    }
}

/// Copies `count` words. While enough words are left, each thread issues 8 loads before its first store, because a
/// peer's memory is far away; after that, 4. More loads in flight would need registers that large blocks do not have.
///
/// # Safety
/// The same as for [`at_once`].
#[inline(never)]
unsafe fn stream<W: Word>(share: Share, to: *mut W, from: *const W, count: usize) {
    let Share { rank: mut i, of: step } = share;
    // SAFETY: both ends are aligned and valid for `count` words, by this function's contract. In the first loop the last of
    // eight words is below `count`. In the second each load is limited to the last word, and each store has its check.
    unsafe {
        while i + 7 * step < count {
            let (a, b) = (load4(from, i, step), load4(from, i + 4 * step, step));
            store4(to, i, step, a);
            store4(to, i + 4 * step, step, b);
            i += 8 * step;
        }
        while i < count {
            // Indices past the last word read that one again, which keeps branches out of the loads.
            let load = |k: usize| W::load(from.add((i + k * step).min(count - 1)));
            let (a, b, c, d) = (load(0), load(1), load(2), load(3));
            W::store(to.add(i), a);
            if i + step < count {
                W::store(to.add(i + step), b);
            }
            if i + 2 * step < count {
                W::store(to.add(i + 2 * step), c);
            }
            if i + 3 * step < count {
                W::store(to.add(i + 3 * step), d);
            }
            i += 4 * step;
        }
    }
}

/// Loads four words, `step` apart, starting at index `i`. Returns a tuple, because an array would be in local memory.
///
/// # Safety
/// `from` is aligned and valid for reads of `i + 3 * step + 1` words.
#[inline(always)]
unsafe fn load4<W: Word>(from: *const W, i: usize, step: usize) -> (W, W, W, W) {
    // SAFETY: `from` is aligned, and these four words are in bounds, by this function's contract.
    let load = |k| unsafe { W::load(from.add(i + k * step)) };
    (load(0), load(1), load(2), load(3))
}

/// Stores four words, `step` apart, starting at index `i`.
///
/// # Safety
/// `to` is aligned and valid for writes of `i + 3 * step + 1` words until the kernel returns.
#[inline(always)]
unsafe fn store4<W: Word>(to: *mut W, i: usize, step: usize, (a, b, c, d): (W, W, W, W)) {
    // SAFETY: `to` is aligned, and these four words are in bounds, by this function's contract.
    let store = |k, word| unsafe { W::store(to.add(i + k * step), word) };
    store(0, a);
    store(1, b);
    store(2, c);
    store(3, d);
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, clippy::panic)]
mod tests {
    use std::vec;
    use std::vec::Vec;

    use super::*;

    const GUARD: u8 = 0xa5;
    const MARGIN: usize = 64;

    /// Copies with a group of `of` threads, one after another, and checks all surrounding bytes.
    fn check(of: usize, to: usize, from: usize, bytes: usize, unit: usize) {
        // Of 16-byte words, which makes offsets determine the alignment.
        let source: Vec<u128> = (0..bytes.div_ceil(16) + 8).map(|i| 0x0101_0703 * (i as u128 + 1)).collect();
        let mut target = vec![u128::from_ne_bytes([GUARD; 16]); bytes.div_ceil(16) + 8];
        for rank in 0..of {
            let there = target.as_mut_ptr().cast::<u8>().wrapping_add(to);
            let here = source.as_ptr().cast::<u8>().wrapping_add(from);
            // SAFETY: both have room for the offset and the bytes.
            unsafe { copy_bytes(Share { rank, of }, there, here, bytes, unit) };
        }
        let (source, target): (&[u8], &[u8]) = (bytemuck::cast_slice(&source), bytemuck::cast_slice(&target));
        let what = || std::format!("{bytes} bytes from {from} to {to} in units of {unit} by {of} threads");
        assert!(target[to..to + bytes] == source[from..from + bytes], "missing: {}", what());
        let beside = target[..to].iter().chain(&target[to + bytes..]);
        assert!(beside.copied().all(|byte| byte == GUARD), "beside: {}", what());
    }

    #[test]
    fn copy_moves_exactly_the_requested_bytes() {
        for to in 0..MARGIN / 2 {
            for from in 0..MARGIN / 2 {
                for bytes in (0..80).chain([127, 128, 129, 143, 144, 255, 257]) {
                    check(1, to, from, bytes, 1);
                }
            }
        }
    }

    #[test]
    fn elements_of_every_alignment_and_groups_of_every_size() {
        for unit in [1, 2, 4, 8, 16] {
            for of in [1, 2, 3, 32, 33] {
                for to in (0..MARGIN / 2).step_by(unit) {
                    for from in [0, unit, 16 - unit, 24 & !(unit - 1)] {
                        for bytes in [
                            0,
                            unit,
                            5 * unit,
                            48,
                            16 * 8 * of - 16,
                            16 * 8 * of + 16 * of + 32,
                            16 * 31 * of + 48,
                        ] {
                            check(of, to, from, bytes.next_multiple_of(unit), unit);
                        }
                    }
                }
            }
        }
    }
}
