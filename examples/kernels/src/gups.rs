//! Random updates of a table that is distributed over the PEs: HPCC's RandomAccess.
//!
//! The updates are a sequence of pseudo-random numbers `x`. Update `x` changes the word `x % words` of the table by an
//! exclusive or with `x`. The numbers are the powers of `t` in the field of 2^64 elements with the polynomial
//! `t^64 + t^2 + t + 1`, so each thread can begin anywhere.

use rushmem_device::prelude::*;

/// The polynomial of HPCC's sequence, without its highest power.
const POLYNOMIAL: u64 = 7;

/// Returns the number that follows `x`.
#[inline(always)]
pub fn next(x: u64) -> u64 {
    (x << 1) ^ if x >> 63 == 1 { POLYNOMIAL } else { 0 }
}

/// Returns number `n` of the sequence, from number 0, which is 1.
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

/// Returns the product of two elements of the field.
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

/// Makes `updates` updates of the table, beginning with number `first`.
///
/// The table has `words` words, a power of two. Each PE has `part.len()` of them: PE 0 the first ones, and the last PE what
/// is left. The threads of the grid divide the updates. A thread stores no updates for later.
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
        // The sequence of HPCC has this period.
        assert_eq!(number(1_317_624_576_693_539_401), 1);
    }
}
