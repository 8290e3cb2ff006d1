//! What all collective calls are made of: meetings, messages and fetches.
//!
//! **Meeting.** Each member tells a word about its call to all others, and compares those that come: either all proceed
//! or none does. In a large team with a NIC between its members it goes in rounds: each tells the member 2^r places on, and
//! what it passes on is "all I heard of say the same" or "these two differ"; after the last round every member has heard of
//! all, by way of others. The words of a meeting are numbered and lie in one of two sets by turns: a member that is one
//! meeting ahead writes to the other set, and nobody can be two ahead, since a meeting needs all.
//!
//! **Message.** Data with a signal that adds 1 to the receiver's counter of messages, which is never reset. A call knows
//! how many messages it gets; none of a later call can be among them, since that one begins with a meeting.
//!
//! **Fetch.** A get into this PE's scratch of the team. Nobody else touches it.
//!
//! A call that fails after its meeting leaves the counters out of step: the team is of no use then, and says so.
//!
//! The functions that are not inlined take plain words, and find the context in memory: a kernel with collective calls
//! needs no stack, and all its calls share them.
#![allow(unsafe_code, reason = "updates the words and counters of a team")]

use core::marker::PhantomData;
use core::panic::Location;

use crate::abi::{TeamDesc, team_word, team_words};
use crate::arch::{self, Gpu, Scope, Sys, SysWord};
use crate::copy::copy;
use crate::ctx::Ctx;
use crate::ctx_ref::CtxRef;
use crate::error::{Detail, Error, Result, Site};
use crate::group::{Group, agree};
use crate::heap::{Signal, Sym, SymSlice};
use crate::sharing::Sharing;
use crate::signal::SignalOp;
use crate::team::Team;
use crate::wait::Watch;
use crate::wait_until::Cmp;

use super::team_lock::{check_locked, try_lock, unlock};

/// What a member says in a meeting when its own arguments are wrong.
pub(super) const WRONG: u32 = u32::MAX >> 1;
/// Most members that tell each other, rather than go in rounds, where a NIC is between some.
const MOST: u32 = 32;
/// Set where two members differ; their numbers follow, 15 bits each.
const DIFFER: u32 = 1 << 31;

/// A collective call of a team, in progress.
#[derive(Clone, Copy)]
pub(crate) struct Call<G, S> {
    pub(crate) group: G,
    pub(crate) ctx_ref: CtxRef,
    desc: *mut TeamDesc,
    /// Heap offset of the team's words.
    words: u64,
    /// Members.
    pub(crate) n: u32,
    /// This one's number.
    pub(crate) me: u32,
    _sharing: PhantomData<S>,
}

impl<G: Group, S: Sharing> Call<G, S> {
    /// Takes the team for this group. [`Call::end`] gives it back.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn begin(group: G, ctx_ref: CtxRef, team: Team) -> Result<Self> {
        group.sync();
        let taken = if group.leader() { take_team::<S>(ctx_ref, team) } else { Ok(()) };
        agree(group, taken)?;
        let ctx = ctx_ref.ctx::<S>();
        let Some(desc) = ctx.team_desc(team) else { return Err(Error::InGroup) };
        let p = ctx.parts_ref();
        let words = p.team_words + p.team_bytes * team.slot() as u64;
        // SAFETY: the host made it; it does not change while the team is one.
        let (n, me) = unsafe { ((*desc).n_pes, (*desc).my_pe) };
        Ok(Self { group, ctx_ref, desc, words, n, me, _sharing: PhantomData })
    }

    /// Ends the call.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn end(self, result: Result) -> Result {
        self.group.sync();
        if self.group.leader() {
            give_team(self.desc, result);
        }
        result
    }

    /// Waits until all members have come to this step, and meant the same by it: `said`, of 31 bits. `mine` is what the
    /// leader found wrong with its own arguments: then no member proceeds.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn meet(self, call_hash: u32, mine: Result) -> Result {
        self.group.sync();
        let met = if self.group.leader() {
            meet::<S>(self.ctx_ref, self.desc, self.words, call_hash, mine)
        } else {
            Ok(())
        };
        agree(self.group, met)
    }

    /// The PE of a member.
    #[inline(always)]
    pub(crate) fn pe(self, member: u32) -> u32 {
        pe_of(self.desc, member)
    }

    /// The member `k` places after this one, for `k` up to the number of members.
    #[inline(always)]
    pub(crate) fn after(self, k: u32) -> u32 {
        wrapped(self.me + k, self.n)
    }

    /// Sends `bytes` from `src` of this PE to `dst` of a member, and a message.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn deliver(self, member: u32, dst: u64, src: u64, bytes: u64) -> Result {
        let signal = self.words + team_words::MESSAGES;
        deliver::<G, S>(self.group, self.ctx_ref, self.pe(member), dst, src, bytes, signal)
    }

    /// Starts to copy `bytes` from `src` of a member to `dst` of this PE.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn fetch(self, member: u32, dst: u64, src: u64, bytes: u64) -> Result {
        fetch::<G, S>(self.group, self.ctx_ref, self.pe(member), dst, src, bytes)
    }

    /// Waits until what this PE has delivered and fetched is complete.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn settle(self) -> Result {
        settle::<G, S>(self.group, self.ctx_ref, self.desc)
    }

    /// Waits for this many messages.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn take(self, messages: u64) -> Result {
        let took = if self.group.leader() {
            take_messages::<S>(self.ctx_ref, self.desc, self.words, messages)
        } else {
            Ok(())
        };
        agree(self.group, took)
    }

    /// Copies within this PE's heap.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn copy(self, dst: u64, src: u64, bytes: u64) {
        let ctx = self.ctx_ref.ctx::<S>();
        // SAFETY: the call has checked its arguments.
        unsafe { copy_bytes(self.group, ctx.address(dst), ctx.address(src), bytes) };
        self.group.sync();
    }

    /// Heap offset of the part of the team's scratch that these calls have, and its bytes.
    #[inline(always)]
    pub(crate) fn scratch(self) -> (u64, u64) {
        let ctx = self.ctx_ref.ctx::<S>();
        let (offset, bytes) = scratch_of(&ctx);
        // The first half is what others write to.
        let theirs = if ctx.p2p_heaps() { bytes / 2 } else { 0 };
        (self.words + offset + theirs, bytes - theirs)
    }

    /// Gives each member two numbers, of which `mine` makes those for member `j`. [`Call::heard`] reads what came.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn tell(self, mine: impl Fn(u32) -> (u64, u64)) -> Result {
        let told = if self.group.leader() {
            let mut told = Ok(());
            let mut k = 1;
            while k < self.n {
                let to = self.after(k);
                let at = self.words + value_at(self.n_pes(), self.me);
                if told.is_ok() {
                    told = tell::<S>(self.ctx_ref, self.pe(to), at, mine(to));
                }
                k += 1;
            }
            if told.is_ok() { await_values::<S>(self.ctx_ref, self.words, self.n, self.me) } else { told }
        } else {
            Ok(())
        };
        agree(self.group, told)
    }

    #[inline(always)]
    fn n_pes(self) -> u32 {
        self.ctx_ref.ctx::<S>().n_pes()
    }

    /// What another member has told this one.
    #[inline(always)]
    pub(crate) fn heard(self, member: u32) -> (u64, u64) {
        let ctx = self.ctx_ref.ctx::<S>();
        let at = ctx.address::<u64>(self.words + value_at(self.n_pes(), member));
        // SAFETY: words of the runtime's own in this PE's heap, aligned; nobody writes them until the next call.
        unsafe { (u64::load_acquire(at) - 1, u64::load_acquire(at.add(1)) - 1) }
    }

    /// Forgets what it was told, for the next call that tells.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn forget(self) {
        self.group.sync();
        let ctx = self.ctx_ref.ctx::<S>();
        let mut i = self.group.rank();
        while i < self.n {
            let at = ctx.address::<u64>(self.words + value_at(self.n_pes(), i));
            // SAFETY: as above; the members tell again only after the next meeting.
            unsafe {
                u64::store_release(at, 0);
                u64::store_release(at.add(1), 0);
            }
            i += self.group.size();
        }
        self.group.sync();
    }

    /// Arrives at the team's split barrier.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn arrive(self) -> Result {
        let arrived =
            if self.group.leader() { arrive::<S>(self.ctx_ref, self.desc, self.words) } else { Ok(()) };
        agree(self.group, arrived)
    }

    /// Waits at the team's split barrier.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn await_arrivals(self) -> Result {
        let came = if self.group.leader() {
            await_arrivals::<S>(self.ctx_ref, self.desc, self.words)
        } else {
            Ok(())
        };
        agree(self.group, came)
    }

    /// What a member says about the step `kind` with these arguments.
    #[inline(always)]
    pub(crate) fn call_hash(self, kind: u32, arguments: [u64; 4]) -> u32 {
        // SAFETY: the host made it; it does not change while the team is one.
        call_hash(unsafe { (*self.desc).generation }, kind, arguments)
    }
}

/// What a member of the team with this generation says about the step `kind` with these arguments.
#[inline(always)]
pub(super) fn call_hash(generation: u32, kind: u32, arguments: [u64; 4]) -> u32 {
    let [a, b, c, d] = arguments;
    // The upper bits of a sum of products: none of them waits for another.
    let sum = ((generation as u64) << 32 | kind as u64)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .wrapping_add(a.wrapping_mul(0xbf58_476d_1ce4_e5b9))
        .wrapping_add(b.wrapping_mul(0x94d0_49bb_1331_11eb))
        .wrapping_add(c.wrapping_mul(0xd6e8_feb8_6659_fd93))
        .wrapping_add(d.wrapping_mul(0xff51_afd7_ed55_8ccd));
    // One less than the largest, which is `WRONG`.
    ((sum >> 33) as u32).min(WRONG - 1)
}

/// Offset of a team's scratch behind its words, and its bytes.
#[inline(always)]
pub(super) fn scratch_of<S>(ctx: &Ctx<S>) -> (u64, u64) {
    let p = ctx.parts_ref();
    let words = team_words::scratch(p.n_pes);
    (words, p.team_bytes - words)
}

/// Copies bytes, in words where both ends allow it.
///
/// # Safety
/// Both ends are valid for so many bytes.
#[inline(always)]
unsafe fn copy_bytes<G: Group>(group: G, to: *mut u8, from: *mut u8, bytes: u64) {
    // SAFETY: the caller's promise.
    unsafe { copy(group, to, from.cast_const(), bytes as usize) }
}

#[inline(always)]
pub(crate) fn wrapped(member: u32, n: u32) -> u32 {
    if member >= n { member - n } else { member }
}

/// Where a member's numbers come, in the team's words.
#[inline(always)]
fn value_at(n_pes: u32, member: u32) -> u64 {
    team_words::values(n_pes) + member as u64 * 16
}

#[inline(always)]
fn pe_of(desc: *mut TeamDesc, member: u32) -> u32 {
    // SAFETY: `desc` is of a team with that member.
    unsafe {
        match (*desc).stride {
            0 => arch::read((*desc).pes.ptr::<u32>().add(member as usize)),
            stride => (*desc).start.wrapping_add(member.wrapping_mul(stride)),
        }
    }
}

/// A word of the runtime's own in every heap.
#[inline(always)]
fn word(offset: u64) -> Sym<Signal> {
    // SAFETY: the host has reserved it, at the same offset on all members.
    unsafe { Sym::from_raw(offset) }
}

#[inline(always)]
fn span(offset: u64, bytes: u64) -> SymSlice<u8> {
    // SAFETY: parts of objects that the call's arguments name, which it has checked, or of the team's scratch.
    unsafe { SymSlice::from_raw(offset, bytes as usize) }
}

#[inline(never)]
#[track_caller]
fn take_team<S: Sharing>(ctx_ref: CtxRef, team: Team) -> Result {
    let ctx = ctx_ref.ctx::<S>();
    let Some(desc) = ctx.team_entry(team) else {
        let d = Detail { found: team.slot() as u64, wanted: team.generation() as u64, ..Detail::NONE };
        return Err(ctx.fail(Error::BadTeam, d));
    };
    // SAFETY: the host made the entry. The fence: the counters are as the last group left them.
    unsafe {
        let word = try_lock(desc);
        let generation = arch::read(&raw const (*desc).generation);
        check_locked(ctx.parts_ref().state, desc, generation, word, team)?;
    }
    Gpu::fence();
    Ok(())
}

#[inline(never)]
fn give_team(desc: *mut TeamDesc, result: Result) {
    // SAFETY: the group has the team. The fence: its counters are for the next one.
    unsafe {
        let number = Gpu::load_relaxed(&raw const (*desc).word.word) >> team_word::SHIFT;
        Gpu::fence();
        unlock(desc, number, result);
    }
}

/// The number of the next meeting.
///
/// # Safety
/// The caller's group has the team, and this is its leader.
#[inline(always)]
unsafe fn next_meeting(desc: *mut TeamDesc) -> u64 {
    // SAFETY: the caller's promise: nobody else changes the number.
    unsafe {
        let word = &raw mut (*desc).word.word;
        let number = (Gpu::load_relaxed(word) >> team_word::SHIFT) + 1;
        Gpu::store_relaxed(word, number << team_word::SHIFT | team_word::BUSY);
        number
    }
}

/// What is known after hearing `theirs`, from `from`.
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

#[inline(never)]
#[track_caller]
fn meet<S: Sharing>(
    ctx_ref: CtxRef,
    desc: *mut TeamDesc,
    words: u64,
    call_hash: u32,
    mine: Result,
) -> Result {
    let (ctx, site) = (ctx_ref.ctx::<S>(), Location::caller());
    // SAFETY: the group has the team, and this is its leader.
    let (number, n, me) = unsafe { (next_meeting(desc), (*desc).n_pes, (*desc).my_pe) };
    // What the group stored before is there for who gets it afterwards.
    Sys::fence();
    let call_hash = if mine.is_err() { WRONG } else { call_hash };
    let known = if n <= MOST || ctx.p2p_heaps() {
        tell_all(&ctx, desc, words, number, call_hash, site)?
    } else {
        in_rounds(&ctx, desc, words, number, call_hash, site)?
    };
    mine?;
    if known & DIFFER == 0 {
        return Ok(());
    }
    let (one, other) = (known >> 15 & 0x7fff, known & 0x7fff);
    // Not this PE itself, as the one that differs.
    let (one, other) = if one == me { (other, one) } else { (one, other) };
    let d =
        Detail { peer: pe_of(desc, one), found: pe_of(desc, other) as u64, wanted: number, ..Detail::NONE };
    Err(ctx.fail(Error::TeamMismatch, d))
}

/// A meeting in which each tells all: what is known after it.
#[inline(always)]
fn tell_all<S: Sharing>(
    ctx: &Ctx<S>,
    desc: *mut TeamDesc,
    words: u64,
    number: u64,
    call_hash: u32,
    site: Site,
) -> Result<u32> {
    // SAFETY: the host made it.
    let (n, me) = unsafe { ((*desc).n_pes, (*desc).my_pe) };
    let at = |member: u32| words + meeting_at(number, n, member);
    let mut k = 1;
    while k < n {
        let to = pe_of(desc, wrapped(me + k, n));
        ctx.signal_op(word(at(me)), SignalOp::Set, number << 32 | call_hash as u64, to)?;
        k += 1;
    }
    let (mut known, mut member) = (call_hash, 0);
    while member < n {
        if member != me {
            let theirs = await_number(ctx, at(member), number as u32, pe_of(desc, member), site)?;
            known = combined(known, theirs, me, member);
        }
        member += 1;
    }
    Ok(known)
}

/// Where what a member of a team of `n` says in a meeting comes, in the team's words.
#[inline(always)]
pub(super) fn meeting_at(number: u64, n: u32, member: u32) -> u64 {
    let set = (number & 1) * n as u64;
    team_words::MEETINGS + (set + member as u64) * 8
}

/// A meeting in rounds: what is known after it.
#[inline(always)]
fn in_rounds<S: Sharing>(
    ctx: &Ctx<S>,
    desc: *mut TeamDesc,
    words: u64,
    number: u64,
    call_hash: u32,
    site: Site,
) -> Result<u32> {
    // SAFETY: the host made it.
    let (n, me) = unsafe { ((*desc).n_pes, (*desc).my_pe) };
    let set = words + team_words::IN_ROUNDS + (number & 1) * (team_words::ROUNDS as u64 * 8);
    let (mut known, mut round) = (call_hash, 0);
    while round < team_words::ROUNDS && 1u64 << round < n as u64 {
        let step = 1u32 << round;
        let (to, from) = (wrapped(me + step, n), wrapped(me + n - step, n));
        let at = set + round as u64 * 8;
        ctx.signal_op(word(at), SignalOp::Set, number << 32 | known as u64, pe_of(desc, to))?;
        let theirs = await_number(ctx, at, number as u32, pe_of(desc, from), site)?;
        known = combined(known, theirs, me, from);
        round += 1;
    }
    Ok(known)
}

/// Waits for the word of meeting `number`; returns what it says.
#[inline(always)]
fn await_number<S: Sharing>(ctx: &Ctx<S>, offset: u64, number: u32, pe: u32, site: Site) -> Result<u32> {
    let (at, state) = (ctx.address::<u64>(offset), ctx.parts_ref().state);
    ctx.announce_batches();
    let mut watch = Watch::new(state);
    loop {
        // SAFETY: a word of the runtime's own in this PE's heap, aligned, which remote atomics write.
        let found = unsafe { Sys::load_relaxed(at) };
        if (found >> 32) as u32 == number {
            Sys::acquire();
            return Ok(found as u32);
        }
        match watch.turn() {
            Ok(()) => {}
            Err(Error::Timeout) => {
                let d =
                    Detail { peer: pe, found: found >> 32, wanted: number as u64, offset, ..Detail::NONE };
                return Err(crate::error::record(state, Error::WaitTimeout, d, site));
            }
            Err(other) => return Err(other),
        }
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
    ctx_ref.ctx::<S>().put_signal_nbi(group, dst, src, word(signal), SignalOp::Add, 1, pe)
}

#[inline(never)]
#[track_caller]
fn fetch<G: Group, S: Sharing>(group: G, ctx_ref: CtxRef, pe: u32, dst: u64, src: u64, bytes: u64) -> Result {
    ctx_ref.ctx::<S>().get_nbi(group, span(dst, bytes), span(src, bytes), pe)
}

/// Starts to copy `bytes` from `src` of this PE to `dst` of another, without a message.
#[inline(never)]
#[track_caller]
pub(crate) fn place<G: Group, S: Sharing>(
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
fn settle<G: Group, S: Sharing>(group: G, ctx_ref: CtxRef, desc: *mut TeamDesc) -> Result {
    let (ctx, site) = (ctx_ref.ctx::<S>(), Location::caller());
    // SAFETY: the group has the team.
    let n = unsafe { (*desc).n_pes };
    let mut mine = Ok(());
    let mut member = group.rank();
    while member < n {
        let pe = pe_of(desc, member);
        let (data, signals) = (ctx.qp(pe), ctx.atomic_qp(pe));
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
fn take_messages<S: Sharing>(ctx_ref: CtxRef, desc: *mut TeamDesc, words: u64, messages: u64) -> Result {
    // SAFETY: the group has the team, so that its leader alone touches the counter.
    let wanted = unsafe {
        let counter = &raw mut (*desc).counters.taken;
        let wanted = Gpu::load_relaxed(counter) + messages;
        Gpu::store_relaxed(counter, wanted);
        wanted
    };
    let ctx = ctx_ref.ctx::<S>();
    // What others wait for must not be held back, even if nothing is waited for here.
    ctx.announce_batches();
    ctx.await_word(word(words + team_words::MESSAGES), Cmp::Ge, wanted).map(|_| ())
}

/// Two numbers for another member: at its end each is one more, since 0 says that none has come.
#[inline(never)]
#[track_caller]
fn tell<S: Sharing>(ctx_ref: CtxRef, pe: u32, at: u64, (a, b): (u64, u64)) -> Result {
    let ctx = ctx_ref.ctx::<S>();
    ctx.signal_op(word(at), SignalOp::Set, a + 1, pe)?;
    ctx.signal_op(word(at + 8), SignalOp::Set, b + 1, pe)
}

#[inline(never)]
#[track_caller]
fn await_values<S: Sharing>(ctx_ref: CtxRef, words: u64, n: u32, me: u32) -> Result {
    let ctx = ctx_ref.ctx::<S>();
    ctx.announce_batches();
    let mut member = 0;
    while member < n {
        if member != me {
            let at = words + value_at(ctx.n_pes(), member);
            ctx.await_word(word(at), Cmp::Ne, 0)?;
            ctx.await_word(word(at + 8), Cmp::Ne, 0)?;
        }
        member += 1;
    }
    Ok(())
}

#[inline(never)]
#[track_caller]
fn arrive<S: Sharing>(ctx_ref: CtxRef, desc: *mut TeamDesc, words: u64) -> Result {
    let ctx = ctx_ref.ctx::<S>();
    // SAFETY: the group has the team, so that its leader alone touches the counters.
    let (n, me) = unsafe {
        let arrivals = &raw mut (*desc).counters.arrivals;
        let before = Gpu::load_relaxed(arrivals);
        if before != Gpu::load_relaxed(&raw const (*desc).counters.waits) {
            return Err(ctx.fail(Error::TeamBusy, Detail::NONE));
        }
        Gpu::store_relaxed(arrivals, before + 1);
        ((*desc).n_pes, (*desc).my_pe)
    };
    Sys::fence();
    let mut k = 1;
    while k < n {
        ctx.signal_op(word(words + team_words::ARRIVALS), SignalOp::Add, 1, pe_of(desc, wrapped(me + k, n)))?;
        k += 1;
    }
    ctx.announce_batches();
    Ok(())
}

#[inline(never)]
#[track_caller]
fn await_arrivals<S: Sharing>(ctx_ref: CtxRef, desc: *mut TeamDesc, words: u64) -> Result {
    let ctx = ctx_ref.ctx::<S>();
    // SAFETY: as above.
    let wanted = unsafe {
        let waits = &raw mut (*desc).counters.waits;
        let before = Gpu::load_relaxed(waits);
        if before == Gpu::load_relaxed(&raw const (*desc).counters.arrivals) {
            return Err(ctx.fail(Error::TeamBusy, Detail::NONE));
        }
        Gpu::store_relaxed(waits, before + 1);
        (before + 1) * ((*desc).n_pes as u64 - 1)
    };
    ctx.await_word(word(words + team_words::ARRIVALS), Cmp::Ge, wanted).map(|_| ())
}
