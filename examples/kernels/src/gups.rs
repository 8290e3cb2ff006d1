//! Random updates of a distributed table: HPCC's RandomAccess.
//!
//! The updates are a sequence of pseudo-random numbers `x`; each XORs `x` into word `x % words` of the table. The
//! numbers are successive powers of `t` in the field of 2^64 elements with the polynomial `t^64 + t^2 + t + 1`, so a
//! thread can start anywhere in the sequence.

use rushmem_device::prelude::*;

/// Low terms of the field polynomial, `t^2 + t + 1`.
const POLYNOMIAL: u64 = 7;

/// Returns the successor of `x` in the sequence of pseudo-random numbers.
#[inline(always)]
pub fn next(x: u64) -> u64 {
    (x << 1) ^ if x >> 63 == 1 { POLYNOMIAL } else { 0 }
}

/// Returns element `n` of the sequence of pseudo-random numbers. Element 0 is 1. Takes O(log n) field multiplications.
pub fn number(n: u64) -> u64 {
    let mut power = 1;
    for bit in (0..64 - n.leading_zeros()).rev() {
        power = product(power, power);
        if n >> bit & 1 == 1 {
            power = next(power);
        }
    }
    power
}

/// Returns the product of two elements of the field of 2^64 elements.
fn product(mut a: u64, mut b: u64) -> u64 {
    let mut sum = 0;
    while b != 0 {
        if b & 1 == 1 {
            sum ^= a;
        }
        a = next(a);
        b >>= 1;
    }
    sum
}

/// Performs `updates` updates of the table, starting with element `first` of the sequence.
///
/// The table has `words` words, a power of two. Each PE owns `part.len()` of them in PE order; the last PE may own
/// fewer. The threads of the grid divide the updates. A thread keeps no look-ahead buffer of updates, which HPCC would
/// allow.
#[kernel]
pub fn update(ctx: &Ctx, part: SymSlice<u64>, words: u64, first: u64, updates: u64) -> Result {
    let (threads, len) = (Thread::count() as u64, part.len() as u64);
    if threads == 0 || len == 0 {
        return Ok(());
    }
    let begin = |thread: u64| first + updates / threads * thread + (updates % threads).min(thread);
    let me = Thread::index() as u64;
    let mut x = number(begin(me));
    for _ in begin(me)..begin(me + 1) {
        let word = x & (words - 1);
        ctx.atomic_xor(part.at((word % len) as usize), x, (word / len) as u32)?;
        x = next(x);
    }
    ctx.quiet(Thread)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequence_can_start_at_any_index() {
        let mut x = 1;
        for n in 0..300 {
            assert_eq!(number(n), x, "number {n}");
            x = next(x);
        }
        assert_eq!(next(number((1 << 40) + 12344)), number((1 << 40) + 12345));
        // The period of HPCC's sequence.
        assert_eq!(number(1_317_624_576_693_539_401), 1);
    }
}
