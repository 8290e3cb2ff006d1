//! The send-queue protocol: how threads that share a queue post to it without waiting for each other.
//!
//! Four steps, each its own function:
//!
//! 1. **reserve**: one atomic add hands out blocks. They may be written once `done + depth` has passed their end,
//!    so nothing that the NIC has not executed is ever overwritten.
//! 2. **write** the WQEs, in any order, by any thread.
//! 3. **publish**: one release store into the word that belongs to the reservation's first slot, a [`Note`], says which
//!    reservation is written. Nobody waits for earlier posters here.
//! 4. **ring**: who has published knocks at the bell. Who finds it free holds it: walks the published reservations from where
//!    the last doorbell stood, announces all of them with one doorbell, and leaves the bell, which it can only if nobody has
//!    knocked meanwhile; else it looks again. Who finds the bell held goes: the holder cannot miss the knock, nor what was
//!    published before it. Doorbell record and register thus only ever grow, and one doorbell serves many posters.
//!
//! A slot's note needs no reset: it says which reservation it is of, and one of another lap, earlier or later, is as none. It is
//! written before its reservation is announced, so that no note of a later lap is overwritten.
//!
//! The bell is one word, [`Bell`]. Every change of it is a read-modify-write, so that each knock, a release, is seen by
//! the holder's next look, an acquire, and by that of any later holder.
//!
//! There is a shorter way for who posts alone. A bell that is free, has no *gap*, and stands where a reservation begins has
//! nothing left to announce before it, and cannot get past it: what it waits for is not published. Who has reserved that rings
//! for it at once, holding nothing, and then moves the bell from its beginning to its end: one compare and swap instead of
//! steps 3 and 4. It fails where somebody has knocked meanwhile; then there are others to ring for. If they have left the
//! bell by then, who was alone holds it; if somebody holds it, the bell's own word tells where it now stands. A note would come too
//! late: what is announced may have completed, and its slots may have been given out and published again.
//!
//! The gap says that there may be reservations that are published and not announced, since one before them is not
//! published. A holder leaves a bell without it only if all is announced that it knows to be reserved, and it knows of all
//! who have knocked. Who knocks later finds the bell free, and holds it.
//!
//! The model in `device/tests/loom.rs` checks all of this.

/// Blocks of the deepest queue.
pub const MAX_DEPTH: u64 = 1 << 14;

/// What the bell's word says: what is announced, and three bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bell(pub u64);

impl Bell {
    /// What a knock sets: somebody holds the bell, and somebody has knocked.
    pub const KNOCK: u64 = Self::HELD | Self::NEWS;
    const HELD: u64 = 1 << 63;
    const NEWS: u64 = 1 << 62;
    const GAP: u64 = 1 << 61;

    /// A free bell; all before `rung` is announced.
    #[inline(always)]
    const fn free(rung: u64, gap: bool) -> Self {
        Self(if gap { rung | Self::GAP } else { rung })
    }

    /// A bell that is held, and nobody has knocked.
    #[inline(always)]
    const fn held(rung: u64) -> Self {
        Self(rung | Self::HELD)
    }

    /// A bell that another thread holds, which is to hear that all before `rung` is announced.
    #[inline(always)]
    const fn told(rung: u64) -> Self {
        Self(rung | Self::KNOCK)
    }

    /// True if nothing else is to be announced than what begins at block `first`, and nobody holds it.
    #[inline(always)]
    pub fn waits_for(self, first: u64) -> bool {
        self == Self::free(first, false)
    }

    /// Blocks announced.
    #[inline(always)]
    const fn rung(self) -> u64 {
        self.0 & !(Self::HELD | Self::NEWS | Self::GAP)
    }

    #[inline(always)]
    const fn is_held(self) -> bool {
        self.0 & Self::HELD != 0
    }
}

/// What a slot's word says: which reservation has been published of those that begin there. 0 is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Note(pub u64);

impl Note {
    /// Bits of a length: it is at most [`MAX_DEPTH`]. The others count blocks, on a circle so large that nobody comes round it.
    const LENGTH: u32 = 15;

    /// Of the blocks from `first` to `end`.
    #[inline(always)]
    pub const fn of(first: u64, end: u64) -> Self {
        Self(first << Self::LENGTH | (end - first))
    }

    /// How many blocks have been published with `first`; 0 if the note is not of that one.
    #[inline(always)]
    const fn blocks(self, first: u64) -> u64 {
        let length = self.0 & ((1 << Self::LENGTH) - 1);
        if self.0 == first << Self::LENGTH | length { length } else { 0 }
    }
}

const _: () = assert!(MAX_DEPTH < 1 << Note::LENGTH);

/// The words of one send queue, and their orderings. The device has them in memory; the model has loom's.
pub trait Words {
    /// Adds to the blocks handed out; returns the old value. Relaxed.
    fn reserve(&self, blocks: u64) -> u64;
    /// Blocks handed out. Relaxed.
    fn reserved(&self) -> u64;
    /// What has been published in `slot`. Relaxed: the fence of who rings makes it an acquire.
    fn note(&self, slot: u64) -> Note;
    /// Sets it. Release: the WQEs are visible to whoever reads it.
    fn set_note(&self, slot: u64, note: Note);
    /// The bell. Relaxed.
    fn look(&self) -> Bell;
    /// Sets [`Bell::KNOCK`]; the bell as it was. Release.
    fn knock(&self) -> Bell;
    /// Exchanges the bell, which the caller holds; the bell as it was. Acquire: what was done before the knocks so far is visible.
    fn hear(&self, held: Bell) -> Bell;
    /// Puts `to` in the place of `from`; the bell as it was found. Release.
    fn change(&self, from: Bell, to: Bell) -> Bell;
}

/// The short way: announces the blocks from `first` to `end`, which are written and not published. The bell must have been
/// seen to [wait for them](Bell::waits_for), at any time before. False if somebody has knocked: then call [`knocked`].
///
/// Here and below, `bell` gets the new producer index. It is called by one thread at a time, with indices that never get less,
/// and what was written before any `publish` or `alone` that it covers happens before its stores. For that it begins with a
/// fence, acquire and release: of the WQEs' writers and of who rang before, whose words were read relaxed, and for whoever
/// looks at the doorbell.
#[inline(always)]
#[must_use]
pub fn alone<W: Words>(words: &W, first: u64, end: u64, bell: impl FnOnce(u64)) -> bool {
    bell(end);
    let waiting = Bell::free(first, false);
    words.change(waiting, Bell::free(end, false)) == waiting
}

/// What is left to do where [`alone`] says so: moves the bell on, and announces what those who knocked have published, if nobody
/// else does. It tries again only where others have knocked meanwhile, or have left the bell.
#[inline(always)]
pub fn knocked<W: Words>(words: &W, depth: u64, first: u64, end: u64, bell: impl FnMut(u64)) {
    // As a rule they have found the bell free, nothing published where it stood, and gone.
    let mut found = Bell::free(first, true);
    loop {
        let moved = if found.is_held() { Bell::told(end) } else { Bell::held(end) };
        let seen = words.change(found, moved);
        if seen == found {
            break;
        }
        found = seen;
    }
    if !found.is_held() {
        serve(words, depth, end, bell);
    }
}

/// Says that the blocks from `first` to `end` of a queue of `depth` are written, and rings if nobody else does.
#[inline(always)]
pub fn publish<W: Words>(words: &W, depth: u64, first: u64, end: u64, bell: impl FnMut(u64)) {
    hold(words, depth, first, end);
    ring(words, depth, bell);
}

/// As [`publish`], without ringing: the blocks are announced with the next ones that are, or by [`ring`].
#[inline(always)]
pub fn hold<W: Words>(words: &W, depth: u64, first: u64, end: u64) {
    words.set_note(first & (depth - 1), Note::of(first, end));
}

/// Rings for all that is published, if nobody else does. What the caller must announce was published by itself, or happened
/// before this.
#[inline(always)]
pub fn ring<W: Words>(words: &W, depth: u64, bell: impl FnMut(u64)) {
    let found = words.knock();
    if !found.is_held() {
        serve(words, depth, found.rung(), bell);
    }
}

/// The part of the bell's holder, when somebody has knocked: announces what is published from `rung` on, until nobody
/// knocks meanwhile.
#[inline(always)]
fn serve<W: Words>(words: &W, depth: u64, mut rung: u64, mut bell: impl FnMut(u64)) {
    loop {
        let held = Bell::held(rung);
        // Who was alone may have told that it stands further on.
        rung = words.hear(held).rung().max(rung);
        let ready = published(words, depth, rung);
        if ready != rung {
            bell(ready);
            rung = ready;
        }
        if words.change(held, Bell::free(rung, words.reserved() != rung)) == held {
            return;
        }
    }
}

/// How far reservations are published without a gap, from block `from` on.
///
/// Each note says where the next one is. Reservations are often of one length, so four are looked at together, where they
/// then are: what such a guess has found counts only where it was right.
#[inline(always)]
fn published<W: Words>(words: &W, depth: u64, from: u64) -> u64 {
    let (mut at, mut length) = (from, 1);
    loop {
        let (b, c, d) = (at + length, at + 2 * length, at + 3 * length);
        let blocks = |first: u64| words.note(first & (depth - 1)).blocks(first);
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

/// The 64-bit count of completed blocks that a CQE tells, given its 16-bit index past the last block and the count
/// `done` before it. `None` if the CQE tells nothing new, as one that was seen before.
///
/// A CQE that was seen before lies at or behind `done`, by less than a lap; a new one lies ahead by at most the blocks
/// outstanding, which is at most `depth`, a power of two of at most [`MAX_DEPTH`].
#[inline(always)]
pub fn completed(done: u64, end16: u16, depth: u64) -> Option<u64> {
    let ahead = end16.wrapping_sub(done as u16) as u64;
    if ahead != 0 && ahead <= depth { Some(done + ahead) } else { None }
}

#[cfg(test)]
mod tests {
    use super::{MAX_DEPTH, Note, completed};

    #[test]
    fn a_note_is_of_one_reservation() {
        for first in [0, 1, 2, 0xffff, 1 << 16, (1 << 40) + 5, (1 << 61) - MAX_DEPTH] {
            for blocks in [1, 2, MAX_DEPTH - 1, MAX_DEPTH] {
                let note = Note::of(first, first + blocks);
                assert_eq!(note.blocks(first), blocks);
                for other in [1, 2, 1024, MAX_DEPTH, 1 << 32] {
                    assert_eq!(note.blocks(first + other), 0);
                    assert_eq!(note.blocks(first.wrapping_sub(other)), 0);
                }
            }
            assert_eq!(Note(0).blocks(first), 0);
        }
    }

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
