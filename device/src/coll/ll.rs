//! The LL (low latency) protocol: every 8-byte word holds 4 bytes of data and a 4-byte flag, so data needs no fence.
//!
//! A receiver polls a word until it carries the flag of the current check-in; the data arrives with it. A word is
//! written by a single 8-byte access and cannot tear, so no reader sees the flag without the data. That saves the fence
//! between data and flag, which would wait until the data has arrived, and a separate store of the flag. The price is
//! twice the traffic, so only small calls use this protocol. NCCL has the same one.
//!
//! A block of data takes one pair of words for each 8 bytes, and one 16-byte store writes a pair. PTX does not
//! guarantee that the two halves of such a store become visible together. Each half therefore has its own flag, and
//! receivers check both.
//!
//! Each member has two sets of slots, for even and odd check-ins. Two are enough: a sender may write to a set at
//! check-in `k`, because
//!
//! - it has seen all members arrive at check-in `k - 1`, and
//! - these had completed call `k - 2`, the last to use this set, and had read every word they waited for.
//!
//! Senders write disjoint blocks, as long as the call hashes agree. If they differ, blocks may overlap, but then the
//! check-in fails whatever was read. Nothing else ever writes to the slots, so the upper half of a word is always a
//! flag, and never that of a later check-in. Slots need no reset, because a flag left by check-in `k - 2` does not
//! match that of `k`.

#![allow(unsafe_code, reason = "exchanges flagged words in scratch memory")]

use crate::abi::DevAddr;
use crate::arch::{self, Scope, Sys};
use crate::coll::args::{Reduction, wrapped};
use crate::coll::fold::{Unit, combine_words, member_addr};
use crate::error::Error;
use crate::outlined::outlined;
use crate::sharing::PerGpu;
use crate::tend::Tended;
use crate::wait::{Needs, Watch, poll_briefly};

/// Index of a word pair: the rank of a member, or the index of its block, and the index of the pair within the block.
type PairIndex = (u32, u32);

/// A block of data in LL slots: its length in bytes, and the flag of its words.
#[derive(Clone, Copy)]
pub(super) struct LlBlock {
    pub(super) bytes: u64,
    pub(super) flag: u32,
}

impl LlBlock {
    /// Returns the number of word pairs. An empty block counts as one pair, which is never stored; index arithmetic
    /// relies on at least one.
    #[inline(always)]
    pub(super) fn pairs(self) -> u32 {
        (self.bytes.div_ceil(8) as u32).max(1)
    }

    #[inline(always)]
    fn packed(self, data: u64) -> [u64; 2] {
        // The flag is the upper half of both words, as the number is in a check-in word.
        let flag = (self.flag as u64) << 32;
        [data & 0xffff_ffff | flag, data >> 32 | flag]
    }

    #[inline(always)]
    fn unpacked(self, [low, high]: [u64; 2]) -> u64 {
        low & 0xffff_ffff | high << 32
    }

    #[inline(always)]
    fn has_both(self, pair: [u64; 2]) -> bool {
        self.has_flag(pair[0]) & self.has_flag(pair[1])
    }

    /// Returns whether a word of a slot, or a check-in word, carries the flag of this block's check-in.
    #[inline(always)]
    fn has_flag(self, word: u64) -> bool {
        (word >> 32) as u32 == self.flag
    }
}

/// Returns the length of the LL slots that `block` bytes of data take, in bytes. Saturates.
#[inline(always)]
pub(super) fn bytes(block: u64) -> u64 {
    // 8 bytes of data take a pair of words, 16 bytes.
    block.saturating_add(7) / 8 * 16
}

/// Sending side of a small collective call, which delivers its data by the LL protocol.
#[derive(Clone, Copy)]
pub(super) struct Sender {
    pub(super) members: (u32, u32),
    /// Address of the receiving slots on member 0, and distance between the addresses on successive members.
    pub(super) to: (u64, u64),
    /// Address of the list of the members' PEs, if the distance in `to` is between successive PEs rather than members;
    /// else 0.
    pub(super) pes: DevAddr,
    /// Address of the data for member 0, and distance to the data for the next member.
    pub(super) src: (u64, u64),
    pub(super) block: LlBlock,
}

impl Sender {
    /// Sends the blocks to all other members, as thread `rank` of `size`. Does not wait for anything.
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

    /// Sends at most one word pair, as thread `rank`. Requires at least as many threads as there are pairs to send.
    ///
    /// # Safety
    /// The same as for [`Sender::send`].
    #[inline(always)]
    pub(super) unsafe fn send_one(self, rank: u32) {
        // Start with the next member, or all members would send to the same one first.
        let (me, n) = self.members;
        let (k, pair) = advance((1, 0), rank, self.block.pairs(), n);
        if k < n {
            // SAFETY: `k` is below the number of members, so the pair exists. Its slot and its data are valid by this
            // function's contract.
            unsafe { send_pair((wrapped(me + k, n), pair), self.to, self.pes, self.src, self.block) }
        }
    }
}

/// Implements [`Sender::send`] with single words and pairs of words as arguments, which Rust passes in registers.
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
    // The pairs for all other members form one sequence, of which each thread takes every `size`-th.
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
    // Data at `at` corresponds to slots at `2 * at`.
    let at = pair as u64 * 8;
    // SAFETY: the block holds at least one byte at `at`, and the slots have room for the pair, by this function's
    // contract.
    unsafe {
        let data = load(src.0 + member as u64 * src.1 + at, block.bytes - at);
        arch::store_two(DevAddr(slots + 2 * at).ptr(), block.packed(data));
    }
}

/// The range of members that send blocks. A member copies its own block instead of sending it to itself.
#[derive(Clone, Copy)]
pub(super) struct Senders {
    pub(super) members: (u32, u32),
    pub(super) me: u32,
}

impl Senders {
    /// Returns the index of this member's own block, if the member is within the range.
    #[inline(always)]
    fn own(self) -> Option<u32> {
        let (first, end) = self.members;
        if first <= self.me && self.me < end { Some(self.me - first) } else { None }
    }

    #[inline(always)]
    pub(super) fn others(self) -> u32 {
        self.members.1 - self.members.0 - self.own().is_some() as u32
    }

    /// Returns the index of another member's block among all blocks, given its index among the blocks of other members.
    #[inline(always)]
    fn block(self, other: u32) -> u32 {
        // There is no own block among the others, so the indices after it shift by one.
        let before = self.own().is_none_or(|own| other < own);
        if before { other } else { other + 1 }
    }
}

/// Receiving side of a small collective call, whose data arrives by the LL protocol.
#[derive(Clone, Copy)]
pub(super) struct Receiver {
    /// Range of member ranks that send data.
    pub(super) members: (u32, u32),
    pub(super) me: u32,
    /// Address of the slots in which this member receives data.
    pub(super) from: u64,
    /// Address at which the first block is stored, and distance to the next one.
    pub(super) to: (u64, u64),
    pub(super) block: LlBlock,
}

impl Receiver {
    #[inline(always)]
    fn senders(self) -> Senders {
        Senders { members: self.members, me: self.me }
    }

    /// Receives at most one word pair from another member, and copies at most one pair of this member's own block.
    /// Returns whether the pair arrived within a brief poll; if not, the caller falls back to [`receive`].
    ///
    /// # Safety
    /// The same as for [`receive`]. There is a thread for each pair of another member, and for each pair of the own
    /// block.
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
                // Issued before the poll below, which hides its latency.
                // SAFETY: the own block is readable, by this function's contract, and has pair `rank`.
                own_data = unsafe { load(own + offset, block.bytes - offset) };
            }
        }
        let mut arrived = true;
        // Thread `rank` receives the pair with that index in the sequence of all other members' pairs.
        let (other, pair) = advance((0, 0), rank, pairs, others);
        if other < others {
            let index = (senders.block(other), pair);
            // A pair that is late is left to `receive`, which starts over.
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
    /// Receives the blocks, as thread `rank` of `size`. This member's own block is copied from `own`, unless that is 0
    /// because it is in place already.
    ///
    /// `hashes` holds the address of the check-in words and the expected call hash: a member with another hash may
    /// never send data, so the receiver stops waiting for it. Returns 0, or an error code in the low 8 bits and the
    /// member above them.
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
        waits: (DevAddr, Needs);
        receiver: Receiver { members: (u32, u32), me: u32, from: u64, to: (u64, u64), block: LlBlock }
    ) -> u64 {
        let Receiver { members, from, to, block, .. } = receiver;
        let (senders, pairs) = (receiver.senders(), block.pairs());
        let (rank, size) = thread;
        // Without `own`, this member's block is in place already.
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
        // Issued before the waits below, which hide its latency.
        let (mut own_pair, mut own_word) = (rank, own_data(rank));
        // Indices past the last pair are clamped to a pair that exists, so all four loads are unconditional. `lacks`
        // and `store_found` ignore the result.
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
        // A word with another flag is from another check-in, and its hash says nothing about this one.
        let differs = |word: u64| block.has_flag(word) && word as u32 != hashes.1 as u32;
        let (tended, mut watch) = (Tended::<PerGpu>::shared(waits.0), Watch::needing(waits.0, waits.1));
        // Keeps waiting, unless the member whose data is missing has another call hash.
        let mut again = |differs: bool| if differs { Err(Error::TeamMismatch) } else { tended.turn(&mut watch) };
        let next = |index| advance(index, size, pairs, others);
        let mut a = advance((0, 0), rank, pairs, others);
        while a.0 < others {
            // Four loads are in flight together.
            let b = next(a);
            let c = next(b);
            let d = next(c);
            // The check-in word of the member that was late last time is loaded together with the data, so the check
            // lags by one poll. A hash only counts if it belongs to the member missing now.
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
        // Last, because the first load of the own block had all of the waits above to complete.
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

/// A small reduction: each member sends its block to all others, and combines all blocks as they arrive.
///
/// A thread handles two pairs at a time: their loads are in flight together, and one call combines both.
#[derive(Clone, Copy)]
pub(super) struct Reducer {
    pub(super) reduction: Reduction,
    pub(super) members: (u32, u32),
    /// Address of the receiving slots on member 0, and distance between the addresses on successive members.
    pub(super) to: (u64, u64),
    /// Address of the list of the members' PEs, if the distance in `to` is between successive PEs rather than members;
    /// else 0.
    pub(super) pes: DevAddr,
    /// Address of the slots in which this member receives data.
    pub(super) from: u64,
    /// Address of the data for member 0, and distance to the data for the next member. A distance of 0 sends the same
    /// data to all.
    pub(super) src: (u64, u64),
    pub(super) dst: u64,
    pub(super) block: LlBlock,
}

impl Reducer {
    /// Sends the blocks to all other members, as thread `rank` of `size`. Returns the thread's first two words of this
    /// member's own block, already loaded for [`Reducer::combine`].
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
        // Two pairs per round, as in `combine`, which must be called by the same thread for the same pairs.
        while pair < pairs {
            // Every pair of this thread goes to each of the other members.
            let mut k = 1;
            while k < n {
                let to = wrapped(me + k, n);
                // If all members get the same block, load it only once.
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

    /// Receives the blocks of all members and combines them with this member's own, as thread `rank` of `size`, which
    /// must have sent the same pairs. `first` is the result of [`Reducer::send`]. `hashes`, `waits` and the return
    /// value are as in [`receive`].
    ///
    /// The order is that of the members, on every member, so floating-point results are identical everywhere.
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
        waits: (DevAddr, Needs),
    ) -> u64 {
        let Self { block, reduction, .. } = self;
        let (pairs, (me, n)) = (block.pairs(), self.members);
        let (mut pair, mut own) = (rank, first);
        while pair < pairs {
            // The second pair, if there is one, is `size` pairs on.
            let second = pair + size;
            let (mut sum, mut member) = (own, 0);
            // In team order, so the result does not depend on which block arrives first.
            while member < n {
                let mut words = own;
                if member != me {
                    let place = self.place(member, me);
                    let one = self.slot(self.from, place, pair);
                    // Without a second pair, this reads the first one twice, so both loads are unconditional.
                    let other = self.slot(self.from, place, if second < pairs { second } else { pair });
                    // SAFETY: both pairs lie in this member's slots, which are readable by this function's contract.
                    let read = || unsafe { (arch::load_two(one), arch::load_two(other)) };
                    let has_both =
                        |found: ([u64; 2], [u64; 2])| block.has_both(found.0) & block.has_both(found.1);
                    let mut found = poll_briefly(read, has_both);
                    if !has_both(found) {
                        // SAFETY: the slots and the check-in words are readable, by this function's contract.
                        let missed = unsafe { await_pairs(member, (one, other), block, hashes, waits) };
                        if missed != 0 {
                            return missed;
                        }
                        // Both pairs are complete now and stay so until check-in `k + 2`, so a plain re-read returns
                        // them.
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

    /// Returns the index at which the slots of member `to` hold the block of member `from`. Members do not send to
    /// themselves, so there is no slot for their own block.
    #[inline(always)]
    fn place(self, from: u32, to: u32) -> u32 {
        from - (from > to) as u32
    }

    #[inline(always)]
    fn slot(self, slots: u64, place: u32, pair: u32) -> *mut [u64; 2] {
        DevAddr(slots + (place as u64 * self.block.pairs() as u64 + pair as u64) * 16).ptr()
    }

    /// Loads the data of pair `pair` for `member`, and of pair `pair + size` if it exists.
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

/// Waits until two pairs of a member carry their flags. `hashes`, `waits` and the return value are as in [`receive`].
///
/// # Safety
/// `one` and `other` are multiples of 16 and valid for reads of a pair. `hashes` leads to a check-in word for `member`.
#[inline(never)]
unsafe fn await_pairs(
    member: u32,
    (one, other): (*const [u64; 2], *const [u64; 2]),
    block: LlBlock,
    hashes: (u64, u64),
    waits: (DevAddr, Needs),
) -> u64 {
    let (tended, mut watch) = (Tended::<PerGpu>::shared(waits.0), Watch::needing(waits.0, waits.1));
    loop {
        // The member's check-in word is loaded first: a member whose call differs may never send data.
        // SAFETY: both pairs and the check-in word of `member` are readable, by this function's contract.
        let (word, found) = unsafe {
            let word = Sys::load_relaxed(DevAddr(hashes.0).add(member as u64 * 8).ptr::<u64>());
            (word, (arch::load_two(one), arch::load_two(other)))
        };
        if block.has_both(found.0) & block.has_both(found.1) {
            return 0;
        }
        let differs = block.has_flag(word) && word as u32 != hashes.1 as u32;
        let turn = if differs { Err(Error::TeamMismatch) } else { tended.turn(&mut watch) };
        if let Err(error) = turn {
            return error as u64 | (member as u64) << 8;
        }
    }
}

/// Loads a word pair from the LL slots of a block.
///
/// # Safety
/// `from` is a multiple of 16 and valid for reads of the slots of the blocks up to this one, which has that pair.
#[inline(always)]
unsafe fn load_pair((number, pair): PairIndex, from: u64, block: LlBlock) -> [u64; 2] {
    let slot = number as u64 * block.pairs() as u64 + pair as u64;
    // SAFETY: the slots of the block are readable and aligned, by this function's contract, and have that pair.
    unsafe { arch::load_two(DevAddr(from + slot * 16).ptr()) }
}

/// Stores the 8 bytes of data of a word pair at the destination of its block.
///
/// # Safety
/// The destination of the block at `to` is valid for writes of `block.bytes` bytes until the kernel returns. The block
/// has that pair, and no other thread stores it.
#[inline(always)]
unsafe fn store_data((number, pair): PairIndex, to: (u64, u64), block: LlBlock, data: u64) {
    let offset = pair as u64 * 8;
    // SAFETY: the destination is writable, by this function's contract, and has that pair.
    unsafe { store(to.0 + number as u64 * to.1 + offset, block.bytes - offset, data) }
}

/// Returns the index of the pair that follows at distance `by`, with `pairs` pairs per member. Past the last pair,
/// returns member `end`.
#[inline(always)]
fn advance((member, pair): PairIndex, by: u32, pairs: u32, end: u32) -> PairIndex {
    let (mut member, mut pair) = (member, pair + by);
    // Stops at `end` however many pairs remain, so it takes at most one turn per member.
    while pair >= pairs && member < end {
        (member, pair) = (member + 1, pair - pairs);
    }
    (member, pair)
}

/// Loads up to 8 bytes of a block, the first into the lowest bits. `bytes` is the length of the rest of the block and
/// may exceed 8.
///
/// # Safety
/// `at` is valid for reads of `bytes` bytes.
#[inline(always)]
unsafe fn load(at: u64, bytes: u64) -> u64 {
    // SAFETY: each access stays within the first `bytes` bytes, which are readable by this function's contract. The
    // word is aligned.
    unsafe {
        // Blocks are ranges of user memory: the word may be unaligned, or cut short by the end of the block.
        if at & 7 == 0 && bytes >= 8 {
            return arch::read(DevAddr(at).ptr());
        }
        let (mut word, mut i) = (0, 0);
        // Little-endian, whatever the alignment. `store` undoes this.
        while i < bytes.min(8) {
            word |= (arch::read(DevAddr(at + i).ptr::<u8>()) as u64) << (8 * i);
            i += 1;
        }
        word
    }
}

/// Stores up to 8 bytes of a block, the lowest bits first. `bytes` is the length of the rest of the block and may
/// exceed 8.
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
