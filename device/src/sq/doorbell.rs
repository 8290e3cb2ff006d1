//! Publishing and announcing postings: the doorbell word, the ready entries, and the rules of their use.
//!
//! `ring_doorbell` arguments get the new producer index: they write the doorbell record and the doorbell register. They are
//! called by one thread at a time, with indices that never decrease. Everything written before a [`publish`] or
//! [`ring_uncontended`] that a call covers must happen before its stores. So each begins with an acquire-release fence. It
//! acquires the WQEs and the ring before it, which were read relaxed, and releases them to observers of the doorbell.

use super::state::{DoorbellState, ReadyEntry, SendQueueState};

/// Announces the blocks `first..end`, which are written and not published, on the uncontended fast path.
///
/// The doorbell must have been [idle](DoorbellState::is_idle_at) at `first` at some time before. Returns whether that was
/// all. If it returns false, another poster has set the pending bit, and the caller calls [`ring_contended`].
#[inline(always)]
#[must_use]
pub fn ring_uncontended<Q: SendQueueState>(
    queue: &Q,
    first: u64,
    end: u64,
    ring_doorbell: impl FnOnce(u64),
) -> bool {
    ring_doorbell(end);
    let idle = DoorbellState::free(first, false);
    queue.compare_swap_doorbell(idle, DoorbellState::free(end, false)) == idle
}

/// Finishes a [`ring_uncontended`] that returned false: moves the doorbell word to `end`, and announces what other posters
/// have published if no other thread holds the doorbell.
///
/// It retries only if other posters have set the pending bit or released the doorbell meanwhile.
#[inline(always)]
pub fn ring_contended<Q: SendQueueState>(
    queue: &Q,
    depth: u64,
    first: u64,
    end: u64,
    ring_doorbell: impl FnMut(u64),
) {
    // Most often the other poster held the doorbell, found a gap at `first`, and released it.
    let mut found = DoorbellState::free(first, true);
    loop {
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

/// Publishes the blocks `first..end` of a queue of `depth` blocks, which are written. Announces them if no other thread holds
/// the doorbell.
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

/// Publishes the blocks `first..end` without announcing them. A later [`announce`] of any poster does that.
#[inline(always)]
pub fn publish<Q: SendQueueState>(queue: &Q, depth: u64, first: u64, end: u64) {
    queue.set_ready_entry(first & (depth - 1), ReadyEntry::new(first, end));
}

/// Announces all published postings, or leaves that to the thread that holds the doorbell.
///
/// It covers what the caller has published, and what happened before this call.
#[inline(always)]
pub fn announce<Q: SendQueueState>(queue: &Q, depth: u64, ring_doorbell: impl FnMut(u64)) {
    let found = queue.set_pending();
    if !found.is_held() {
        announce_as_holder(queue, depth, found.announced(), ring_doorbell);
    }
}

/// Announces, as the doorbell holder, what is published from block `announced` on, until no posting is pending. Releases the
/// doorbell.
#[inline(always)]
fn announce_as_holder<Q: SendQueueState>(
    queue: &Q,
    depth: u64,
    mut announced: u64,
    mut ring_doorbell: impl FnMut(u64),
) {
    loop {
        let held = DoorbellState::held(announced);
        // A poster on the uncontended path may have announced more.
        announced = queue.take_pending(held).announced().max(announced);
        let ready = published_end(queue, depth, announced);
        if ready != announced {
            ring_doorbell(ready);
            announced = ready;
        }
        let free = DoorbellState::free(announced, queue.reserved() != announced);
        if queue.compare_swap_doorbell(held, free) == held {
            return;
        }
    }
}

/// Returns the end of the postings that are published without a gap from block `from` on.
///
/// Each entry tells where the next one is. Successive reservations often have one length. So four entries are loaded
/// together, at the places that follow from this guess, and an entry counts only where the guess was right.
#[inline(always)]
fn published_end<Q: SendQueueState>(queue: &Q, depth: u64, from: u64) -> u64 {
    let (mut at, mut length) = (from, 1);
    loop {
        let (b, c, d) = (at + length, at + 2 * length, at + 3 * length);
        let blocks = |first: u64| queue.ready_entry(first & (depth - 1)).blocks(first);
        let (of_a, of_b, of_c, of_d) = (blocks(at), blocks(b), blocks(c), blocks(d));
        if of_a == 0 {
            return at;
        }
        (length, at) = (of_a, at + of_a);
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
    fn a_ready_entry_matches_one_reservation_only() {
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
