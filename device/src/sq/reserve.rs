//! First stage of a posting: reserves blocks of a send queue.

use super::state::SendQueueState;

/// Reserves `blocks` blocks. Returns the index of the first, and the index one past the last.
///
/// `blocks` is at most the depth of the queue: a larger reservation could never be written. The caller waits for
/// [`writable_at`] before it writes.
#[inline(always)]
pub fn reserve<Q: SendQueueState>(queue: &Q, blocks: u64) -> (u64, u64) {
    let first = queue.fetch_add_reserved(blocks);
    (first, first + blocks)
}

/// Returns the value that `done` must reach before a reservation whose last block is before `end` may be written, in a
/// queue of `depth` blocks.
#[inline(always)]
pub const fn writable_at(end: u64, depth: u64) -> u64 {
    // Cannot underflow: `FIRST_BLOCK` exceeds every depth.
    end - depth
}

/// Returns the index, not before `index`, of a block with which a new queue pair can start: the low 16 bits of its first WQE's
/// index are 0.
#[inline(always)]
pub const fn first_of_queue(index: u64) -> u64 {
    index.next_multiple_of(1 << 16)
}

/// Returns the new value of `done` after a CQE, or `None` if the CQE is stale.
///
/// `end16` is the low half of the index one past the last block that the CQE completes; `done` is the value before it.
/// A stale CQE is at or before `done`, by less than a lap. A new one is ahead of it by at most `depth`, a power of two
/// no larger than [`MAX_DEPTH`](super::MAX_DEPTH), so 16 bits tell the two apart.
#[inline(always)]
pub fn completed(done: u64, end16: u16, depth: u64) -> Option<u64> {
    let ahead = end16.wrapping_sub(done as u16) as u64;
    // A stale CQE gives 0 or more than `2^16 - depth`, which exceeds every depth.
    if ahead != 0 && ahead <= depth { Some(done + ahead) } else { None }
}

#[cfg(test)]
mod tests {
    use super::completed;

    #[test]
    fn completion_arithmetic_holds_across_the_16_bit_wrap() {
        for depth in [2u64, 8, 1024, 1 << 14] {
            for done in [0u64, 1, 0xfffe, 0xffff, 0x1_0000, 0x1_2345, 0xffff_ffff, 0x7_0000_0001] {
                for ahead in [1, 2, depth / 2, depth - 1, depth] {
                    let ahead = ahead.max(1);
                    assert_eq!(completed(done, (done + ahead) as u16, depth), Some(done + ahead));
                }
                for behind in 0..depth.min(done + 1) {
                    assert_eq!(completed(done, (done - behind) as u16, depth), None);
                }
            }
        }
    }
}
