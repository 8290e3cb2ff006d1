//! Closing a send queue whose connection has failed, so one thread can hand it over.
//!
//! Posters that have reserved blocks before `limit`, which is `done` plus the depth, have room and may still be writing. They
//! will not check the queue again before they publish. The thread that closes the queue
//!
//! 1. takes the doorbell ([`take_doorbell`]), after which nothing more is announced;
//! 2. reserves all blocks before an index past `limit` ([`close`]), unless some reservation already lacks room. Later
//!    reservations find none;
//! 3. waits until all reservations with room are published ([`published`]). At most one reservation reaches past `limit`
//!    without starting there. Its poster waits for room, and [marks](mark_waiting) that.
//!
//! All published blocks then form one run, which the caller takes out of the queue. The next connection starts after it, and
//! after the blocks that step 2 has reserved ([`Closed::resume`]). The WQE indices of a new queue pair start at 0, so the host
//! has to post NOPs up to that block, modulo 2^16; step 2 chooses an index for which these are few. [`reopen`] releases the
//! doorbell. Once `done` has that value, posters find room again.
//!
//! A poster that published before the failover may announce only afterwards. It may then find postings of others to the next
//! connection, so a doorbell holder must read the connection again before it rings.

use super::reserve::first_of_queue;
use super::state::{DoorbellState, ReadyEntry, SendQueueState};

/// Tries to take the doorbell. Returns the index one past the last announced block.
#[inline(always)]
#[must_use]
pub fn take_doorbell<Q: SendQueueState>(queue: &Q) -> Option<u64> {
    // If another thread holds the doorbell, the pending bit merely makes it scan again.
    let found = queue.set_pending();
    if found.is_held() { None } else { Some(found.announced()) }
}

/// A queue that [`close`] has closed.
#[derive(Clone, Copy, Debug)]
pub struct Closed {
    /// Index one past the last block that is known to be complete.
    done: u64,
    /// Index one past the last block that other posters have reserved.
    reserved: u64,
    /// Index one past the last block for which there is room.
    limit: u64,
}

/// Closes a queue of `depth` blocks, in which all blocks before `done` are complete.
#[inline(always)]
pub fn close<Q: SendQueueState>(queue: &Q, done: u64, depth: u64) -> Closed {
    let mut closed = Closed { done, reserved: queue.reserved(), limit: done + depth };
    while closed.have_room() {
        let found = queue.compare_swap_reserved(closed.reserved, closed.after());
        if found == closed.reserved {
            break;
        }
        closed.reserved = found;
    }
    closed
}

/// Closes a queue like [`close`], whose reservations will not be published. Returns the index of the first block of the next
/// connection.
#[inline(always)]
pub fn abandon<Q: SendQueueState>(queue: &Q, done: u64, depth: u64) -> u64 {
    let mut reserved = queue.reserved();
    loop {
        let resume = first_of_queue(reserved.max(done + depth));
        let found = queue.compare_swap_reserved(reserved, resume);
        if found == reserved {
            return resume;
        }
        reserved = found;
    }
}

/// Returns the index one past the run of published blocks that starts at or before `at`, and whether no block after it will
/// be published while the queue is closed. The caller holds the doorbell and starts with what is announced.
#[inline(always)]
pub fn published<Q: SendQueueState>(queue: &Q, depth: u64, closed: Closed, mut at: u64) -> (u64, bool) {
    // A poster on the uncontended path sets no ready entry. It moves the doorbell word instead.
    at = queue.take_pending(DoorbellState::held(at)).announced().max(at);
    while at < closed.reserved.min(closed.limit) {
        let entry = queue.ready_entry(at & (depth - 1));
        match entry.blocks(at) {
            // Only a reservation past `limit` can lack room.
            0 => return (at, !closed.have_room() && entry == ReadyEntry::waiting(at)),
            blocks => at += blocks,
        }
    }
    (at, true)
}

/// Gives back the blocks that [`close`] has reserved, after the queue could not be handed over. Later posters find room in the
/// broken queue, and a wait for all blocks waits for none that nobody has posted.
#[inline(always)]
pub fn give_back<Q: SendQueueState>(queue: &Q, closed: Closed) {
    // Posters that have reserved blocks after them learn that the queue is broken.
    if closed.have_room() {
        let _ = queue.compare_swap_reserved(closed.after(), closed.reserved);
    }
}

impl Closed {
    /// Returns whether all reservations of other posters have room.
    #[inline(always)]
    fn have_room(self) -> bool {
        self.reserved <= self.limit
    }

    /// Returns an index past all blocks for which there is room. Modulo 2^16, it is the number of blocks that may have to be
    /// posted again.
    #[inline(always)]
    fn after(self) -> u64 {
        first_of_queue(self.limit) + (self.reserved - self.done)
    }

    /// Returns the index of the first block to be posted to the next connection. `published` is one past the last published
    /// block.
    #[inline(always)]
    pub fn resume(self, published: u64) -> u64 {
        if self.have_room() { self.after() } else { published }
    }
}

/// Marks that the reservation at block `first` waits for room, if the closing thread may be waiting for it. `done` is a value
/// that the queue's `done` has had.
///
/// A poster calls it at most once while a thread closes the queue. The mark is then the last thing for which that thread waits,
/// and [`unmark`] removes it.
#[inline(always)]
pub fn mark_waiting<Q: SendQueueState>(queue: &Q, depth: u64, first: u64, done: u64) {
    // The slot's previous reservation is complete. Without that, its ready entry might still be needed.
    if first < done + depth {
        queue.set_ready_entry(first & (depth - 1), ReadyEntry::waiting(first));
    }
}

/// Removes the mark of a reservation that starts at `end`, one past the published blocks, before the queue is reopened. The
/// next thread that closes the queue must not mistake it for a new one.
#[inline(always)]
pub fn unmark<Q: SendQueueState>(queue: &Q, depth: u64, end: u64) {
    let slot = end & (depth - 1);
    if queue.ready_entry(slot) == ReadyEntry::waiting(end) {
        queue.set_ready_entry(slot, ReadyEntry(0));
    }
}

/// Releases the doorbell of a queue whose first block will be `resume`, before posters find room again.
///
/// Whoever takes the doorbell next sees the new connection.
#[inline(always)]
pub fn reopen<Q: SendQueueState>(queue: &Q, resume: u64) {
    // The pending bit may be set, but everything that is published has been taken out.
    let free = DoorbellState::free(resume, queue.reserved() != resume);
    let mut found = queue.doorbell();
    loop {
        let seen = queue.compare_swap_doorbell(found, free);
        if seen == found {
            return;
        }
        found = seen;
    }
}
