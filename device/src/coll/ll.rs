//! The LL (low latency) protocol: each word in memory carries half data and half flag, so data needs no fence.
//!
//! One 8-byte store writes data and flag together. A receiver reads a word until it has the flag of the check-in, and
//! then has its data. NCCL uses the same protocol.
//!
//! A block of data takes a pair of words for each 8 bytes. Each member has two sets of slots for blocks, for even and odd
//! check-ins. A sender may write to a set at check-in `k`, because:
//!
//! - it has seen all members arrive at check-in `k - 1`;
//! - these had finished call `k - 2`, which used the same set, and had read every word that they waited for.
//!
//! Each sender writes its own blocks. If the call hashes differ, blocks may overlap, and the check-in fails whatever was
//! read. No other store ever touches the slots. So a flag is always a flag, and a set never holds one of a later check-in.

#![allow(unsafe_code, reason = "exchanges flagged words in scratch memory")]

use crate::abi::DevAddr;
use crate::arch::{self, Scope, Sys};
use crate::coll::args::{Reduction, wrapped};
use crate::coll::fold::{Unit, combine_words, member_addr};
use crate::error::Error;
use crate::outlined::outlined;
use crate::wait::{Watch, poll_briefly};

/// A word pair: the member or the number of its block, and the index of the pair in the block.
type PairIndex = (u32, u32);

/// A block of data in slots: its length, and the flag of its words.
#[derive(Clone, Copy)]
pub(super) struct LlBlock {
    pub(super) bytes: u64,
    pub(super) flag: u32,
}

impl LlBlock {
    /// Returns the number of word pairs. An empty block has one, which nobody stores.
    #[inline(always)]
    pub(super) fn pairs(self) -> u32 {
        (self.bytes.div_ceil(8) as u32).max(1)
    }

    /// Packs 8 bytes of data into a pair of words.
    #[inline(always)]
    fn packed(self, data: u64) -> [u64; 2] {
        let flag = (self.flag as u64) << 32;
        [data & 0xffff_ffff | flag, data >> 32 | flag]
    }

    /// Unpacks the data of a pair of words.
    #[inline(always)]
    fn unpacked(self, [low, high]: [u64; 2]) -> u64 {
        low & 0xffff_ffff | high << 32
    }

    /// Returns whether both words of a pair have the flag.
    #[inline(always)]
    fn has_both(self, pair: [u64; 2]) -> bool {
        self.has_flag(pair[0]) & self.has_flag(pair[1])
    }

    /// Returns whether a word has the flag. The check-in words carry it in the same place.
    #[inline(always)]
    fn has_flag(self, word: u64) -> bool {
        (word >> 32) as u32 == self.flag
    }
}

/// Returns the bytes of slots that a block takes. The result saturates.
#[inline(always)]
pub(super) fn bytes(block: u64) -> u64 {
    block.saturating_add(7) / 8 * 16
}

/// The sending side of a small call.
#[derive(Clone, Copy)]
pub(super) struct Sender {
    /// This member, and the number of members.
    pub(super) members: (u32, u32),
    /// The address of the block's slots on the first member, and the distance from each member to the next.
    pub(super) to: (u64, u64),
    /// The list of PEs by which that distance counts, or 0 if it counts by member.
    pub(super) pes: DevAddr,
    /// The address of the block for member 0, and the distance to the block for the next member.
    pub(super) src: (u64, u64),
    pub(super) block: LlBlock,
}

impl Sender {
    /// Sends the blocks to all other members, as thread `rank` of `size`.
    ///
    /// # Safety
    /// - For each other member, the block at `src` is valid for reads of `block.bytes` bytes and does not change. `block` is
    ///   not empty.
    /// - For each other member, the slots at `to` are a multiple of 16 and valid for writes of [`bytes`]`(block.bytes)`
    ///   bytes. Only the threads of this call write there, and they have different ranks below `size`.
    /// - `pes` is 0 or the list of the members' PEs.
    #[inline(always)]
    pub(super) unsafe fn send(self, rank: u32, size: u32) {
        // SAFETY: the outlined function has the same contract.
        unsafe { send((rank, size), self.members, self.to, self.pes, self.src, self.block) }
    }

    /// Sends one word pair or none, as thread `rank` of enough threads for that.
    ///
    /// # Safety
    /// The same as for [`Sender::send`].
    #[inline(always)]
    pub(super) unsafe fn send_one(self, rank: u32) {
        let (me, n) = self.members;
        let (k, pair) = advance((1, 0), rank, self.block.pairs(), n);
        if k < n {
            // SAFETY: `k` is below the number of members, so the pair exists. Its slot and its data are valid by this
            // function's contract.
            unsafe { send_pair((wrapped(me + k, n), pair), self.to, self.pes, self.src, self.block) }
        }
    }
}

/// Implements [`Sender::send`]. It takes single words and pairs of words, which Rust passes in registers.
///
/// # Safety
/// The same as for [`Sender::send`].
#[inline(never)]
unsafe fn send(
    (rank, size): (u32, u32),
    (me, n): (u32, u32),
    to: (u64, u64),
    pes: DevAddr,
    src: (u64, u64),
    block: LlBlock,
) {
    let pairs = block.pairs();
    let (mut k, mut pair) = advance((1, 0), rank, pairs, n);
    while k < n {
        // SAFETY: `k` is below the number of members, so the pair exists. Its slot and its data are valid by this
        // function's contract.
        unsafe { send_pair((wrapped(me + k, n), pair), to, pes, src, block) }
        (k, pair) = advance((k, pair), size, pairs, n);
    }
}

/// Sends one word pair to a member.
///
/// # Safety
/// The same as for [`Sender::send`]. The member is another one, and its block has that pair.
#[inline(always)]
unsafe fn send_pair(
    (member, pair): PairIndex,
    to: (u64, u64),
    pes: DevAddr,
    src: (u64, u64),
    block: LlBlock,
) {
    let slots = member_addr(0, to.0, to.1, pes, u32::MAX, member);
    let at = pair as u64 * 8;
    // SAFETY: the block holds at least one byte at `at`, and the slots have room for the pair, by this function's
    // contract.
    unsafe {
        let data = load(src.0 + member as u64 * src.1 + at, block.bytes - at);
        arch::store_two(DevAddr(slots + 2 * at).ptr(), block.packed(data));
    }
}

/// The range of members that send blocks. A member copies its own block itself.
#[derive(Clone, Copy)]
pub(super) struct Senders {
    pub(super) members: (u32, u32),
    pub(super) me: u32,
}

impl Senders {
    /// Returns the number of this member's own block, if it is in the range.
    #[inline(always)]
    fn own(self) -> Option<u32> {
        let (first, end) = self.members;
        if first <= self.me && self.me < end { Some(self.me - first) } else { None }
    }

    /// Returns the number of other members in the range.
    #[inline(always)]
    pub(super) fn others(self) -> u32 {
        self.members.1 - self.members.0 - self.own().is_some() as u32
    }

    /// Returns the number of the block of another member, given its index among the others.
    #[inline(always)]
    fn block(self, other: u32) -> u32 {
        let before = self.own().is_none_or(|own| other < own);
        if before { other } else { other + 1 }
    }
}

/// The receiving side of a small call.
#[derive(Clone, Copy)]
pub(super) struct Receiver {
    /// The range of members that send, and this member.
    pub(super) members: (u32, u32),
    pub(super) me: u32,
    /// The address of this member's slots.
    pub(super) from: u64,
    /// The destination of the first block, and the distance to the next one.
    pub(super) to: (u64, u64),
    pub(super) block: LlBlock,
}

impl Receiver {
    #[inline(always)]
    fn senders(self) -> Senders {
        Senders { members: self.members, me: self.me }
    }

    /// Receives at most one word pair of another member and one of the own block. Returns whether the pair arrived within
    /// the first looks.
    ///
    /// # Safety
    /// The same as for [`receive`]. There is a thread for each pair of another member, and for each pair of the own block.
    #[inline(always)]
    pub(super) unsafe fn receive_one(self, rank: u32, own: impl FnOnce() -> u64) -> bool {
        let Self { from, to, block, .. } = self;
        let (senders, pairs) = (self.senders(), block.pairs());
        let others = senders.others();
        let (mut own_at, mut own_data) = (None, 0);
        if let Some(own_block) = senders.own()
            && rank < pairs
        {
            let (own, offset) = (own(), rank as u64 * 8);
            if own != 0 {
                own_at = Some(own_block);
                // This load is on its way during the wait below.
                // SAFETY: the own block is readable, by this function's contract, and has pair `rank`.
                own_data = unsafe { load(own + offset, block.bytes - offset) };
            }
        }
        let mut arrived = true;
        let (other, pair) = advance((0, 0), rank, pairs, others);
        if other < others {
            let index = (senders.block(other), pair);
            // SAFETY: the pair exists, as `other` is below the number of other members. Its slot is readable by this
            // function's contract.
            let found =
                poll_briefly(|| unsafe { load_pair(index, from, block) }, |found| block.has_both(found));
            arrived = block.has_both(found);
            if arrived {
                // SAFETY: only this thread has that pair. Its bytes are writable by this function's contract.
                unsafe { store_data(index, to, block, block.unpacked(found)) }
            }
        }
        if let Some(own_block) = own_at {
            // SAFETY: only this thread has pair `rank` of the own block. Its bytes are writable by this function's
            // contract.
            unsafe { store_data((own_block, rank), to, block, own_data) }
        }
        arrived
    }
}

// More than 60 lines: divided into functions, the loop compiles to more instructions.
outlined! {
    /// Receives the blocks, as one of `(rank, size)` threads. The own block comes from `own`, or is in place if that is 0.
    ///
    /// `hashes` has the address of the check-in words and the expected call hash. The receiver does not wait for data of
    /// a member with another hash. Returns 0, or an error code in the low 8 bits and the member above them.
    ///
    /// # Safety
    /// - `from` is a multiple of 16 and valid for reads of [`bytes`]`(block.bytes)` bytes for each member in `members`.
    /// - At `to`, each of these members has a destination that is valid for writes of `block.bytes` bytes until the kernel
    ///   returns. Only the threads of this call use it, and they have different ranks below `size`.
    /// - `own` is 0 or valid for reads of `block.bytes` bytes. `block` is not empty.
    /// - `hashes` leads to a check-in word for each member of the team.
    pub(super) unsafe fn receive(
        thread: (u32, u32),
        own: u64,
        hashes: (u64, u64),
        state: DevAddr;
        receiver: Receiver { members: (u32, u32), me: u32, from: u64, to: (u64, u64), block: LlBlock }
    ) -> u64 {
        let Receiver { members, from, to, block, .. } = receiver;
        let (senders, pairs) = (receiver.senders(), block.pairs());
        let (rank, size) = thread;
        let (others, own_block) = (senders.others(), if own != 0 { senders.own() } else { None });
        let own_data = |pair: u32| {
            let offset = pair as u64 * 8;
            if own_block.is_some() && pair < pairs {
                // SAFETY: the own block is readable, by this function's contract, and has that pair.
                unsafe { load(own + offset, block.bytes - offset) }
            } else {
                0
            }
        };
        // This load is on its way during the waits below.
        let (mut own_pair, mut own_word) = (rank, own_data(rank));
        // An index beyond the last pair reads some other pair.
        let load_pair = |(k, pair): PairIndex| {
            let index = (senders.block(k.min(others - 1)), pair.min(pairs - 1));
            // SAFETY: the index is limited to a pair of another member, whose slots are readable by this function's
            // contract.
            unsafe { load_pair(index, from, block) }
        };
        let store = |(number, pair): PairIndex, data| {
            // SAFETY: only this thread stores the pair, to a destination that is writable by this function's contract.
            unsafe { store_data((number, pair), to, block, data) }
        };
        let store_found = |(k, pair): PairIndex, found| {
            if k < others {
                store((senders.block(k), pair), block.unpacked(found));
            }
        };
        let member = |k| members.0 + senders.block(k);
        // SAFETY: the check-in words of all members are readable, by this function's contract.
        let hash_of = |k| unsafe { Sys::load_relaxed(DevAddr(hashes.0).add(member(k) as u64 * 8).ptr()) };
        let differs = |word: u64| block.has_flag(word) && word as u32 != hashes.1 as u32;
        let mut watch = Watch::new(state);
        // Waits on, unless the member with the missing data has another call hash.
        let mut again = |differs: bool| if differs { Err(Error::TeamMismatch) } else { watch.turn() };
        let next = |index| advance(index, size, pairs, others);
        let mut a = advance((0, 0), rank, pairs, others);
        while a.0 < others {
            // Four loads are on their way at once.
            let b = next(a);
            let c = next(b);
            let d = next(c);
            let mut late = a.0;
            let (at_a, at_b, at_c, at_d) = loop {
                let (word, found) = (hash_of(late), (load_pair(a), load_pair(b), load_pair(c), load_pair(d)));
                let lacks = |(k, _): PairIndex, pair| k < others && !block.has_both(pair);
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
                if let Err(error) = again(missing == late && differs(word)) {
                    return error as u64 | (member(missing) as u64) << 8;
                }
                late = missing;
            };
            store_found(a, at_a);
            store_found(b, at_b);
            store_found(c, at_c);
            store_found(d, at_d);
            a = next(d);
        }
        if let Some(number) = own_block {
            while own_pair < pairs {
                store((number, own_pair), own_word);
                own_pair += size;
                own_word = own_data(own_pair);
            }
        }
        0
    }
}

/// A small reduction: each member sends its block to all others, and combines the blocks of all as they arrive.
///
/// A thread has two pairs at a time: their loads are on their way at once, and one call combines both.
#[derive(Clone, Copy)]
pub(super) struct Reducer {
    pub(super) reduction: Reduction,
    /// This member, and the number of members.
    pub(super) members: (u32, u32),
    /// The address of the slots of the first member, and the distance from each member to the next.
    pub(super) to: (u64, u64),
    /// The list of PEs by which that distance counts, or 0 if it counts by member.
    pub(super) pes: DevAddr,
    /// The address of this member's slots.
    pub(super) from: u64,
    /// The address of the block for member 0, and the distance to the block for the next member.
    pub(super) src: (u64, u64),
    /// The address of the destination.
    pub(super) dst: u64,
    pub(super) block: LlBlock,
}

impl Reducer {
    /// Sends the blocks to all other members, as thread `rank` of `size`. Returns the thread's first two words of the block
    /// for this member.
    ///
    /// # Safety
    /// - For each member, the block at `src` is valid for reads of `block.bytes` bytes. `block` is not empty.
    /// - For each other member, the slots at `to` are a multiple of 16 and valid for writes of [`bytes`]`(block.bytes)`
    ///   bytes for each member but itself. Only the threads of this call write the blocks of this member, and they have
    ///   different ranks below `size`. `pes` is 0 or the list of the members' PEs.
    /// - `from`, this member's slots, are valid for reads in the same way.
    /// - `dst` is valid for writes of `block.bytes` bytes until the kernel returns. It overlaps no block at `src`, but may be
    ///   the one for this member.
    #[inline(always)]
    pub(super) unsafe fn send(self, rank: u32, size: u32) -> Unit {
        let (pairs, (me, n)) = (self.block.pairs(), self.members);
        // SAFETY: the blocks are readable, by this function's contract.
        let first = unsafe { self.words(me, rank, size) };
        let (mut pair, mut own) = (rank, first);
        while pair < pairs {
            let mut k = 1;
            while k < n {
                let to = wrapped(me + k, n);
                // SAFETY: as above, for the block for `to`.
                let words = if self.src.1 == 0 { own } else { unsafe { self.words(to, pair, size) } };
                let slots = member_addr(0, self.to.0, self.to.1, self.pes, u32::MAX, to);
                let at = |pair| self.slot(slots, self.place(me, to), pair);
                // SAFETY: the slots of `to` have room for the block, and only this thread stores these pairs, by this
                // function's contract.
                unsafe {
                    arch::store_two(at(pair), self.block.packed(words.0));
                    if pair + size < pairs {
                        arch::store_two(at(pair + size), self.block.packed(words.1));
                    }
                }
                k += 1;
            }
            pair += 2 * size;
            if pair < pairs {
                // SAFETY: as above.
                own = unsafe { self.words(me, pair, size) };
            }
        }
        first
    }

    /// Combines the blocks of all members in team order, as thread `rank` of `size`, which sent the same pairs. `first` is
    /// the result of [`Reducer::send`]. `hashes`, `state` and the result mean the same as in [`receive`].
    ///
    /// # Safety
    /// The same as for [`Reducer::send`]. `hashes` leads to a check-in word for each member.
    #[inline(always)]
    pub(super) unsafe fn combine(
        self,
        rank: u32,
        size: u32,
        first: Unit,
        hashes: (u64, u64),
        state: DevAddr,
    ) -> u64 {
        let Self { block, reduction, .. } = self;
        let (pairs, (me, n)) = (block.pairs(), self.members);
        let (mut pair, mut own) = (rank, first);
        while pair < pairs {
            let second = pair + size;
            let (mut sum, mut member) = (own, 0);
            while member < n {
                let mut words = own;
                if member != me {
                    let place = self.place(member, me);
                    let one = self.slot(self.from, place, pair);
                    // Without a second pair, it reads the first one twice.
                    let other = self.slot(self.from, place, if second < pairs { second } else { pair });
                    // SAFETY: both pairs lie in this member's slots, which are readable by this function's contract.
                    let read = || unsafe { (arch::load_two(one), arch::load_two(other)) };
                    let has_both =
                        |found: ([u64; 2], [u64; 2])| block.has_both(found.0) & block.has_both(found.1);
                    let mut found = poll_briefly(read, has_both);
                    if !has_both(found) {
                        // SAFETY: the slots and the check-in words are readable, by this function's contract.
                        let missed = unsafe { await_pairs(member, (one, other), block, hashes, state) };
                        if missed != 0 {
                            return missed;
                        }
                        found = read();
                    }
                    words = (block.unpacked(found.0), block.unpacked(found.1));
                }
                sum = if member == 0 { words } else { combine_words(reduction, sum, words) };
                member += 1;
            }
            let store = |pair: u32, word| {
                let offset = pair as u64 * 8;
                // SAFETY: the destination is writable by this function's contract and has that pair. No other thread
                // uses this word of the destination or the source.
                unsafe { store(self.dst + offset, block.bytes - offset, word) }
            };
            store(pair, sum.0);
            if second < pairs {
                store(second, sum.1);
            }
            pair += 2 * size;
            if pair < pairs {
                // SAFETY: the block is readable, by this function's contract.
                own = unsafe { self.words(me, pair, size) };
            }
        }
        0
    }

    /// Returns the number of the block of member `from` in the slots of member `to`: own blocks have none.
    #[inline(always)]
    fn place(self, from: u32, to: u32) -> u32 {
        from - (from > to) as u32
    }

    /// Returns the address of a pair of a block in `slots`.
    #[inline(always)]
    fn slot(self, slots: u64, place: u32, pair: u32) -> *mut [u64; 2] {
        DevAddr(slots + (place as u64 * self.block.pairs() as u64 + pair as u64) * 16).ptr()
    }

    /// Loads the words of a pair for a member, and of the one `size` further on if there is one.
    ///
    /// # Safety
    /// The same as for [`Reducer::send`], for the block for `member`.
    #[inline(always)]
    unsafe fn words(self, member: u32, pair: u32, size: u32) -> Unit {
        let (from, pairs) = (self.src.0 + member as u64 * self.src.1, self.block.pairs());
        let word = |pair: u32| {
            let offset = pair as u64 * 8;
            // SAFETY: the block for `member` is readable, by this function's contract, and has that pair.
            if pair < pairs { unsafe { load(from + offset, self.block.bytes - offset) } } else { 0 }
        };
        (word(pair), word(pair + size))
    }
}

/// Waits until two pairs of a member have their flags. `hashes`, `state` and the result mean the same as in [`receive`].
///
/// # Safety
/// `one` and `other` are multiples of 16 and valid for reads of a pair. `hashes` leads to a check-in word for `member`.
#[inline(never)]
unsafe fn await_pairs(
    member: u32,
    (one, other): (*const [u64; 2], *const [u64; 2]),
    block: LlBlock,
    hashes: (u64, u64),
    state: DevAddr,
) -> u64 {
    let mut watch = Watch::new(state);
    loop {
        // The word of the member comes first: a member that differs may send no data.
        // SAFETY: both pairs and the check-in word of `member` are readable, by this function's contract.
        let (word, found) = unsafe {
            let word = Sys::load_relaxed(DevAddr(hashes.0).add(member as u64 * 8).ptr::<u64>());
            (word, (arch::load_two(one), arch::load_two(other)))
        };
        if block.has_both(found.0) & block.has_both(found.1) {
            return 0;
        }
        let differs = block.has_flag(word) && word as u32 != hashes.1 as u32;
        let turn = if differs { Err(Error::TeamMismatch) } else { watch.turn() };
        if let Err(error) = turn {
            return error as u64 | (member as u64) << 8;
        }
    }
}

/// Loads a word pair of a block's slots.
///
/// # Safety
/// `from` is a multiple of 16 and valid for reads of the slots of the blocks up to this one, which has that pair.
#[inline(always)]
unsafe fn load_pair((number, pair): PairIndex, from: u64, block: LlBlock) -> [u64; 2] {
    let slot = number as u64 * block.pairs() as u64 + pair as u64;
    // SAFETY: the slots of the block are readable and aligned, by this function's contract, and have that pair.
    unsafe { arch::load_two(DevAddr(from + slot * 16).ptr()) }
}

/// Stores the data of a pair at its destination.
///
/// # Safety
/// The destination of the block at `to` is valid for writes of `block.bytes` bytes until the kernel returns. The block has
/// that pair, and no other thread stores it.
#[inline(always)]
unsafe fn store_data((number, pair): PairIndex, to: (u64, u64), block: LlBlock, data: u64) {
    let offset = pair as u64 * 8;
    // SAFETY: the destination is writable, by this function's contract, and has that pair.
    unsafe { store(to.0 + number as u64 * to.1 + offset, block.bytes - offset, data) }
}

/// Returns the index `by` pairs on, with `pairs` pairs for each member. Beyond the last pair it is one of member `end`.
#[inline(always)]
fn advance((member, pair): PairIndex, by: u32, pairs: u32, end: u32) -> PairIndex {
    let (mut member, mut pair) = (member, pair + by);
    while pair >= pairs && member < end {
        (member, pair) = (member + 1, pair - pairs);
    }
    (member, pair)
}

/// Loads up to 8 bytes, the first into the lowest bits.
///
/// # Safety
/// `at` is valid for reads of `bytes` bytes.
#[inline(always)]
unsafe fn load(at: u64, bytes: u64) -> u64 {
    // SAFETY: each access stays within the first `bytes` bytes, which are readable by this function's contract. The
    // word is aligned.
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
/// `at` is valid for writes of `bytes` bytes until the kernel returns.
#[inline(always)]
unsafe fn store(at: u64, bytes: u64, word: u64) {
    // SAFETY: each access stays within the first `bytes` bytes, which are writable by this function's contract. The
    // word is aligned.
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
