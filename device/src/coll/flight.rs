//! Data that needs no fence: each word of memory holds half data, half flag, and is stored at once.
//!
//! A receiver looks at a word until it has the flag of the meeting, and then has its data. NCCL's LL protocol.
//!
//! A block of data takes a pair of words for each 8 bytes of it. Members have two sets of slots for such blocks, by turns, as
//! there are words of meetings: who writes to a set for meeting `k` has heard all others come to meeting `k - 1`, and they
//! came there with call `k - 2` behind them, whose slots these were: they have the data of every word that they waited for.
//! Each sender writes to blocks of its own; if members mean different calls, blocks may overlap, but then nobody reads
//! them. Nothing else is ever stored in slots, so that a flag is one, and a set never holds that of a meeting to come.

use crate::abi::DevAddr;
use crate::arch;
use crate::coll::call::wrapped;
use crate::coll::fold::place;
use crate::wait::Watch;

/// A block of data, and what marks its words.
#[derive(Clone, Copy)]
pub(super) struct Words {
    pub(super) bytes: u64,
    pub(super) flag: u32,
}

impl Words {
    /// Pairs of words in the slots; at least one, though without data nobody stores it.
    #[inline(always)]
    fn pairs(self) -> u32 {
        (self.bytes.div_ceil(8) as u32).max(1)
    }
}

/// Bytes of slots that a block of so many bytes takes; more than there are, for too many.
#[inline(always)]
pub(super) fn bytes(block: u64) -> u64 {
    block.saturating_add(7) / 8 * 16
}

/// Sends a block to each of the other members: from `src`, and so many bytes further on for each number of a receiver. `to` is
/// where the block's slots are on the first member, and the step from each member to the next; `pes`, if it is not 0, the list
/// of PEs by which the steps go. `threads` are this thread's rank in the group, and its size.
///
/// Single words and pairs, as of [`take`]: three would lie in memory, which the call would wait for.
///
/// # Safety
/// All that it names is valid; nobody else writes to the slots, or changes the source.
#[inline(never)]
pub(super) unsafe fn send(
    (rank, size): (u32, u32),
    (me, n): (u32, u32),
    to: (u64, u64),
    pes: DevAddr,
    src: (u64, u64),
    words: Words,
) {
    let pairs = words.pairs();
    let (mut k, mut pair) = further((1, 0), rank, pairs, n);
    while k < n {
        let member = wrapped(me + k, n);
        let slots = place(0, to.0, to.1, pes, u32::MAX, member);
        let at = pair as u64 * 8;
        // SAFETY: the caller's promise.
        unsafe {
            let data = load(src.0 + member as u64 * src.1 + at, words.bytes - at);
            let flag = (words.flag as u64) << 32;
            let both = [data & 0xffff_ffff | flag, data >> 32 | flag];
            arch::store_two(DevAddr(slots + 2 * at).ptr(), both);
        }
        (k, pair) = further((k, pair), size, pairs, n);
    }
}

/// Takes the blocks of the members from `first` to `end` out of the slots that begin at `from`: to `to.0`, and for each further
/// member `to.1` bytes further on. The block of `me` comes from `own`, or not at all if that is 0. Returns 0, or the code of
/// what came instead of a word, and above its 8 bits the member's number.
///
/// # Safety
/// All that it names is valid, and nobody else uses what is written.
#[inline(never)]
#[allow(clippy::too_many_arguments)] // plain words
pub(super) unsafe fn take(
    (rank, size): (u32, u32),
    (first, end): (u32, u32),
    me: u32,
    from: u64,
    own: u64,
    to: (u64, u64),
    words: Words,
    state: DevAddr,
) -> u64 {
    let pairs = words.pairs();
    let slot = |(member, pair): (u32, u32)| {
        DevAddr(from + ((member - first) as u64 * pairs as u64 + pair as u64) * 16).ptr()
    };
    let mut at = further((first, 0), rank, pairs, end);
    if at.0 >= end {
        return 0;
    }
    // SAFETY: of this and all that follows: the caller's promise.
    let mut found = unsafe { arch::load_two(slot(at)) };
    loop {
        // The next pair is on its way while this one is looked at.
        let next = further(at, size, pairs, end);
        let more = next.0 < end;
        // SAFETY: as above.
        let ahead = if more { unsafe { arch::load_two(slot(next)) } } else { [0; 2] };
        let (member, offset) = (at.0, at.1 as u64 * 8);
        let there = to.0 + (member - first) as u64 * to.1 + offset;
        let left = words.bytes - offset;
        if member != me {
            let mut watch = Watch::new(state);
            while (found[0] >> 32) as u32 != words.flag || (found[1] >> 32) as u32 != words.flag {
                if let Err(error) = watch.turn() {
                    return error as u64 | (member as u64) << 8;
                }
                // SAFETY: as above.
                found = unsafe { arch::load_two(slot(at)) };
            }
            // SAFETY: as above.
            unsafe { store(there, left, found[0] & 0xffff_ffff | found[1] << 32) };
        } else if own != 0 {
            // SAFETY: as above.
            unsafe { store(there, left, load(own + offset, left)) };
        }
        if !more {
            return 0;
        }
        (at, found) = (next, ahead);
    }
}

/// The place so many pairs further on, where each member has `pairs`; or one of member `end`.
#[inline(always)]
fn further((member, pair): (u32, u32), by: u32, pairs: u32, end: u32) -> (u32, u32) {
    let (mut member, mut pair) = (member, pair + by);
    while pair >= pairs && member < end {
        (member, pair) = (member + 1, pair - pairs);
    }
    (member, pair)
}

/// Up to 8 bytes, the first in the lowest bits.
///
/// # Safety
/// The first `bytes` bytes there are readable.
#[inline(always)]
unsafe fn load(at: u64, bytes: u64) -> u64 {
    // SAFETY: the caller's promise.
    unsafe {
        if at & 7 == 0 && bytes >= 8 {
            return arch::read(DevAddr(at).ptr());
        }
        let (mut word, mut i) = (0, 0);
        while i < bytes.min(8) {
            word |= (arch::read(DevAddr(at + i).ptr::<u8>()) as u64) << (8 * i);
            i += 1;
        }
        word
    }
}

/// Stores up to 8 bytes, the lowest bits first.
///
/// # Safety
/// The first `bytes` bytes there are writable.
#[inline(always)]
unsafe fn store(at: u64, bytes: u64, word: u64) {
    // SAFETY: the caller's promise.
    unsafe {
        if at & 7 == 0 && bytes >= 8 {
            return arch::write(DevAddr(at).ptr(), word);
        }
        let mut i = 0;
        while i < bytes.min(8) {
            arch::write(DevAddr(at + i).ptr(), (word >> (8 * i)) as u8);
            i += 1;
        }
    }
}
