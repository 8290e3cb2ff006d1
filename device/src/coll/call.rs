//! Building blocks of collective calls on teams with NIC peers: check-ins, messages and fetches.
//!
//! **Check-in.** Each member proves to the others that it makes the same call: either all proceed or none does. See
//! [`nic_check_in`](super::nic_check_in). Check-ins are numbered, and their words are in one of two sets, used
//! alternately. A member that is one check-in ahead writes to the other set. No member can be two ahead, because a
//! check-in needs all members.
//!
//! **Message.** Data with a signal that adds 1 to a message counter of the receiver, which is never reset. NIC peers
//! and P2P peers use separate counters, because their atomics are not atomic with respect to each other. A call knows
//! how many messages to expect. They cannot include messages of a later call, because that call starts with a check-in.
//!
//! **Fetch.** A get into this PE's scratch of the team, which no other member touches.
//!
//! A call that fails after its check-in leaves the members with different counters. The team is then unusable, and
//! later calls on it return [`Error::TeamFailed`].
//!
//! The outlined functions take plain words and find the context in memory, so kernels with collective calls need no
//! stack, and all calls share these functions.

#![allow(unsafe_code, reason = "updates the words and counters of a team")]

use core::marker::PhantomData;
use core::panic::Location;

use crate::abi::{TeamDesc, team_word as bits, team_words};
use crate::arch::{self, Gpu, Scope, Sys, SysWord};
use crate::ctx::CtxRef;
use crate::error::{Detail, Error, Result};
use crate::group::{Group, agree};
use crate::heap::SymSlice;
use crate::rma::copy::copy;
use crate::sharing::Sharing;
use crate::sync::Cmp;
use crate::team::Team;

use super::args::{call_hash, needs_of, scratch_of, team_word, wrapped};
use super::nic_check_in::check_in;
use super::nodes::{Nodes, pe_of};
use super::team_lock::{check_locked, try_lock, unlock};

/// Numbers of messages, from NIC peers and from P2P peers.
#[derive(Clone, Copy)]
pub(super) struct Messages {
    pub(super) nic: u64,
    pub(super) p2p: u64,
}

/// A collective call in progress, on a team with NIC peers. Its group holds the team lock.
#[derive(Clone, Copy)]
pub(crate) struct Call<G, S> {
    pub(crate) group: G,
    pub(crate) ctx_ref: CtxRef,
    desc: *mut TeamDesc,
    /// Heap offset of the words of the team channel that the group uses.
    words: u64,
    pub(crate) n: u32,
    pub(crate) me: u32,
    _sharing: PhantomData<S>,
}

impl<G: Group, S: Sharing> Call<G, S> {
    /// Locks the team for this group. [`Call::end`] must follow, whatever the result of the call.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn begin(group: G, ctx_ref: CtxRef, team: Team) -> Result<Self> {
        group.sync();
        // A team has an entry for each channel, with its own lock and counters, so groups of different channels do not
        // exclude each other.
        let channel = group.channel();
        // Only the leader takes the lock; `agree` shares the outcome.
        let locked = if group.leader() { lock_team::<S>(ctx_ref, team, channel) } else { Ok(()) };
        agree(group, locked)?;
        let ctx = ctx_ref.ctx::<S>();
        // Cannot fail in the leader, which has just locked the team. Other threads read the entry for themselves.
        let Some(desc) = ctx.team_desc(team) else { return Err(Error::InGroup) };
        let desc = desc.wrapping_add(channel as usize);
        // SAFETY: the host made the entry, and it does not change while the team exists.
        let (n, me, words) = unsafe { ((*desc).n_pes, (*desc).my_pe, (*desc).words) };
        Ok(Self { group, ctx_ref, desc, words, n, me, _sharing: PhantomData })
    }

    /// Unlocks the team, and marks it as failed if `result` leaves the members' counters different.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn end(self, result: Result) -> Result {
        // The leader must not unlock while a thread of the group still uses the team's words.
        self.group.sync();
        if self.group.leader() {
            unlock_team(self.desc, result);
        }
        result
    }

    /// Waits until all members have checked in with the same call hash. `mine` is the result of the leader's argument
    /// check; if it failed on any member, none proceeds.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn check_in(self, call_hash: u32, mine: Result) -> Result {
        self.group.sync();
        // One thread exchanges words with the other members. `agree` then releases the group.
        let checked_in = if self.group.leader() {
            check_in::<S>(self.ctx_ref, self.desc, self.words, call_hash, mine)
        } else {
            Ok(())
        };
        agree(self.group, checked_in)
    }

    #[inline(always)]
    pub(super) fn desc(self) -> *const TeamDesc {
        self.desc
    }

    #[inline(always)]
    pub(crate) fn pe(self, member: u32) -> u32 {
        pe_of(self.desc, member)
    }

    /// Returns the member that follows this one at distance `k` in the ring of all members. `k` is at most their
    /// number.
    #[inline(always)]
    pub(crate) fn after(self, k: u32) -> u32 {
        wrapped(self.me + k, self.n)
    }

    #[inline(always)]
    pub(super) fn nodes(self) -> Nodes {
        Nodes::of(self.desc)
    }

    #[inline(always)]
    pub(super) fn rank_in_node(self) -> u32 {
        // SAFETY: the host made the entry, and it does not change while the team exists.
        unsafe { (*self.desc).node_rank }
    }

    /// Sends `bytes` bytes from `src` of this PE to `dst` of a member, and increments the member's message counter.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn deliver(self, member: u32, dst: u64, src: u64, bytes: u64) -> Result {
        let signal = count_for(self.nodes(), member, self.words + team_words::MESSAGES);
        deliver::<G, S>(self.group, self.ctx_ref, self.pe(member), dst, src, bytes, signal)
    }

    /// Starts copying `bytes` bytes from `src` of a member to `dst` of this PE. [`Call::complete`] waits for the copy.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn fetch(self, member: u32, dst: u64, src: u64, bytes: u64) -> Result {
        fetch::<G, S>(self.group, self.ctx_ref, self.pe(member), dst, src, bytes)
    }

    /// Waits until all deliveries and fetches of this PE have completed.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn complete(self) -> Result {
        complete::<G, S>(self.group, self.ctx_ref, self.desc)
    }

    /// Waits for one message from each other member.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn await_others(self) -> Result {
        let nodes = self.nodes();
        let local = nodes.size(nodes.mine);
        self.await_messages(Messages { nic: (self.n - local) as u64, p2p: (local - 1) as u64 })
    }

    /// Waits for `messages` in addition to those that this PE has received in the team so far.
    #[inline(always)]
    #[track_caller]
    pub(super) fn await_messages(self, messages: Messages) -> Result {
        let arrived = if self.group.leader() {
            await_messages::<S>(self.ctx_ref, self.desc, self.words, messages)
        } else {
            Ok(())
        };
        agree(self.group, arrived)
    }

    /// Copies `bytes` bytes within the memory of this PE.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn copy(self, dst: u64, src: u64, bytes: u64) {
        let ctx = self.ctx_ref.ctx::<S>();
        // SAFETY: the call has checked its arguments.
        unsafe { copy_bytes(self.group, ctx.address(dst), ctx.address(src), bytes) };
        self.group.sync();
    }

    /// Returns heap offset and length, in bytes, of the scratch for transfers to and from NIC peers.
    #[inline(always)]
    pub(crate) fn scratch(self) -> (u64, u64) {
        // SAFETY: the host made the entry, and it does not change while the team exists.
        let (offset, bytes) = scratch_of(unsafe { (*self.desc).bytes }, self.n);
        // The scratch of teams within one node starts with two sets of LL slots.
        let theirs = if self.nodes().n == 1 { 2 * team_words::slots(bytes, self.n) } else { 0 };
        (self.words + offset + theirs, bytes - theirs)
    }

    /// Sends the two values `mine(j)` to each member `j`, and waits for two values from each, which [`Call::values_of`]
    /// returns.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn exchange_values(self, mine: impl Fn(u32) -> (u64, u64)) -> Result {
        let sent = if self.group.leader() {
            let mut sent = Ok(());
            let mut k = 1;
            while k < self.n {
                let to = self.after(k);
                let at = self.words + value_at(self.n, self.me);
                if sent.is_ok() {
                    sent = send_values::<S>(self.ctx_ref, self.pe(to), at, mine(to));
                }
                k += 1;
            }
            if sent.is_ok() { await_values::<S>(self.ctx_ref, self.desc, self.words) } else { sent }
        } else {
            Ok(())
        };
        agree(self.group, sent)
    }

    /// Returns the two values that another member sent. Requires that [`Call::exchange_values`] has returned.
    #[inline(always)]
    pub(crate) fn values_of(self, member: u32) -> (u64, u64) {
        let ctx = self.ctx_ref.ctx::<S>();
        let at = ctx.address::<u64>(self.words + value_at(self.n, member));
        // Sent incremented by 1; see `send_values`.
        // SAFETY: aligned words of the runtime in this PE's heap. No member writes them until the next call.
        unsafe { (u64::load_acquire(at) - 1, u64::load_acquire(at.add(1)) - 1) }
    }

    /// Resets the received values, for the next call that uses [`Call::exchange_values`].
    #[inline(always)]
    #[track_caller]
    pub(crate) fn clear_values(self) {
        // All threads must have read the values before any is cleared.
        self.group.sync();
        let ctx = self.ctx_ref.ctx::<S>();
        // Including this member's own entry, which nobody has written. That is harmless.
        let mut i = self.group.rank();
        while i < self.n {
            let at = ctx.address::<u64>(self.words + value_at(self.n, i));
            // SAFETY: the same words; the members write again only after the next check-in.
            unsafe {
                u64::store_release(at, 0);
                u64::store_release(at.add(1), 0);
            }
            i += self.group.size();
        }
        self.group.sync();
    }

    /// Arrives at the team's split barrier, without waiting.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn arrive(self) -> Result {
        let arrived =
            if self.group.leader() { arrive::<S>(self.ctx_ref, self.desc, self.words) } else { Ok(()) };
        agree(self.group, arrived)
    }

    /// Waits until the other members have arrived at the team's split barrier.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn await_arrivals(self) -> Result {
        let arrived = if self.group.leader() {
            await_arrivals::<S>(self.ctx_ref, self.desc, self.words)
        } else {
            Ok(())
        };
        agree(self.group, arrived)
    }

    #[inline(always)]
    pub(crate) fn call_hash(self, kind: u32, arguments: [u64; 4]) -> u32 {
        // SAFETY: the host made the entry, and it does not change while the team exists.
        call_hash(self.group, unsafe { (*self.desc).generation }, kind, arguments)
    }
}

/// Copies bytes as words where their alignment allows.
///
/// # Safety
/// `to` is valid for writes of `bytes` bytes and `from` for reads of them. They do not overlap.
#[inline(always)]
unsafe fn copy_bytes<G: Group>(group: G, to: *mut u8, from: *mut u8, bytes: u64) {
    // SAFETY: both operands are valid for `bytes` bytes and do not overlap, by this function's contract. A `u8` needs
    // no alignment.
    unsafe { copy(group, to, from.cast_const(), bytes as usize) }
}

#[inline(always)]
fn value_at(n: u32, member: u32) -> u64 {
    team_words::values(n) + member as u64 * 16
}

#[inline(always)]
fn span(offset: u64, bytes: u64) -> SymSlice<u8> {
    // SAFETY: parts of checked arguments of the call, or of the scratch.
    unsafe { SymSlice::from_raw(offset, bytes as usize) }
}

#[inline(never)]
#[track_caller]
fn lock_team<S: Sharing>(ctx_ref: CtxRef, team: Team, channel: u32) -> Result {
    let ctx = ctx_ref.ctx::<S>();
    // The slot is checked first, the generation after the lock has been taken: see `check_locked`.
    let Some(desc) = ctx.team_entry(team) else {
        return Err(ctx.bad_team(team));
    };
    let desc = desc.wrapping_add(channel as usize);
    // SAFETY: the host made the entry. The fence makes the counters of the last group visible.
    unsafe {
        let word = try_lock(desc);
        let generation = arch::read(&raw const (*desc).generation);
        check_locked(ctx.parts_ref().state, desc, generation, word, team)?;
    }
    // The counters of the group that held the lock before are visible from here on.
    Gpu::fence();
    Ok(())
}

#[inline(never)]
fn unlock_team(desc: *mut TeamDesc, result: Result) {
    // SAFETY: the group holds the lock. The fence makes its counters visible to the next group.
    unsafe {
        // The call has checked in since it locked the team, so read the number again.
        let number = Gpu::load_relaxed(&raw const (*desc).word.word) >> bits::SHIFT;
        Gpu::fence();
        unlock(desc, number, result);
    }
}

#[inline(never)]
#[track_caller]
fn deliver<G: Group, S: Sharing>(
    group: G,
    ctx_ref: CtxRef,
    pe: u32,
    dst: u64,
    src: u64,
    bytes: u64,
    signal: u64,
) -> Result {
    let (dst, src) = (span(dst, bytes), span(src, bytes));
    // See the module documentation: separate counters for P2P peers and NIC peers.
    let ctx = ctx_ref.ctx::<S>();
    ctx.for_node_words().put_signal_nbi(group, dst, src, team_word(signal).add(1), pe)
}

/// Returns the offset of the counter that this PE increments at `member`: `at` for a NIC peer, or the counter of P2P
/// peers next to it.
#[inline(always)]
fn count_for(nodes: Nodes, member: u32, at: u64) -> u64 {
    if nodes.is_local(member) { at + team_words::P2P } else { at }
}

#[inline(never)]
#[track_caller]
fn fetch<G: Group, S: Sharing>(group: G, ctx_ref: CtxRef, pe: u32, dst: u64, src: u64, bytes: u64) -> Result {
    ctx_ref.ctx::<S>().get_nbi(group, span(dst, bytes), span(src, bytes), pe)
}

/// Starts copying `bytes` bytes from `src` of this PE to `dst` of another PE, without incrementing its message counter.
#[inline(never)]
#[track_caller]
pub(crate) fn put<G: Group, S: Sharing>(
    group: G,
    ctx_ref: CtxRef,
    pe: u32,
    dst: u64,
    src: u64,
    bytes: u64,
) -> Result {
    ctx_ref.ctx::<S>().put_nbi(group, span(dst, bytes), span(src, bytes), pe)
}

#[inline(never)]
#[track_caller]
fn complete<G: Group, S: Sharing>(group: G, ctx_ref: CtxRef, desc: *mut TeamDesc) -> Result {
    let (ctx, site) = (ctx_ref.ctx::<S>(), Location::caller());
    // SAFETY: the group holds the lock.
    let n = unsafe { (*desc).n_pes };
    let mut mine = Ok(());
    // Signals may use another QP than data: all atomics on a PE go through one of its NICs. The data then needs a
    // read-back, and the call waits for both QPs.
    let mut member = group.rank();
    while member < n {
        let pe = pe_of(desc, member);
        let (data, signals) = (ctx.qp(pe), ctx.atomic_qp(pe));
        if signals.entry() != data.entry() {
            mine = mine.and(ctx.read_back(data.peer_entry()));
        }
        mine = mine.and(data.wait(data.last(), site));
        if signals.entry() != data.entry() {
            mine = mine.and(signals.wait(signals.last(), site));
        }
        member += group.size();
    }
    agree(group, mine)
}

#[inline(never)]
#[track_caller]
fn await_messages<S: Sharing>(
    ctx_ref: CtxRef,
    desc: *mut TeamDesc,
    words: u64,
    messages: Messages,
) -> Result {
    // The counter of the receiver only grows, so what to wait for is the sum over all calls so far.
    // SAFETY: the group holds the lock, so only its leader touches the counters.
    let wanted = |counter: *mut u64, more| unsafe {
        let wanted = Gpu::load_relaxed(counter) + more;
        Gpu::store_relaxed(counter, wanted);
        wanted
    };
    // SAFETY: the host made the entry.
    let (nic, p2p) = unsafe { (&raw mut (*desc).counters.taken, &raw mut (*desc).counters.taken_p2p) };
    await_counts::<S>(
        ctx_ref,
        desc,
        words + team_words::MESSAGES,
        Messages { nic: wanted(nic, messages.nic), p2p: wanted(p2p, messages.p2p) },
    )
}

/// Waits until the counter of NIC peers at `at`, and that of P2P peers next to it, have reached `wanted`.
#[inline(always)]
#[track_caller]
fn await_counts<S: Sharing>(ctx_ref: CtxRef, desc: *const TeamDesc, at: u64, wanted: Messages) -> Result {
    let needs = needs_of(desc);
    let ctx = ctx_ref.ctx::<S>();
    // Other members may be waiting for messages in an open batch, even if this one waits for nothing.
    ctx.announce_batches();
    ctx.await_word(("wait_until", needs), team_word(at + team_words::P2P), Cmp::Ge, wanted.p2p)?;
    ctx.await_word(("wait_until", needs), team_word(at), Cmp::Ge, wanted.nic).map(|_| ())
}

/// Sends two values to the PE of another member. Each is incremented by 1, because 0 means "not arrived".
#[inline(never)]
#[track_caller]
fn send_values<S: Sharing>(ctx_ref: CtxRef, pe: u32, at: u64, (a, b): (u64, u64)) -> Result {
    let ctx = ctx_ref.ctx::<S>();
    ctx.signal_op(team_word(at).set(a + 1), pe)?;
    ctx.signal_op(team_word(at + 8).set(b + 1), pe)
}

#[inline(never)]
#[track_caller]
fn await_values<S: Sharing>(ctx_ref: CtxRef, desc: *const TeamDesc, words: u64) -> Result {
    let ctx = ctx_ref.ctx::<S>();
    // SAFETY: the host made the entry, and it does not change while the team exists.
    let (n, me, needs) = unsafe { ((*desc).n_pes, (*desc).my_pe, needs_of(desc)) };
    ctx.announce_batches();
    let mut member = 0;
    while member < n {
        if member != me {
            let at = words + value_at(n, member);
            ctx.await_word(("wait_until", needs), team_word(at), Cmp::Ne, 0)?;
            ctx.await_word(("wait_until", needs), team_word(at + 8), Cmp::Ne, 0)?;
        }
        member += 1;
    }
    Ok(())
}

#[inline(never)]
#[track_caller]
fn arrive<S: Sharing>(ctx_ref: CtxRef, desc: *mut TeamDesc, words: u64) -> Result {
    let ctx = ctx_ref.ctx::<S>();
    // SAFETY: the group holds the lock, so only its leader touches the counters.
    let (n, me) = unsafe {
        let arrivals = &raw mut (*desc).counters.arrivals;
        // Arrivals and waits must alternate. The counters only count, so a second arrival would pass for that of
        // another member.
        let before = Gpu::load_relaxed(arrivals);
        if before != Gpu::load_relaxed(&raw const (*desc).counters.waits) {
            return Err(ctx.fail(Error::TeamBusy, Detail::NONE));
        }
        Gpu::store_relaxed(arrivals, before + 1);
        ((*desc).n_pes, (*desc).my_pe)
    };
    // Stores before the barrier must be visible to members that have passed it.
    Sys::fence();
    let (nodes, at) = (Nodes::of(desc), words + team_words::ARRIVALS);
    let mut k = 1;
    while k < n {
        let to = wrapped(me + k, n);
        let word = team_word(count_for(nodes, to, at));
        ctx.for_node_words().signal_op(word.add(1), pe_of(desc, to))?;
        k += 1;
    }
    // Arrivals must not stay in an open batch, because others may be waiting for them already.
    ctx.announce_batches();
    Ok(())
}

#[inline(never)]
#[track_caller]
fn await_arrivals<S: Sharing>(ctx_ref: CtxRef, desc: *mut TeamDesc, words: u64) -> Result {
    let ctx = ctx_ref.ctx::<S>();
    let nodes = Nodes::of(desc);
    let local = nodes.size(nodes.mine);
    // SAFETY: the group holds the lock, so only its leader touches the counters.
    let (waits, nic) = unsafe {
        let waits = &raw mut (*desc).counters.waits;
        // A wait must follow an arrival of this PE.
        let before = Gpu::load_relaxed(waits);
        if before == Gpu::load_relaxed(&raw const (*desc).counters.arrivals) {
            return Err(ctx.fail(Error::TeamBusy, Detail::NONE));
        }
        Gpu::store_relaxed(waits, before + 1);
        (before + 1, (*desc).n_pes - local)
    };
    // NIC peers and P2P peers have arrived as often as this PE has waited, each at its own counter.
    let wanted = Messages { nic: waits * nic as u64, p2p: waits * (local - 1) as u64 };
    await_counts::<S>(ctx_ref, desc, words + team_words::ARRIVALS, wanted)
}
