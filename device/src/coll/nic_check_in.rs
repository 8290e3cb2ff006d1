//! Check-ins of teams with NIC peers: the members verify that all of them make the same collective call.
//!
//! Each member sends its call hash to all others and compares it with theirs. Two variants send fewer words:
//!
//! - **By nodes.** Where a node has several members, they send to the leader of their node. The leaders check in with
//!   each other, and each passes the result on to the members of its node. Words within a node are plain stores, so a
//!   node sends a single word to each other node.
//! - **By rounds.** For many members or leaders. In round `r`, each sends to the one at distance `2^r` (a dissemination
//!   barrier), so log2 rounds suffice.
//!
//! In both, a word says either "all hashes so far are equal" or "these two members differ". Each word has a single
//! writer, so it may come from a P2P peer or a NIC peer alike and needs no atomicity.

#![allow(unsafe_code, reason = "updates the words and counters of a team")]

use core::panic::Location;

use super::args::{WRONG, await_number, check_in_word, team_word, wrapped};
use super::nodes::{Nodes, pe_of};
use crate::abi::{TeamDesc, team_word as bits, team_words};
use crate::arch::{Gpu, Scope, Sys};
use crate::ctx::Ctx;
use crate::ctx::CtxRef;
use crate::error::{Detail, Error, Result, Site};
use crate::sharing::Sharing;

/// Maximum number of members, or node leaders, that check in directly with each other rather than in rounds.
const MAX_DIRECT: u32 = 32;
/// Flag of a check-in word for "two members differ". Their indices are in the bits below, 15 bits each.
const DIFFER: u32 = 1 << 31;

/// Increments the check-in count of the team and returns the new value.
///
/// # Safety
/// `desc` is the entry of a team whose lock this thread's group holds, and this thread is the leader.
#[inline(always)]
unsafe fn next_check_in(desc: *mut TeamDesc) -> u64 {
    // SAFETY: `desc` is the entry of the locked team, by this function's contract. Only this thread stores to the
    // word: the others of its group leave that to the leader, and other groups only set the bit that is set already.
    unsafe {
        let word = &raw mut (*desc).word.word;
        let number = (Gpu::load_relaxed(word) >> bits::SHIFT) + 1;
        Gpu::store_relaxed(word, number << bits::SHIFT | bits::BUSY);
        number
    }
}

/// Combines the check-in state of this member with that of member `from`. A difference, once found, is passed on
/// unchanged.
#[inline(always)]
fn combined(mine: u32, theirs: u32, me: u32, from: u32) -> u32 {
    if mine & DIFFER != 0 || mine == theirs {
        mine
    } else if theirs & DIFFER != 0 {
        theirs
    } else {
        DIFFER | (from & 0x7fff) << 15 | (me & 0x7fff)
    }
}

/// Checks in with all members of the team. Called by the leader of the group that holds the team lock; `mine` is the
/// result of its argument check.
#[inline(never)]
#[track_caller]
pub(super) fn check_in<S: Sharing>(
    ctx_ref: CtxRef,
    desc: *mut TeamDesc,
    words: u64,
    call_hash: u32,
    mine: Result,
) -> Result {
    let (ctx, site) = (ctx_ref.ctx::<S>(), Location::caller());
    // SAFETY: the group holds the lock, and this thread is its leader.
    let (number, n, me) = unsafe { (next_check_in(desc), (*desc).n_pes, (*desc).my_pe) };
    // After the check-in, other members may read what this group stored before it.
    Sys::fence();
    // A member with wrong arguments checks in too, with a hash that no valid call has, so the others fail instead of
    // waiting.
    let call_hash = if mine.is_err() { WRONG } else { call_hash };
    let nodes = Nodes::of(desc);
    let check_in = CheckIn { ctx: &ctx, desc, nodes, words, number, n, me, site };
    // In a team within one node, every form of a call reads the words of all members. All of them must be sent, even if
    // there are many.
    let known = if nodes.n > 1 && nodes.n < n {
        check_in.by_nodes(call_hash)?
    } else if n <= MAX_DIRECT || nodes.n == 1 {
        check_in.direct(call_hash, (me, n), |member| member)?
    } else {
        check_in.by_rounds(call_hash, (me, n), |member| member)?
    };
    // The member's own error takes precedence: it is the cause of the mismatch.
    mine?;
    if known & DIFFER == 0 {
        return Ok(());
    }
    // `combined` has packed the two members.
    let (one, other) = (known >> 15 & 0x7fff, known & 0x7fff);
    // Report the other member as the odd one, not this one.
    let (one, other) = if one == me { (other, one) } else { (one, other) };
    let hashes = check_in.hashes_with(one, call_hash);
    let d =
        Detail { peer: pe_of(desc, one), found: pe_of(desc, other) as u64, wanted: hashes, ..Detail::NONE };
    Err(ctx.fail(Error::TeamMismatch, d))
}

#[derive(Clone, Copy)]
struct CheckIn<'c, 'k, S> {
    ctx: &'c Ctx<'k, S>,
    desc: *mut TeamDesc,
    nodes: Nodes,
    /// Heap offset of the words of the team channel that the group uses.
    words: u64,
    number: u64,
    n: u32,
    me: u32,
    site: Site,
}

impl<S: Sharing> CheckIn<'_, '_, S> {
    #[inline(always)]
    fn word_of(self, member: u32) -> u64 {
        self.words + check_in_word(self.number, self.n, member)
    }

    /// Returns the hashes of a mismatch, for its error record: this member's in the upper half, that of `member` in the
    /// lower. 0 if this PE has not received the latter.
    #[inline(always)]
    fn hashes_with(self, member: u32, call_hash: u32) -> u64 {
        // SAFETY: an aligned word of the runtime in this PE's heap, which its member writes next two check-ins later.
        let word = unsafe { Sys::load_relaxed(self.ctx.address(self.word_of(member))) };
        let has_hash = (word >> 32) as u32 == self.number as u32 && word as u32 & DIFFER == 0;
        if has_hash { (call_hash as u64) << 32 | word as u32 as u64 } else { 0 }
    }

    /// Writes this member's check-in state `known` to the word at `at` of another member, tagged with the check-in
    /// number.
    #[inline(always)]
    fn tell(self, member: u32, at: u64, known: u32) -> Result {
        let value = self.number << 32 | known as u64;
        self.ctx.signal_op(team_word(at).set(value), pe_of(self.desc, member))
    }

    /// Waits for the check-in word of another member and combines its state with this member's.
    #[inline(always)]
    fn hear(self, member: u32, known: u32) -> Result<u32> {
        Ok(combined(known, self.await_known(self.word_of(member), member)?, self.me, member))
    }

    /// Waits for the check-in word that `member` writes at `at`, and returns the state in it.
    #[inline(always)]
    fn await_known(self, at: u64, member: u32) -> Result<u32> {
        // The words sent above may be in an open batch, and the other member waits for them.
        self.ctx.announce_batches();
        await_number(self.ctx, at, self.number as u32, (self.desc, pe_of(self.desc, member)), self.site)
    }

    /// Checks in directly: sends to all of `count` participants and waits for them. `member` maps their indices to
    /// members; this one has index `own`.
    #[inline(always)]
    fn direct(self, known: u32, (own, count): (u32, u32), member: impl Fn(u32) -> u32) -> Result<u32> {
        // Send everything before the first wait; otherwise two members could wait for each other.
        let mut k = 1;
        while k < count {
            self.tell(member(wrapped(own + k, count)), self.word_of(self.me), known)?;
            k += 1;
        }
        // All words have been sent. Now wait for those of the others, whatever their order.
        let (mut all, mut k) = (known, 1);
        while k < count {
            all = self.hear(member(wrapped(own + k, count)), all)?;
            k += 1;
        }
        Ok(all)
    }

    /// Checks in by rounds among `count` participants. `member` maps their indices to members; this one has index
    /// `own`.
    #[inline(always)]
    fn by_rounds(self, mut known: u32, (own, count): (u32, u32), member: impl Fn(u32) -> u32) -> Result<u32> {
        // Rounds have their own words, in two sets by the parity of the check-in: see `call.rs`.
        let set = self.words + team_words::IN_ROUNDS + (self.number & 1) * (team_words::ROUNDS as u64 * 8);
        let mut round = 0;
        while round < team_words::ROUNDS && 1u64 << round < count as u64 {
            let step = 1u32 << round;
            let (to, from) = (member(wrapped(own + step, count)), member(wrapped(own + count - step, count)));
            let at = set + round as u64 * 8;
            // The word vouches for the stores of members heard in earlier rounds, so it must be ordered after them. A
            // doorbell includes such a fence, a store does not.
            if self.ctx.peer_addr::<u64>(pe_of(self.desc, to), at).is_some() {
                Sys::release();
            }
            self.tell(to, at, known)?;
            known = combined(known, self.await_known(at, from)?, self.me, from);
            round += 1;
        }
        Ok(known)
    }

    /// Checks in by nodes: sends to the leader of the node, which checks in with the other leaders and passes the
    /// result on.
    #[inline(always)]
    fn by_nodes(self, mut known: u32) -> Result<u32> {
        let (nodes, mine) = (self.nodes, self.nodes.mine);
        let leader = |node: u32| nodes.member(node, 0);
        // Everybody else reports to the leader and waits for its verdict.
        if self.me != leader(mine) {
            self.tell(leader(mine), self.word_of(self.me), known)?;
            return self.await_known(self.word_of(leader(mine)), leader(mine));
        }
        // Hear the whole node before telling other nodes.
        let locals = nodes.size(mine);
        let mut k = 1;
        while k < locals {
            known = self.hear(nodes.member(mine, k), known)?;
            k += 1;
        }
        known = if nodes.n <= MAX_DIRECT {
            self.direct(known, (mine, nodes.n), leader)?
        } else {
            self.by_rounds(known, (mine, nodes.n), leader)?
        };
        // The members of this node must see everything the others published before they checked in.
        Sys::release();
        let mut k = 1;
        while k < locals {
            self.tell(nodes.member(mine, k), self.word_of(self.me), known)?;
            k += 1;
        }
        Ok(known)
    }
}
