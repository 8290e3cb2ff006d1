//! The send-queue protocol for publishing blocks and ringing the doorbell, by the doorbell word and the ready entries.
//!
//! The `ring_doorbell` callbacks receive the new producer index and write the doorbell record and the doorbell
//! register. Only one thread at a time calls one, with indices that never decrease. Everything written before a
//! [`publish`] or [`ring_uncontended`] that a ring covers must be visible before the stores of that ring, so each
//! callback starts with an acquire-release fence. It acquires the WQEs and the previous ring, which were observed by
//! relaxed loads, and releases them to whoever sees the doorbell.

use super::state::{DoorbellState, ReadyEntry, SendQueueState};

/// Announces blocks `first..end` to the NIC, written but not published, on the uncontended path.
///
/// The doorbell must have been [idle](DoorbellState::is_idle_at) at `first` at some earlier time. Returns `false` if
/// another poster has set the pending bit since, in which case the caller must call [`ring_contended`].
#[inline(always)]
#[must_use]
pub fn ring_uncontended<Q: SendQueueState>(
    queue: &Q,
    first: u64,
    end: u64,
    ring_doorbell: impl FnOnce(u64),
) -> bool {
    // Safe without holding the doorbell. Nobody else can announce past `first`, because these blocks are not published.
    ring_doorbell(end);
    // The swap must come after the ring: once the word reads `end`, the next poster may ring for later blocks.
    let idle = DoorbellState::free(first, false);
    queue.compare_swap_doorbell(idle, DoorbellState::free(end, false)) == idle
}

/// Completes a [`ring_uncontended`] that returned `false`: moves the doorbell word to `end`, and announces what other
/// posters have published unless another thread holds the doorbell.
///
/// Retries only when another poster has set the pending bit or released the doorbell in between.
#[inline(always)]
pub fn ring_contended<Q: SendQueueState>(
    queue: &Q,
    depth: u64,
    first: u64,
    end: u64,
    ring_doorbell: impl FnMut(u64),
) {
    // The most likely state: another poster took the doorbell, found the gap at `first`, and released it.
    let mut found = DoorbellState::free(first, true);
    loop {
        // If the doorbell is held, leave `end` in the word; the holder picks it up in `take_pending`. Otherwise become
        // the holder.
        let moved = if found.is_held() { DoorbellState::held_pending(end) } else { DoorbellState::held(end) };
        let seen = queue.compare_swap_doorbell(found, moved);
        if seen == found {
            break;
        }
        found = seen;
    }
    if !found.is_held() {
        announce_as_holder(queue, depth, end, ring_doorbell);
    }
}

/// Publishes blocks `first..end`, already written, of a queue of `depth` blocks, and announces them to the NIC unless
/// another thread holds the doorbell.
#[inline(always)]
pub fn publish_and_announce<Q: SendQueueState>(
    queue: &Q,
    depth: u64,
    first: u64,
    end: u64,
    ring_doorbell: impl FnMut(u64),
) {
    publish(queue, depth, first, end);
    announce(queue, depth, ring_doorbell);
}

/// Publishes blocks `first..end`, but does not announce them. The next [`announce`] of any poster does.
#[inline(always)]
pub fn publish<Q: SendQueueState>(queue: &Q, depth: u64, first: u64, end: u64) {
    // A later lap overwrites the entry, which cannot happen before these blocks have completed.
    queue.set_ready_entry(first & (depth - 1), ReadyEntry::new(first, end));
}

/// Announces all published postings to the NIC, or leaves them to the current doorbell holder.
///
/// Covers all postings whose publication happens before this call.
#[inline(always)]
pub fn announce<Q: SendQueueState>(queue: &Q, depth: u64, ring_doorbell: impl FnMut(u64)) {
    // Publishing precedes this release, so whoever takes the bit sees the caller's ready entry.
    let found = queue.set_pending();
    if !found.is_held() {
        announce_as_holder(queue, depth, found.announced(), ring_doorbell);
    }
}

/// Announces, as the doorbell holder, postings that are published from block `announced` on, until no posting is
/// pending. Releases the doorbell before it returns.
#[inline(always)]
fn announce_as_holder<Q: SendQueueState>(
    queue: &Q,
    depth: u64,
    mut announced: u64,
    mut ring_doorbell: impl FnMut(u64),
) {
    loop {
        // Clear the pending bit before scanning. A poster that publishes after the scan sets the bit again, which makes
        // the final swap fail and starts another round.
        let held = DoorbellState::held(announced);
        // A poster that lost the uncontended race may have written a larger end into the word.
        announced = queue.take_pending(held).announced().max(announced);
        let ready = published_end(queue, depth, announced);
        if ready != announced {
            ring_doorbell(ready);
            announced = ready;
        }
        // Any reserved block that is not announced may hide published ones after it, so the state keeps the gap bit. It
        // sends later posters to the contended path.
        let free = DoorbellState::free(announced, queue.reserved() != announced);
        if queue.compare_swap_doorbell(held, free) == held {
            return;
        }
    }
}

/// Returns the index one past the contiguous run of published postings that starts at block `from`.
///
/// Each entry holds the position of the next, which makes this a chain of dependent loads. Successive reservations
/// usually have the same length, so four entries are loaded together, at the positions that this guess yields. An entry
/// counts only where the guess was right.
#[inline(always)]
fn published_end<Q: SendQueueState>(queue: &Q, depth: u64, from: u64) -> u64 {
    let (mut at, mut length) = (from, 1);
    loop {
        let (b, c, d) = (at + length, at + 2 * length, at + 3 * length);
        // Relaxed loads: the fence in `ring_doorbell` turns them into acquires.
        let blocks = |first: u64| queue.ready_entry(first & (depth - 1)).blocks(first);
        let (of_a, of_b, of_c, of_d) = (blocks(at), blocks(b), blocks(c), blocks(d));
        if of_a == 0 {
            return at;
        }
        (length, at) = (of_a, at + of_a);
        // Each guess is only valid if all reservations before it had the guessed length.
        if b == at && of_b != 0 {
            (length, at) = (of_b, at + of_b);
        }
        if c == at && of_c != 0 {
            (length, at) = (of_c, at + of_c);
        }
        if d == at && of_d != 0 {
            (length, at) = (of_d, at + of_d);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::sq::{MAX_DEPTH, ReadyEntry};

    #[test]
    fn ready_entry_matches_only_its_reservation() {
        for first in [0, 1, 2, 0xffff, 1 << 16, (1 << 40) + 5, (1 << 61) - MAX_DEPTH] {
            for blocks in [1, 2, MAX_DEPTH - 1, MAX_DEPTH] {
                let entry = ReadyEntry::new(first, first + blocks);
                assert_eq!(entry.blocks(first), blocks);
                for other in [1, 2, 1024, MAX_DEPTH, 1 << 32] {
                    assert_eq!(entry.blocks(first + other), 0);
                    assert_eq!(entry.blocks(first.wrapping_sub(other)), 0);
                }
            }
            assert_eq!(ReadyEntry(0).blocks(first), 0);
        }
    }
}
