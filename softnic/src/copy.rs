//! Copies and atomics on host memory that GPU kernels access concurrently.
#![allow(unsafe_code, reason = "copies between raw pointers, in atomic pieces")]

use rushmem_mlx5::{AtomicOp, Width};
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

/// Copies bytes between ranges that may be accessed concurrently.
///
/// Every naturally aligned piece of 8, 4 or 2 bytes of the destination is stored by one instruction, so no reader sees
/// a torn aligned word. The stores are relaxed: a fence or a release store of the caller publishes the bytes.
///
/// # Safety
///
/// `dst` and `src` must be valid for `len` bytes. Concurrent accesses must be atomic or come from outside Rust.
pub(crate) unsafe fn copy_bytes(dst: *mut u8, src: *const u8, len: usize) {
    let mut at = 0;
    while at < len {
        let left = len - at;
        // SAFETY: `at < len`, each arm stays within `left` bytes, and `store_width` has made the destination aligned
        // for it.
        unsafe {
            let (d, s) = (dst.add(at), src.add(at).cast_mut());
            at += match store_width(d as usize, left) {
                8 => copy_bulk(d.cast(), s, left / 8) * 8,
                4 => {
                    AtomicU32::from_ptr(d.cast()).store(u32::from_ne_bytes(load(s)), Ordering::Relaxed);
                    4
                }
                2 => {
                    AtomicU16::from_ptr(d.cast()).store(u16::from_ne_bytes(load(s)), Ordering::Relaxed);
                    2
                }
                _ => {
                    AtomicU8::from_ptr(d).store(u8::from_ne_bytes(load(s)), Ordering::Relaxed);
                    1
                }
            };
        }
    }
}

/// Returns the size of the widest store to address `dst` that is aligned and writes at most `left` bytes.
fn store_width(dst: usize, left: usize) -> usize {
    let aligned = 1 << dst.trailing_zeros().min(3);
    aligned.min(1 << left.ilog2().min(3))
}

/// Loads `N` bytes from any address, by a single load if it is aligned.
///
/// # Safety
///
/// `src` must be valid for `N` bytes.
unsafe fn load<const N: usize>(src: *mut u8) -> [u8; N] {
    let mut bytes = [0; N];
    // SAFETY: within the `N` bytes, and the wide loads are aligned.
    unsafe {
        if N == 8 && (src as usize).is_multiple_of(8) {
            bytes.copy_from_slice(&AtomicU64::from_ptr(src.cast()).load(Ordering::Relaxed).to_ne_bytes());
        } else if N >= 4 && (src as usize).is_multiple_of(4) {
            for i in (0..N).step_by(4) {
                let word = AtomicU32::from_ptr(src.add(i).cast()).load(Ordering::Relaxed);
                bytes[i..i + 4].copy_from_slice(&word.to_ne_bytes());
            }
        } else {
            for (i, byte) in bytes.iter_mut().enumerate() {
                *byte = AtomicU8::from_ptr(src.add(i)).load(Ordering::Relaxed);
            }
        }
    }
    bytes
}

/// Copies at least one and at most `words` 8-byte words, and returns how many.
///
/// # Safety
///
/// `dst` must be aligned, both must be valid for `words` words, and `words` must not be 0.
unsafe fn copy_bulk(dst: *mut u64, src: *mut u8, words: usize) -> usize {
    // SAFETY: guaranteed by the caller. `copy_shifted` gets one word less than is valid, as it requires.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        if words > LINE_WORDS {
            if !(dst as usize).is_multiple_of(16) {
                AtomicU64::from_ptr(dst).store(u64::from_ne_bytes(load(src)), Ordering::Relaxed);
                return 1;
            }
            let lines = words / LINE_WORDS;
            copy_lines(dst, src, lines);
            return lines * LINE_WORDS;
        }
        if (src as usize).is_multiple_of(8) {
            copy_words(dst, src.cast(), words);
            words
        } else if words > 2 {
            copy_shifted(dst, src, words - 1);
            words - 1
        } else {
            AtomicU64::from_ptr(dst).store(u64::from_ne_bytes(load(src)), Ordering::Relaxed);
            1
        }
    }
}

/// Number of 8-byte words in a 64-byte cache line.
#[cfg(target_arch = "x86_64")]
const LINE_WORDS: usize = 8;

/// Copies `lines` pieces of 64 bytes by 16-byte loads and stores.
///
/// A core can have only a few dozen stores in flight to lines that another core owns, so wider stores move twice as
/// many bytes as words do. The processor still loads and stores each aligned word whole.
///
/// # Safety
///
/// `dst` must be a multiple of 16, both must be valid for `64 * lines` bytes, and `lines` must not be 0.
#[cfg(target_arch = "x86_64")]
unsafe fn copy_lines(dst: *mut u64, src: *const u8, lines: usize) {
    // SAFETY: the loop stays within the bytes that the caller vouches for. Assembly code may race with other accesses.
    unsafe {
        std::arch::asm!(
            "2:",
            "movups {a}, [{src}]",
            "movups {b}, [{src} + 16]",
            "movups {c}, [{src} + 32]",
            "movups {d}, [{src} + 48]",
            "movaps [{dst}], {a}",
            "movaps [{dst} + 16], {b}",
            "movaps [{dst} + 32], {c}",
            "movaps [{dst} + 48], {d}",
            "add {src}, 64",
            "add {dst}, 64",
            "dec {lines}",
            "jnz 2b",
            src = inout(reg) src => _,
            dst = inout(reg) dst => _,
            lines = inout(reg) lines => _,
            a = out(xmm_reg) _,
            b = out(xmm_reg) _,
            c = out(xmm_reg) _,
            d = out(xmm_reg) _,
            options(nostack),
        );
    }
}

/// Copies 8-byte words between aligned ranges.
///
/// # Safety
///
/// Both sides must be 8-byte aligned and valid for `words` words.
unsafe fn copy_words(dst: *mut u64, src: *mut u64, words: usize) {
    for i in 0..words {
        // SAFETY: `i < words`, and the caller guarantees alignment.
        unsafe {
            AtomicU64::from_ptr(dst.add(i))
                .store(AtomicU64::from_ptr(src.add(i)).load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }
}

/// Copies 8-byte words from an unaligned source. Each word is combined from two aligned loads.
///
/// # Safety
///
/// - `dst` must be aligned and valid for `words` words.
/// - `src` must be unaligned and valid for `words * 8 + 8` bytes, because the aligned words around it are read. The
///   first of them starts less than 8 bytes before `src`.
unsafe fn copy_shifted(dst: *mut u64, src: *mut u8, words: usize) {
    let skew = src as usize % 8;
    let (down, up) = (8 * skew as u32, 64 - 8 * skew as u32);
    // Reads the first partial word byte by byte, so nothing before `src` is touched.
    let mut low = 0u64;
    for i in 0..8 - skew {
        // SAFETY: `i < 8`, and the source is valid for at least 16 bytes.
        let byte = unsafe { AtomicU8::from_ptr(src.add(i)) }.load(Ordering::Relaxed);
        low |= u64::from(byte) << (8 * i as u32 + down);
    }
    let base = src.wrapping_sub(skew).cast::<u64>();
    for i in 0..words {
        // SAFETY: word `i + 1` from `base` ends at most `8 * words + 8 - skew` bytes after `src`.
        let high = unsafe { AtomicU64::from_ptr(base.add(i + 1)) }.load(Ordering::Relaxed);
        // SAFETY: `i < words`.
        unsafe { AtomicU64::from_ptr(dst.add(i)) }.store((low >> down) | (high << up), Ordering::Relaxed);
        low = high;
    }
}

/// Executes an atomic by CPU instructions, because GPU kernels may access the same word concurrently.
///
/// # Safety
///
/// `at` must be valid and aligned for `width`.
pub(crate) unsafe fn atomic(at: *mut u8, width: Width, op: AtomicOp) -> u64 {
    match width {
        Width::Eight => {
            // SAFETY: the caller guarantees that it is valid and aligned.
            let word = unsafe { AtomicU64::from_ptr(at.cast()) };
            atomic_u64(word, op)
        }
        Width::Four => {
            // SAFETY: the caller guarantees that it is valid and aligned.
            let word = unsafe { AtomicU32::from_ptr(at.cast()) };
            u64::from(atomic_u32(word, op))
        }
    }
}

/// Executes an atomic as a separate load and store, like a NIC without atomic access to host memory. Other accesses to
/// the word may fall in between.
///
/// # Safety
///
/// The conditions of [`atomic`] must hold.
pub(crate) unsafe fn non_atomic_rmw(at: *mut u8, width: Width, op: AtomicOp) -> u64 {
    match width {
        Width::Eight => {
            // SAFETY: the caller guarantees that it is valid and aligned.
            let word = unsafe { AtomicU64::from_ptr(at.cast()) };
            let old = word.load(Ordering::Acquire);
            std::thread::yield_now();
            if let Some(new) = op.apply(old, width) {
                word.store(new, Ordering::Release);
            }
            old
        }
        Width::Four => {
            // SAFETY: the caller guarantees that it is valid and aligned.
            let word = unsafe { AtomicU32::from_ptr(at.cast()) };
            let old = word.load(Ordering::Acquire);
            std::thread::yield_now();
            if let Some(new) = op.apply(old.into(), width) {
                word.store(new as u32, Ordering::Release);
            }
            old.into()
        }
    }
}

// AcqRel throughout: the atomic publishes earlier writes of its QP, and a fetched value orders what follows.
fn atomic_u64(word: &AtomicU64, op: AtomicOp) -> u64 {
    match op {
        AtomicOp::Add { add, boundary: 0 } => word.fetch_add(add, Ordering::AcqRel),
        AtomicOp::Add { add, boundary: u64::MAX } => word.fetch_xor(add, Ordering::AcqRel),
        AtomicOp::CompareSwap { swap, compare_mask: 0, swap_mask: u64::MAX, .. } => {
            word.swap(swap, Ordering::AcqRel)
        }
        _ => {
            let step = |old| op.apply(old, Width::Eight);
            word.fetch_update(Ordering::AcqRel, Ordering::Acquire, step).unwrap_or_else(|old| old)
        }
    }
}

fn atomic_u32(word: &AtomicU32, op: AtomicOp) -> u32 {
    let step = |old: u32| op.apply(u64::from(old), Width::Four).map(|new| new as u32);
    match op {
        AtomicOp::Add { add, boundary } if boundary as u32 == 0 => {
            word.fetch_add(add as u32, Ordering::AcqRel)
        }
        _ => word.fetch_update(Ordering::AcqRel, Ordering::Acquire, step).unwrap_or_else(|old| old),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{HostBuffer, Memory};

    #[test]
    fn copy_is_exact_at_every_alignment() {
        let from = HostBuffer::new(256);
        let pattern: Vec<u8> = (0..256).map(|i| (i * 7 + 3) as u8).collect();
        from.write(0, &pattern).unwrap();
        for src in 0..9usize {
            for dst in 0..9usize {
                for len in 0..200usize {
                    let to = HostBuffer::new(256);
                    // SAFETY: both buffers are larger than offset plus length.
                    unsafe { copy_bytes(to.as_ptr().add(dst), from.as_ptr().add(src), len) };
                    let mut got = [0; 256];
                    to.read(0, &mut got).unwrap();
                    let mut want = [0; 256];
                    want[dst..dst + len].copy_from_slice(&pattern[src..src + len]);
                    assert_eq!(got, want, "src {src} dst {dst} len {len}");
                }
            }
        }
    }
}
