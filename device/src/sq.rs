//! The send-queue protocol: how threads that share a queue post to it without waiting for each other.
//!
//! Four steps, each its own function:
//!
//! 1. **reserve**: one atomic add hands out blocks. They may be written once `done + depth` has passed their end,
//!    so nothing that the NIC has not executed is ever overwritten.
//! 2. **write** the WQEs, in any order, by any thread.
//! 3. **publish**: one release store into the word that belongs to the reservation's first slot says where the
//!    reservation ends. Nobody waits for earlier posters here.
//! 4. **ring**: whoever finds the bell free walks the published reservations from where the last doorbell stood,
//!    announces all of them with one doorbell, frees the bell and looks again. Whoever finds it taken leaves:
//!    the holder looks again *after* it has freed the bell, and so cannot miss what was published before it was
//!    found taken. Doorbell record and register thus only ever grow, and one doorbell serves many posters.
//!
//! A slot's end word needs no reset: ends only grow, so one from an earlier lap is never past `rung`.
//!
//! Step 4 is right because each look for the bell is a read-modify-write that also writes. A poster stores its end,
//! then swaps 1 in and reads 1: its swap comes before the holder's swap to 0 in the word's order, so the holder's
//! swap synchronises with it, and the holder's later look sees the end. The model in `device/tests/loom.rs` checks
//! all of this.

/// The words of one send queue, and their orderings. The device has them in memory; the model has loom's.
pub trait Words {
    /// Adds to the blocks handed out; returns the old value. Relaxed.
    fn reserve(&self, blocks: u64) -> u64;
    /// The end of the reservation that starts in `slot`. Acquire.
    fn end(&self, slot: u64) -> u64;
    /// Sets it. Release: the WQEs are visible to whoever reads it.
    fn set_end(&self, slot: u64, end: u64);
    /// Takes the bell: true if it was free. A swap, acquire and release.
    fn take_bell(&self) -> bool;
    /// Frees the bell. A swap, acquire and release.
    fn free_bell(&self);
    /// Blocks announced. Only the bell's holder calls it.
    fn rung(&self) -> u64;
    /// Sets it. Only the bell's holder calls it.
    fn set_rung(&self, end: u64);
}

/// Says that the blocks from `first` to `end` of a queue of `depth` are written, and rings if nobody else does.
///
/// `bell` gets the new producer index. It is called by one thread at a time, with growing indices, and what was
/// written before any `publish` that it covers happens before it.
#[inline(always)]
pub fn publish<W: Words>(words: &W, depth: u64, first: u64, end: u64, bell: impl FnMut(u64)) {
    hold(words, depth, first, end);
    ring(words, depth, bell)
}

/// As [`publish`], without ringing: the blocks are announced with the next ones that are, or by [`ring`].
#[inline(always)]
pub fn hold<W: Words>(words: &W, depth: u64, first: u64, end: u64) {
    words.set_end(first & (depth - 1), end);
}

/// Rings for all that is published, if nobody else does. What the caller must announce was published by itself, or happened
/// before this.
#[inline(always)]
pub fn ring<W: Words>(words: &W, depth: u64, mut bell: impl FnMut(u64)) {
    while words.take_bell() {
        let rung = words.rung();
        let mut ready = rung;
        while let Some(end) = published(words, depth, ready) {
            ready = end;
        }
        if ready != rung {
            bell(ready);
            words.set_rung(ready);
        }
        words.free_bell();
        if published(words, depth, ready).is_none() {
            return;
        }
    }
}

/// The end of the reservation that starts at block `at`, if it is published.
#[inline(always)]
fn published<W: Words>(words: &W, depth: u64, at: u64) -> Option<u64> {
    let end = words.end(at & (depth - 1));
    if end > at { Some(end) } else { None }
}

/// The 64-bit count of completed blocks that a CQE tells, given its 16-bit index past the last block and the count
/// `done` before it. `None` if the CQE tells nothing new, as one that was seen before.
///
/// A CQE that was seen before lies at or behind `done`, by less than a lap; a new one lies ahead by at most the blocks
/// outstanding, which is at most `depth`, a power of two of at most 2^14.
#[inline(always)]
pub fn completed(done: u64, end16: u16, depth: u64) -> Option<u64> {
    let ahead = end16.wrapping_sub(done as u16) as u64;
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
