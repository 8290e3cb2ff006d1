//! Copies by a group of threads.
//!
//! Every aligned piece of 8, 4 or 2 bytes of the target is stored by a single instruction, so no reader sees a torn
//! aligned word.
#![allow(unsafe_code, reason = "copies between raw addresses")]

use rushmem_device::arch::{self, Scope, Sys, SysWord};

/// One thread's position in the group that shares a copy.
#[derive(Clone, Copy)]
pub(crate) struct Share {
    pub(crate) thread: u32,
    pub(crate) threads: u32,
}

/// Number of 16-byte loads that a thread issues before it stores their results.
const UNROLL: usize = 6;

/// Copies this thread's share of `len` bytes from address `from` to address `to`.
///
/// # Safety
/// Both ranges are GPU memory or page-locked host memory that this thread may access.
pub(crate) unsafe fn copy(to: u64, from: u64, len: u64, share: Share) {
    // Split at 16-byte boundaries of the target. The source decides which loop copies the middle.
    let head = (to.wrapping_neg() & 15).min(len);
    let body = (len - head) & !15;
    let (middle, source) = (to + head, from + head);
    // SAFETY: the parts lie in the caller's ranges. The middle of the target is aligned.
    unsafe {
        match source & 15 {
            0 => copy_aligned(middle, source, body, share),
            _ => copy_shifted(middle, source, body, share),
        }
        // The last thread has the smallest share of the middle, so it also copies the unaligned head and tail.
        if share.thread == share.threads - 1 {
            copy_pieces(to, from, head);
            copy_pieces(middle + body, source + body, len - head - body);
        }
    }
}

/// Copies 16-byte pieces between aligned addresses.
///
/// # Safety
/// The rules of [`copy`] hold. The addresses are aligned to 16 bytes, and `len` is a multiple of it.
unsafe fn copy_aligned(to: u64, from: u64, len: u64, share: Share) {
    let (mut at, step) = (u64::from(share.thread) * 16, u64::from(share.threads) * 16);
    while at + step * (UNROLL as u64 - 1) < len {
        let mut pieces = [[0; 2]; UNROLL];
        for (i, piece) in pieces.iter_mut().enumerate() {
            // SAFETY: inside of the range.
            *piece = unsafe { arch::load_two((from + at + step * i as u64) as *const _) };
        }
        for (i, piece) in pieces.iter().enumerate() {
            // SAFETY: as above.
            unsafe { arch::store_two((to + at + step * i as u64) as *mut _, *piece) };
        }
        at += step * UNROLL as u64;
    }
    while at < len {
        // SAFETY: as above.
        unsafe { arch::store_two((to + at) as *mut _, arch::load_two((from + at) as *const _)) };
        at += step;
    }
}

/// Copies 8-byte words from a source of any alignment.
///
/// # Safety
/// The rules of [`copy`] hold. The target is aligned to 8 bytes, and `len` is a multiple of it.
unsafe fn copy_shifted(to: u64, from: u64, len: u64, share: Share) {
    let mut at = u64::from(share.thread) * 8;
    while at < len {
        // SAFETY: inside of the range; the target is aligned.
        unsafe { Sys::store_relaxed((to + at) as *mut u64, load(from + at, 8)) };
        at += u64::from(share.threads) * 8;
    }
}

/// Copies a few bytes with this thread alone, in the largest pieces that the alignment of the target allows.
///
/// # Safety
/// The rules of [`copy`] hold.
unsafe fn copy_pieces(mut to: u64, mut from: u64, mut len: u64) {
    while len > 0 {
        let width = piece_width(to, len);
        // SAFETY: inside of the ranges; the width suits the alignment.
        unsafe { store(to, load(from, width), width) };
        (to, from, len) = (to + width, from + width, len - width);
    }
}

/// Stores the first `len` bytes of `words` at `to`.
///
/// # Safety
/// The rules of [`copy`] hold for the target. `words` has `len` bytes.
pub(crate) unsafe fn store_words(mut to: u64, words: [u64; 4], len: u64) {
    let mut at = 0;
    while at < len {
        let width = piece_width(to, len - at);
        // SAFETY: inside of the range; the width suits the alignment.
        unsafe { store(to, extract(words, at), width) };
        (to, at) = (to + width, at + width);
    }
}

/// Returns the 8 bytes of `words` that start at byte `at`, padded with zeros.
fn extract(words: [u64; 4], at: u64) -> u64 {
    let [a, b, c, d] = words;
    let (low, high) = match at / 8 {
        0 => (a, b),
        1 => (b, c),
        2 => (c, d),
        _ => (d, 0),
    };
    let shift = (at % 8) * 8;
    if shift == 0 { low } else { low >> shift | high << (64 - shift) }
}

/// Returns the width of the largest piece at address `to` that is aligned and has at most `left` bytes. `left` is not
/// 0.
fn piece_width(to: u64, left: u64) -> u64 {
    // The lowest set bit of the address, at most 8.
    let aligned = 1 << (to | 8).trailing_zeros();
    // The highest power of two that is at most `left`, at most 8.
    let fits = 1 << (63 - (left.min(8) | 1).leading_zeros());
    if aligned < fits { aligned } else { fits }
}

/// Stores the low `width` bytes of `value` at an aligned address.
///
/// # Safety
/// The rules of [`copy`] hold. The address is aligned to `width`, which is 1, 2, 4 or 8.
unsafe fn store(to: u64, value: u64, width: u64) {
    // SAFETY: `to` is aligned to `width`, and this thread may write there.
    unsafe {
        match width {
            8 => Sys::store_relaxed(to as *mut u64, value),
            4 => SysWord::store_relaxed(to as *mut u32, value as u32),
            2 => arch::write(to as *mut u16, value as u16),
            _ => arch::write(to as *mut u8, value as u8),
        }
    }
}

/// Loads `width` bytes from any address, in the largest pieces that its alignment allows.
///
/// # Safety
/// The rules of [`copy`] hold for the source. `width` is 1, 2, 4 or 8.
unsafe fn load(from: u64, width: u64) -> u64 {
    let step = piece_width(from, width);
    let (mut value, mut at) = (0, 0);
    while at < width {
        let p = from + at;
        // SAFETY: inside of the range; the step suits the alignment.
        let piece = unsafe {
            match step {
                8 => Sys::load_relaxed(p as *const u64),
                4 => SysWord::load_relaxed(p as *const u32).into(),
                2 => arch::read(p as *const u16).into(),
                _ => u64::from(arch::read(p as *const u8)),
            }
        };
        value |= piece << (8 * at);
        at += step;
    }
    value
}
