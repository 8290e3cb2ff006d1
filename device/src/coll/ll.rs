//! Data that needs no fence: each word of memory holds half data, half flag, and is stored at once.
//!
//! A receiver looks at a word until it has the flag of the meeting, and then has its data. NCCL's LL protocol.
//!
//! A block of data takes a pair of words for each 8 bytes of it. Members have two sets of slots for such blocks, by turns, as
//! there are words of meetings: who writes to a set for meeting `k` has heard all others come to meeting `k - 1`, and they
//! came there with call `k - 2` behind them, whose slots these were: they have the data of every word that they waited for.
//! Each sender writes to blocks of its own; if members mean different calls, blocks may overlap, and the meeting fails, whatever
//! was read. Nothing else is ever stored in slots, so that a flag is one, and a set never holds that of a meeting to come.
#![allow(unsafe_code, reason = "exchanges flagged words in scratch memory")]

use crate::abi::DevAddr;
use crate::arch::{self, Scope, Sys};
use crate::coll::call::wrapped;
use crate::coll::fold::place;
use crate::error::Error;
use crate::wait::{Watch, glance};

/// A member or the number of its block, and a pair of it.
type Place = (u32, u32);

/// A block of data, and what marks its words.
#[derive(Clone, Copy)]
pub(super) struct Words {
    pub(super) bytes: u64,
    pub(super) flag: u32,
}

impl Words {
    /// Pairs of words in the slots; at least one, though without data nobody stores it.
    #[inline(always)]
    pub(super) fn pairs(self) -> u32 {
        (self.bytes.div_ceil(8) as u32).max(1)
    }

    /// Data as it lies in slots.
    #[inline(always)]
    fn flagged(self, data: u64) -> [u64; 2] {
        let flag = (self.flag as u64) << 32;
        [data & 0xffff_ffff | flag, data >> 32 | flag]
    }

    /// What lies in a pair of words.
    #[inline(always)]
    fn data(self, [low, high]: [u64; 2]) -> u64 {
        low & 0xffff_ffff | high << 32
    }

    /// True if both words of a pair are of this meeting.
    #[inline(always)]
    fn are_both(self, pair: [u64; 2]) -> bool {
        self.is_of(pair[0]) & self.is_of(pair[1])
    }

    /// True if a word, of data or of the meeting itself, is of this meeting.
    #[inline(always)]
    fn is_of(self, word: u64) -> bool {
        (word >> 32) as u32 == self.flag
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
        // SAFETY: the caller's promise.
        unsafe { send_pair((wrapped(me + k, n), pair), to, pes, src, words) }
        (k, pair) = further((k, pair), size, pairs, n);
    }
}

/// As [`send`], by a thread that has one pair to send, or none.
///
/// # Safety
/// As there.
#[inline(always)]
pub(super) unsafe fn send_one(
    rank: u32,
    (me, n): (u32, u32),
    to: (u64, u64),
    pes: DevAddr,
    src: (u64, u64),
    words: Words,
) {
    let (k, pair) = further((1, 0), rank, words.pairs(), n);
    if k < n {
        // SAFETY: the caller's promise.
        unsafe { send_pair((wrapped(me + k, n), pair), to, pes, src, words) }
    }
}

/// Sends one pair to a member.
///
/// # Safety
/// As [`send`].
#[inline(always)]
unsafe fn send_pair((member, pair): Place, to: (u64, u64), pes: DevAddr, src: (u64, u64), words: Words) {
    let slots = place(0, to.0, to.1, pes, u32::MAX, member);
    let at = pair as u64 * 8;
    // SAFETY: the caller's promise.
    unsafe {
        let data = load(src.0 + member as u64 * src.1 + at, words.bytes - at);
        arch::store_two(DevAddr(slots + 2 * at).ptr(), words.flagged(data));
    }
}

/// The members from one to the next, whose blocks a member takes; its own comes from elsewhere.
#[derive(Clone, Copy)]
pub(super) struct Senders {
    pub(super) members: (u32, u32),
    pub(super) me: u32,
}

impl Senders {
    /// The number of this member's own block, if it is among them.
    #[inline(always)]
    fn own(self) -> Option<u32> {
        let (first, end) = self.members;
        if first <= self.me && self.me < end { Some(self.me - first) } else { None }
    }

    /// How many others there are.
    #[inline(always)]
    pub(super) fn others(self) -> u32 {
        self.members.1 - self.members.0 - self.own().is_some() as u32
    }

    /// The number of the block of one of the others.
    #[inline(always)]
    fn block(self, other: u32) -> u32 {
        let before = self.own().is_none_or(|own| other < own);
        if before { other } else { other + 1 }
    }
}

/// Takes the blocks of the senders out of the slots that begin at `from`: to `to.0`, and for each further one `to.1` bytes further
/// on. The receiver's own block comes from `own`, or not at all if that is 0. Returns 0, or the code of what came instead of a
/// word, and above its 8 bits the member's number.
///
/// `told` is where the words of the meeting are, that of member 0 first, and what they say if all mean the same. Nothing
/// is waited for of one who says something else.
///
/// # Safety
/// All that it names is valid, and nobody else uses what is written.
#[inline(never)]
#[allow(clippy::too_many_arguments)] // plain words
pub(super) unsafe fn take(
    (rank, size): (u32, u32),
    members: (u32, u32),
    me: u32,
    from: u64,
    own: u64,
    to: (u64, u64),
    words: Words,
    told: (u64, u64),
    state: DevAddr,
) -> u64 {
    let (senders, pairs) = (Senders { members, me }, words.pairs());
    let (others, own_block) = (senders.others(), if own != 0 { senders.own() } else { None });
    let of_own = |pair: u32| {
        let offset = pair as u64 * 8;
        if own_block.is_some() && pair < pairs {
            // SAFETY: of this and all that follows: the caller's promise.
            unsafe { load(own + offset, words.bytes - offset) }
        } else {
            0
        }
    };
    // On its way while others are waited for.
    let (mut own_pair, mut own_data) = (rank, of_own(rank));
    // What a place holds; beyond the last one, what another does.
    let look = |(k, pair): Place| {
        let place = (senders.block(k.min(others - 1)), pair.min(pairs - 1));
        // SAFETY: as above.
        unsafe { look(place, from, words) }
    };
    let put = |(block, pair): Place, data| {
        // SAFETY: as above.
        unsafe { put((block, pair), to, words, data) }
    };
    let put_of = |(k, pair): Place, found| {
        if k < others {
            put((senders.block(k), pair), words.data(found));
        }
    };
    let member = |k| members.0 + senders.block(k);
    // What a member says that has not sent its data yet.
    // SAFETY: as above.
    let call_hash = |k| unsafe { Sys::load_relaxed(DevAddr(told.0).add(member(k) as u64 * 8).ptr()) };
    let differs = |call_hash: u64| words.is_of(call_hash) && call_hash as u32 != told.1 as u32;
    let mut watch = Watch::new(state);
    // Whether to look again, unless the member whose data is missing means something else.
    let mut again = |differs: bool| if differs { Err(Error::TeamMismatch) } else { watch.turn() };
    let next = |place| further(place, size, pairs, others);
    let mut a = further((0, 0), rank, pairs, others);
    while a.0 < others {
        // Four are on their way at once.
        let b = next(a);
        let c = next(b);
        let d = next(c);
        let mut late = a.0;
        let (at_a, at_b, at_c, at_d) = loop {
            let (call_hash, found) = (call_hash(late), (look(a), look(b), look(c), look(d)));
            let lacks = |(k, _): Place, pair| k < others && !words.are_both(pair);
            let missing = if lacks(a, found.0) {
                a.0
            } else if lacks(b, found.1) {
                b.0
            } else if lacks(c, found.2) {
                c.0
            } else if lacks(d, found.3) {
                d.0
            } else {
                break found;
            };
            if let Err(error) = again(missing == late && differs(call_hash)) {
                return error as u64 | (member(missing) as u64) << 8;
            }
            late = missing;
        };
        put_of(a, at_a);
        put_of(b, at_b);
        put_of(c, at_c);
        put_of(d, at_d);
        a = next(d);
    }
    if let Some(block) = own_block {
        while own_pair < pairs {
            put((block, own_pair), own_data);
            own_pair += size;
            own_data = of_own(own_pair);
        }
    }
    0
}

/// As [`take`], by a thread that has one pair of the others' to take, or none, and one of its own: false if it was not there
/// after a while.
///
/// # Safety
/// As there.
#[inline(always)]
pub(super) unsafe fn take_one(
    rank: u32,
    senders: Senders,
    from: u64,
    own: impl FnOnce() -> u64,
    to: (u64, u64),
    words: Words,
) -> bool {
    let (pairs, others) = (words.pairs(), senders.others());
    let (mut own_at, mut own_data) = (None, 0);
    if let Some(block) = senders.own()
        && rank < pairs
    {
        let (own, offset) = (own(), rank as u64 * 8);
        if own != 0 {
            own_at = Some(block);
            // On its way while others are waited for.
            // SAFETY: the caller's promise.
            own_data = unsafe { load(own + offset, words.bytes - offset) };
        }
    }
    let mut came = true;
    let (other, pair) = further((0, 0), rank, pairs, others);
    if other < others {
        let place = (senders.block(other), pair);
        // SAFETY: as above.
        let found = glance(|| unsafe { look(place, from, words) }, |found| words.are_both(found));
        came = words.are_both(found);
        if came {
            // SAFETY: as above.
            unsafe { put(place, to, words, words.data(found)) }
        }
    }
    if let Some(block) = own_at {
        // SAFETY: as above.
        unsafe { put((block, rank), to, words, own_data) }
    }
    came
}

/// What a pair of a block's slots holds.
///
/// # Safety
/// As [`take`].
#[inline(always)]
unsafe fn look((block, pair): Place, from: u64, words: Words) -> [u64; 2] {
    let slot = block as u64 * words.pairs() as u64 + pair as u64;
    // SAFETY: the caller's promise.
    unsafe { arch::load_two(DevAddr(from + slot * 16).ptr()) }
}

/// Puts the data of a pair where it belongs.
///
/// # Safety
/// As [`take`].
#[inline(always)]
unsafe fn put((block, pair): Place, to: (u64, u64), words: Words, data: u64) {
    let offset = pair as u64 * 8;
    // SAFETY: the caller's promise.
    unsafe { store(to.0 + block as u64 * to.1 + offset, words.bytes - offset, data) }
}

/// The place so many pairs further on, where each member has `pairs`; or one of member `end`.
#[inline(always)]
fn further((member, pair): Place, by: u32, pairs: u32, end: u32) -> Place {
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
