//! Collective calls where the heaps of all PEs are near: members write to each other's memory.
//!
//! What others write or read lies in the heap itself; objects in segments go the way of [`call`](super::call), as all members
//! see of their own arguments.
//!
//! **Meeting.** Each member stores its word at all others, after a fence, and waits for theirs: a lane for each. The words
//! are those of [`call`](super::call), so that calls of both kinds meet.
//!
//! **Small calls** take one flight, without a fence: see [`flight`]. Data and word travel at once. Each member writes to its own
//! destination alone, by its own arguments, while it hears the others; if they mean something else, what is there then is of no
//! use.
//!
//! **Others** meet, write straight to the destinations, or read from the sources, and meet again.
//!
//! A fence takes longer than all else that a member does by itself, so that another warp asks for the team meanwhile.
//!
//! Kernels pass their context as pairs of words ([`Ways`]), and nothing of it is read from memory.

use core::panic::Location;

use super::call::{WRONG, meeting_at, wrapped};
use super::flight::{self, Words};
use super::fold::{Members, Row, fold};
use super::hold::{ask, give, granted};
use super::kind;
use super::meeting::{await_word, pe_of, verdict};
use super::reduce::{What, cut};
use super::spread::{Span, check_equal, check_spans};
use super::strided::{check_strided, folded};
use super::ways::{Pair, Ways};
use crate::abi::{DevAddr, team_words};
use crate::arch::{self, Scope, Sys};
use crate::copy::{copy, copy_part};
use crate::error::{Detail, Error, Result, outcome, record};
use crate::group::{Group, Thread, agree};
use crate::team::Team;

/// What a member of a small call sends to each of the others: `bytes` from `src`, or `step` bytes further on for each receiver,
/// to block `block` of the receiver's slots. Nothing, if there are none.
struct Sends {
    src: u64,
    step: u64,
    block: u32,
    bytes: u64,
}

/// What it takes from the members from one to the next, whose blocks are the first of its slots: `bytes` of each, to `dst`, and
/// for each further one `step` bytes further on. Its own block comes from `own`, if it is not there.
struct Takes {
    dst: u64,
    step: u64,
    members: (u32, u32),
    own: Option<u64>,
    bytes: u64,
}

/// A call in progress.
#[derive(Clone, Copy)]
struct Near<G> {
    group: G,
    ways: Ways,
    /// What this member means by the call.
    said: u32,
    /// The heap offset of the slots, two sets of them, and the bytes of one: of a call that may be a small one.
    slots: Pair,
    n: u32,
    me: u32,
    /// The PE of member 0, and the step from one to the next.
    pes: (u32, u32),
    /// The team's last meeting.
    number: u64,
    /// True if there was a fence at the beginning, and nothing has been stored since.
    fenced: bool,
    /// True if the team has been given back; should the call fail after that, it is again.
    given: bool,
}

impl<G: Group> Near<G> {
    /// Takes the team for this group, and does `check` of the number of members, this one's, and whether the arguments are
    /// `plain`; what that returned, all threads get. `says` is what this member means by the call. If it `fences`, what all threads
    /// of the group stored before is there for who hears of the next meeting. [`Near::end`] gives the team back.
    #[inline(always)]
    #[track_caller]
    fn begin(
        group: G,
        ways: Ways,
        fences: bool,
        says: impl FnOnce() -> u32,
        plain: impl FnOnce() -> bool,
        check: impl FnOnce(u32, u32, bool) -> Result,
    ) -> Result<(Self, Result)> {
        let check = |n, me, plain| check(n, me, plain).map(|()| 0);
        let (call, mine) = Self::begin_with(group, ways, fences, says, plain, check)?;
        Ok((call, mine.map(|_| ())))
    }

    /// As [`Near::begin`], with a number of 56 bits that follows from the arguments: one thread makes it, while another asks
    /// for the team.
    #[inline(always)]
    #[track_caller]
    fn begin_with(
        group: G,
        ways: Ways,
        fences: bool,
        says: impl FnOnce() -> u32,
        plain: impl FnOnce() -> bool,
        check: impl FnOnce(u32, u32, bool) -> Result<u64>,
    ) -> Result<(Self, Result<u64>)> {
        let desc = ways.desc();
        // SAFETY: the host made the entry, of whichever team; what is read does not change while the team is one.
        let ([me, n, start, stride], [generation, ..]) =
            unsafe { (arch::load16(desc.cast()), arch::load16(desc.cast::<[u32; 4]>().add(1))) };
        group.sync();
        if fences && group.front().is_some() {
            Sys::release();
        }
        // SAFETY: as above.
        let word = if group.aide() { unsafe { ask(desc) } } else { 0 };
        // All that needs no answer, while it is on its way.
        let said = arch::meanwhile(says() as u64) as u32;
        let mut slots = (0, 0);
        if !fences {
            slots = ways.scratch();
            slots = (arch::meanwhile(slots.0), arch::meanwhile(slots.1));
        }
        // Where the leader's warp does not fence, it checks the arguments. Of another team, they mean nothing.
        let mut mine = None;
        if if fences { group.aide() } else { group.leader() } {
            let plain = arch::meanwhile(plain() as u64) != 0;
            let right = generation == ways.team.generation();
            mine = Some(match if right { check(n, me, plain) } else { Ok(0) } {
                Ok(number) => number << 8,
                Err(error) => error as u64,
            });
        }
        let mut told = None;
        if group.aide() {
            // SAFETY: the host made the entry, and this thread has asked.
            told = Some(match unsafe { granted(ways.state(), desc, generation, word, ways.team) } {
                Ok(number) => number << 8,
                Err(error) => error as u64,
            });
        }
        let (told, mine) = group.cast_both(told, mine);
        outcome(told as u32 & 0xff)?;
        let (number, pes) = (told >> 8, (start, stride));
        let call = Self { group, ways, said, slots, n, me, pes, number, fenced: fences, given: false };
        Ok((call, outcome(mine as u32 & 0xff).map(|()| mine >> 8)))
    }

    /// Ends the call, if its last barrier has not.
    #[inline(always)]
    fn end(self, result: Result) -> Result {
        if result.is_err() {
            // What went wrong, its leader knows.
            if self.group.leader() {
                // SAFETY: the group has the team.
                unsafe { give(self.ways.desc(), self.number, result) }
            }
            self.group.sync();
        } else if !self.given {
            self.give();
            self.group.sync();
        }
        result
    }

    /// Gives the team back after a call that has not failed. There is a barrier between this and the call's end.
    #[inline(always)]
    fn give(self) {
        if self.group.aide() {
            // SAFETY: the group has the team.
            unsafe { give(self.ways.desc(), self.number, Ok(())) }
        }
    }

    /// Waits until all members have come, and meant the same, or that something is wrong with their own arguments, which is
    /// `mine`. What all threads of the group stored before, to whatever memory, is there for them.
    #[inline(always)]
    #[track_caller]
    fn meet(&mut self, mine: Result) -> Result {
        self.meeting(mine, |_, _| (), false)
    }

    /// The last meeting, when all has been done but what the threads that have nothing to do with it do `meanwhile`, given
    /// their numbers and how many they are: something that other members do not hear of. If there are no such threads, all
    /// do it first.
    #[inline(always)]
    #[track_caller]
    fn meet_last(&mut self, meanwhile: impl Fn(Self, u32, u32)) -> Result {
        let call = *self;
        self.said = self.ways.says(kind::STEP, [0; 4]);
        self.meeting(Ok(()), |rank, of| meanwhile(call, rank, of), true)
    }

    /// What both of them are made of. The barrier of the `last` one gives the team back.
    #[inline(always)]
    #[track_caller]
    fn meeting(&mut self, mine: Result, meanwhile: impl Fn(u32, u32), last: bool) -> Result {
        self.number += 1;
        let (rank, size) = (self.group.rank(), self.group.size());
        let spare = size.saturating_sub(self.group.front_size());
        if spare == 0 {
            meanwhile(rank, size);
        }
        self.group.sync();
        let met = match self.group.front() {
            Some(front) => {
                if !self.fenced {
                    Sys::release();
                }
                self.tell(front, mine);
                self.hear(front, mine)
            }
            None => {
                meanwhile(rank - (size - spare), spare);
                Ok(())
            }
        };
        self.fenced = false;
        self.given = last;
        if last {
            self.give();
        }
        agree(self.group, met)
    }

    /// Stores this member's word of the meeting at all others, a lane for each. If it is to speak for what was stored
    /// before, there was a fence of these lanes.
    #[inline(always)]
    fn tell<F: Group>(self, front: F, mine: Result) {
        let (base, stride) = self.ways.near;
        let said = if mine.is_err() { WRONG } else { self.said };
        let at = self.word_of(self.me);
        let mut member = front.rank();
        loop {
            let there = DevAddr(base.wrapping_add(stride.wrapping_mul(self.pe(member) as u64))).add(at).ptr();
            // SAFETY: if there is such a member, this one's word in its heap.
            unsafe { arch::store_if(self.is_other(member), there, self.number << 32 | said as u64) };
            member += front.size();
            if member >= self.n {
                return;
            }
        }
    }

    #[inline(always)]
    fn is_other(self, member: u32) -> bool {
        member < self.n && member != self.me
    }

    /// The heap offset of a member's word of this meeting.
    #[inline(always)]
    fn word_of(self, member: u32) -> u64 {
        self.ways.words() + meeting_at(self.number, self.n, member)
    }

    /// Waits for the words of the others, a lane for each, and compares them.
    #[inline(always)]
    #[track_caller]
    fn hear<F: Group>(self, front: F, mine: Result) -> Result {
        // The first member that is not as it should be: how, and what it said.
        let mut odd = u32::MAX;
        let mut member = front.rank();
        let (how, heard) = loop {
            let here = DevAddr(self.here(self.word_of(member.min(self.n - 1)))).ptr();
            let (how, heard) =
                await_word(self.ways.state(), self.is_other(member), here, self.number, self.said);
            if how != 0 || heard as u32 != self.said {
                odd = member;
            }
            member += front.size();
            if member >= self.n || odd != u32::MAX {
                break (how, heard);
            }
        };
        if !front.any(odd != u32::MAX || mine.is_err()) {
            return Ok(());
        }
        let team = (self.pes.0, self.pes.1, self.n, self.me);
        let (state, words, site) = (self.ways.state(), self.ways.words(), Location::caller());
        verdict(front, state, words, self.ways.desc(), team, odd, (how, heard), self.number, mine, site)
    }

    /// The PE of a member.
    #[inline(always)]
    fn pe(self, member: u32) -> u32 {
        pe_of(self.ways.desc(), self.pes, member.min(self.n - 1))
    }

    #[inline(always)]
    fn after(self, k: u32) -> u32 {
        wrapped(self.me + k, self.n)
    }

    /// Where this PE's memory at an offset is.
    #[inline(always)]
    fn own(self, offset: u64) -> *mut u8 {
        self.ways.ctx().address(offset)
    }

    /// Where the heap itself is at an offset.
    #[inline(always)]
    fn here(self, offset: u64) -> u64 {
        self.ways.heap.0 + offset
    }

    /// Where another member's heap is at an offset.
    #[inline(always)]
    fn theirs(self, member: u32, offset: u64) -> *mut u8 {
        self.ways.ctx().near(self.pe(member), offset)
    }

    /// Copies from `src` of this PE to `dst` of a member.
    #[inline(always)]
    fn put(self, member: u32, dst: u64, src: u64, bytes: u64) {
        // SAFETY: parts of objects that have been checked, or of the scratch.
        unsafe { copy(self.group, self.theirs(member, dst), self.own(src).cast_const(), bytes as usize) }
    }

    /// Copies a block of `len` elements to a member, each by one thread.
    #[inline(always)]
    fn put_strided(self, member: u32, dst: u64, src: u64, strides: Pair, len: u64, size: u64) {
        let (to, from) = (self.me as u64 * len, member as u64 * len);
        let there = if member == self.me { self.own(dst) } else { self.theirs(member, dst) };
        let here = self.own(src);
        let mut i = self.group.rank() as u64;
        while i < len {
            let (at, of) = ((to + i) * strides.0 * size, (from + i) * strides.1 * size);
            let (there, here) = (there.wrapping_add(at as usize), here.wrapping_add(of as usize));
            // SAFETY: elements of objects that have been checked.
            unsafe { copy(Thread, there, here.cast_const(), size as usize) };
            i += self.group.size() as u64;
        }
    }

    /// Copies within this PE's memory, as one of `of` threads.
    #[inline(always)]
    fn copy(self, rank: u32, of: u32, dst: u64, src: u64, bytes: u64) {
        if bytes != 0 {
            // SAFETY: as above.
            unsafe { copy_part((rank, of), self.own(dst), self.own(src).cast_const(), bytes as usize, 1) }
        }
    }

    /// True if a call is a small one that brings a member `blocks` blocks of so many bytes.
    #[inline(always)]
    fn is_small(self, blocks: u32, bytes: u64) -> bool {
        flight::bytes(bytes).saturating_mul(blocks as u64) <= self.slots.1
    }

    /// The meeting of a small call, with its data. If it fails, this member may have taken some of it.
    #[inline(always)]
    #[track_caller]
    fn exchange(&mut self, mine: Result, sends: Sends, takes: Takes) -> Result {
        self.number += 1;
        let (rank, size) = (self.group.rank(), self.group.size());
        if let Some(front) = self.group.front() {
            self.tell(front, mine);
        }
        if mine.is_ok() && sends.bytes != 0 {
            let to = self.others(self.slots() + flight::bytes(sends.bytes) * sends.block as u64);
            let src = (self.own(sends.src).addr() as u64, sends.step);
            // SAFETY: checked objects of this PE, and slots of the others that are this member's until the next meeting but one.
            unsafe {
                flight::send((rank, size), (self.me, self.n), to, self.list(), src, self.words(sends.bytes))
            }
        }
        let met = match self.group.front() {
            Some(front) => self.hear(front, mine),
            None => Ok(()),
        };
        let ((first, end), words) = (takes.members, self.words(takes.bytes));
        let spare = size.saturating_sub(self.group.front_size());
        // Threads that have nothing to do with the meeting take what there is, if they are enough.
        let (rank, of) = if words.pairs() * (end - first) <= spare {
            (rank.wrapping_sub(size - spare), spare)
        } else {
            (rank, size)
        };
        let mut missed = 0;
        if rank < of && takes.bytes != 0 && mine.is_ok() && met.is_ok() {
            let (from, told) = (self.here(self.slots()), self.here(self.word_of(0)));
            let to = (self.own(takes.dst).addr() as u64, takes.step);
            let own = takes.own.map_or(0, |own| self.own(own).addr() as u64);
            // SAFETY: this member's slots of this meeting and the words of the members, and checked objects, or scratch.
            missed = unsafe {
                flight::take(
                    (rank, of),
                    (first, end),
                    self.me,
                    from,
                    own,
                    to,
                    words,
                    (told, self.said as u64),
                    self.ways.state(),
                )
            };
        }
        if !self.group.any(met.is_err() || missed != 0) {
            return Ok(());
        }
        agree(self.group, met)?;
        Err(self.missing(missed))
    }

    /// Why not all has come, when some thread of the group has `missed` data of a member that came: the leader records it.
    #[cold]
    #[track_caller]
    fn missing(self, missed: u64) -> Error {
        if self.group.any(missed & 0xff == Error::Aborted as u64) {
            return Error::Aborted;
        }
        let mut member = 0;
        while member < self.n && !self.group.any(missed != 0 && missed >> 8 == member as u64) {
            member += 1;
        }
        if !self.group.leader() {
            return Error::InGroup;
        }
        let (wanted, offset) = (self.number as u32 as u64, self.slots());
        let d = Detail { peer: self.pe(member), found: wanted - 1, wanted, offset, ..Detail::NONE };
        record(self.ways.state(), Error::WaitTimeout, d, Location::caller())
    }

    /// The heap offset of the slots of the last meeting. There are two sets by turns, as of words.
    #[inline(always)]
    fn slots(self) -> u64 {
        self.slots.0 + (self.number & 1) * self.slots.1
    }

    #[inline(always)]
    fn words(self, bytes: u64) -> Words {
        Words { bytes, flag: self.number as u32 }
    }
}

/// Where a block begins that is to get to `dst`; none if it is there.
#[inline(always)]
fn unless_there(src: u64, dst: u64) -> Option<u64> {
    if src == dst { None } else { Some(src) }
}

/// `bytes / n`. A division of 64 bits takes a GPU its time.
#[inline(always)]
fn share_of(bytes: u64, n: u32) -> u64 {
    match u32::try_from(bytes) {
        Ok(bytes) => (bytes / n.max(1)) as u64,
        Err(_) => bytes / n.max(1) as u64,
    }
}

/// True if a call that brings so many bytes to a member is none of the small ones in any team.
#[inline(always)]
fn is_large(bytes: u64) -> bool {
    flight::bytes(bytes) > team_words::MOST_SLOTS
}

/// [`Ctx::team_sync`].
#[inline(never)]
#[track_caller]
pub(super) fn sync<G: Group>(
    group: G,
    heap: Pair,
    near: Pair,
    rest: Pair,
    teams: Pair,
    sizes: Pair,
    team: Team,
) -> Result {
    let ways = Ways { heap, near, rest, teams, sizes, team };
    let says = || ways.says(kind::SYNC, [0; 4]);
    let (mut call, _) = Near::begin(group, ways, true, says, || true, |_, _, _| Ok(()))?;
    call.number += 1;
    let met = match group.front() {
        Some(front) => {
            call.tell(front, Ok(()));
            call.hear(front, Ok(()))
        }
        None => Ok(()),
    };
    call.given = true;
    call.give();
    let met = agree(group, met);
    call.end(met)
}

/// [`Ctx::broadcast`].
#[inline(never)]
#[track_caller]
#[allow(clippy::too_many_arguments)] // plain words
pub(super) fn broadcast<G: Group>(
    group: G,
    heap: Pair,
    near: Pair,
    rest: Pair,
    teams: Pair,
    sizes: Pair,
    team: Team,
    dst: Span,
    src: Span,
    root: u32,
) -> Result {
    let (ways, site) = (Ways { heap, near, rest, teams, sizes, team }, Location::caller());
    let plain = || src.1 == dst.1 && ways.are_plain(dst, src, dst.0);
    let check = |n: u32, _, plain| {
        let ctx = ways.ctx();
        if root >= n {
            let d = Detail { found: root as u64, wanted: n as u64, ..Detail::NONE };
            return Err(record(ctx.parts_ref().state, Error::BadPe, d, site));
        }
        if plain {
            return Ok(());
        }
        check_spans(site, &ctx, dst, src, dst.0).and_then(|()| check_equal(site, &ctx, src.1, dst.1))
    };
    let says = || ways.says(kind::BROADCAST, [dst.0, dst.1, root as u64, 0]);
    let (mut call, mine) = Near::begin(group, ways, is_large(dst.1), says, plain, check)?;
    let done = broadcast_in(&mut call, mine, dst, src, root);
    call.end(done)
}

#[inline(always)]
#[track_caller]
fn broadcast_in<G: Group>(call: &mut Near<G>, mine: Result, dst: Span, src: Span, root: u32) -> Result {
    let is_root = call.me == root;
    if call.is_small(1, dst.1) {
        let sends = Sends { src: src.0, step: 0, block: 0, bytes: if is_root { dst.1 } else { 0 } };
        let (members, own) = ((root, root.saturating_add(1)), unless_there(src.0, dst.0));
        let takes = Takes { dst: dst.0, step: 0, members, own, bytes: dst.1 };
        return call.exchange(mine, sends, takes);
    }
    call.meet(mine)?;
    if is_root {
        let mut k = 1;
        while k < call.n {
            call.put(call.after(k), dst.0, src.0, src.1);
            k += 1;
        }
    }
    let own = if is_root && dst.0 != src.0 { src.1 } else { 0 };
    call.meet_last(|call, rank, of| call.copy(rank, of, dst.0, src.0, own))
}

/// [`Ctx::fcollect`].
#[inline(never)]
#[track_caller]
#[allow(clippy::too_many_arguments)] // plain words
pub(super) fn fcollect<G: Group>(
    group: G,
    heap: Pair,
    near: Pair,
    rest: Pair,
    teams: Pair,
    sizes: Pair,
    team: Team,
    dst: Span,
    src: Span,
) -> Result {
    let (ways, site) = (Ways { heap, near, rest, teams, sizes, team }, Location::caller());
    let plain = || ways.are_plain(dst, src, u64::MAX);
    let check = |n: u32, me: u32, plain| {
        if plain && dst.1 == src.1 * n as u64 {
            return Ok(());
        }
        let ctx = ways.ctx();
        let at = dst.0.wrapping_add(me as u64 * src.1);
        check_spans(site, &ctx, dst, src, at).and_then(|()| check_equal(site, &ctx, dst.1, src.1 * n as u64))
    };
    let says = || ways.says(kind::FCOLLECT, [dst.0, dst.1, 0, 0]);
    let (mut call, mine) = Near::begin(group, ways, is_large(dst.1), says, plain, check)?;
    let done = spread(&mut call, mine, dst, src.0, 0, src.1);
    call.end(done)
}

/// [`Ctx::alltoall`].
#[inline(never)]
#[track_caller]
#[allow(clippy::too_many_arguments)] // plain words
pub(super) fn alltoall<G: Group>(
    group: G,
    heap: Pair,
    near: Pair,
    rest: Pair,
    teams: Pair,
    sizes: Pair,
    team: Team,
    dst: Span,
    src: Span,
    size: u64,
) -> Result {
    let (ways, site) = (Ways { heap, near, rest, teams, sizes, team }, Location::caller());
    let plain = || src.1 == dst.1 && ways.are_plain(dst, src, u64::MAX);
    // Whole elements.
    let block_of = |n: u32| share_of(share_of(src.1, n), size as u32) * size;
    let check = |n: u32, _, plain| {
        let (ctx, block) = (ways.ctx(), block_of(n));
        if plain && src.1 == n as u64 * block {
            return Ok(block);
        }
        check_spans(site, &ctx, dst, src, u64::MAX)
            .and_then(|()| check_equal(site, &ctx, src.1, dst.1))
            .and_then(|()| check_equal(site, &ctx, src.1, n as u64 * block))
            .map(|()| block)
    };
    let says = || ways.says(kind::ALLTOALL, [dst.0, dst.1, size, 0]);
    let (mut call, checked) = Near::begin_with(group, ways, is_large(dst.1), says, plain, check)?;
    // Wrong arguments have no blocks.
    let (block, mine) = (checked.unwrap_or(0), checked.map(|_| ()));
    let done = spread(&mut call, mine, dst, src.0, block, block);
    call.end(done)
}

/// Each member's `dst` gets a block from each, which lies at `src` of that one, and `step` bytes further on for each
/// receiver.
#[inline(always)]
#[track_caller]
fn spread<G: Group>(call: &mut Near<G>, mine: Result, dst: Span, src: u64, step: u64, block: u64) -> Result {
    let (at, from) = (dst.0 + call.me as u64 * block, |member: u32| src + member as u64 * step);
    let own = from(call.me);
    if call.is_small(call.n, block) {
        let sends = Sends { src, step, block: call.me, bytes: block };
        let own = unless_there(own, at);
        let takes = Takes { dst: dst.0, step: block, members: (0, call.n), own, bytes: block };
        return call.exchange(mine, sends, takes);
    }
    call.meet(mine)?;
    let mut k = 1;
    while k < call.n {
        let member = call.after(k);
        call.put(member, at, from(member), block);
        k += 1;
    }
    let bytes = if at == own { 0 } else { block };
    call.meet_last(|call, rank, of| call.copy(rank, of, at, own, bytes))
}

/// [`Ctx::alltoalls`].
#[inline(never)]
#[track_caller]
#[allow(clippy::too_many_arguments)] // plain words
pub(super) fn alltoalls<G: Group>(
    group: G,
    heap: Pair,
    near: Pair,
    rest: Pair,
    teams: Pair,
    sizes: Pair,
    team: Team,
    dst: Span,
    src: Span,
    strides: Pair,
    len: u64,
    size: u64,
) -> Result {
    let (ways, site) = (Ways { heap, near, rest, teams, sizes, team }, Location::caller());
    let check = |n: u32, _, _| {
        check_strided(site, &ways.ctx(), (n as u64).saturating_mul(len), dst, src, strides, size)
    };
    let says = || ways.says(kind::ALLTOALLS, [dst.0, len, folded(strides), size]);
    let (mut call, mine) = Near::begin(group, ways, true, says, || false, check)?;
    let done = call.meet(mine).and_then(|()| {
        let mut k = 0;
        while k < call.n {
            call.put_strided(call.after(k), dst.0, src.0, strides, len, size);
            k += 1;
        }
        call.meet_last(|_, _, _| ())
    });
    call.end(done)
}

/// [`Ctx::reduce`].
#[inline(never)]
#[track_caller]
#[allow(clippy::too_many_arguments)] // plain words
pub(super) fn reduce<G: Group>(
    group: G,
    heap: Pair,
    near: Pair,
    rest: Pair,
    teams: Pair,
    sizes: Pair,
    team: Team,
    what: What,
    dst: Span,
    src: Span,
) -> Result {
    let (ways, site) = (Ways { heap, near, rest, teams, sizes, team }, Location::caller());
    let plain = || src.1 == dst.1 && ways.are_plain(dst, src, dst.0);
    let check = |_, _, plain| {
        let ctx = ways.ctx();
        if plain {
            return what.check(site, &ctx, dst, src);
        }
        check_spans(site, &ctx, dst, src, dst.0)
            .and_then(|()| check_equal(site, &ctx, src.1, dst.1))
            .and_then(|()| what.check(site, &ctx, dst, src))
    };
    let says = || ways.says(kind::REDUCE, [dst.0, dst.1, src.0, what.word()]);
    let (mut call, mine) = Near::begin(group, ways, is_large(src.1), says, plain, check)?;
    let done = reduce_in(&mut call, mine, what, dst, src);
    call.end(done)
}

/// Small: each member gets all sources, and combines them. Otherwise each combines a share of the elements, from the
/// sources themselves, and writes it to all; nobody else reads that share of any source.
#[inline(always)]
#[track_caller]
fn reduce_in<G: Group>(call: &mut Near<G>, mine: Result, what: What, dst: Span, src: Span) -> Result {
    let bytes = src.1;
    if call.is_small(call.n, bytes) {
        // The sources in the second half of the scratch, each at a multiple of 16.
        let ((scratch, set), step) = (call.slots, bytes.next_multiple_of(16));
        let came = scratch + 2 * set;
        let sends = Sends { src: src.0, step: 0, block: call.me, bytes };
        call.exchange(mine, sends, Takes { dst: came, step, members: (0, call.n), own: None, bytes })?;
        let from = Row { first: call.here(came), step, ..call.only(src.0) };
        call.fold(what, from, call.only(dst.0), DevAddr(0), false, bytes);
        return Ok(());
    }
    call.meet(mine)?;
    let (me, n) = (call.me as u64, call.n as u64);
    let (begin, end) = (cut(bytes, me, n), cut(bytes, me + 1, n));
    let (from, to) = (call.row(src.0 + begin), call.row(dst.0 + begin));
    call.fold(what, from, to, call.list(), true, end - begin);
    call.meet_last(|_, _, _| ())
}

/// [`Ctx::reduce_scatter`].
#[inline(never)]
#[track_caller]
#[allow(clippy::too_many_arguments)] // plain words
pub(super) fn reduce_scatter<G: Group>(
    group: G,
    heap: Pair,
    near: Pair,
    rest: Pair,
    teams: Pair,
    sizes: Pair,
    team: Team,
    what: What,
    dst: Span,
    src: Span,
) -> Result {
    let (ways, site) = (Ways { heap, near, rest, teams, sizes, team }, Location::caller());
    let own = |me: u32| src.0.wrapping_add(me as u64 * dst.1);
    let check = |n: u32, me: u32, _| {
        let ctx = ways.ctx();
        let may = if dst.0 == own(me) { src.0 } else { u64::MAX };
        check_spans(site, &ctx, dst, src, may)
            .and_then(|()| check_equal(site, &ctx, src.1, dst.1 * n as u64))
            .and_then(|()| what.check(site, &ctx, dst, src))
    };
    let (mut call, mine) = Near::begin(group, ways, true, || 0, || false, check)?;
    let own = own(call.me);
    // Where the destination is a block of the source, it is another one on each member.
    let place = if dst.0 == own { u64::MAX } else { dst.0 };
    call.said = ways.says(kind::REDUCE_SCATTER, [place, dst.1, src.0, what.word()]);
    let done = call.meet(mine).and_then(|()| {
        call.fold(what, call.row(own), call.only(dst.0), call.list(), false, dst.1);
        // The source may be reused once all have read it.
        call.meet_last(|_, _, _| ())
    });
    call.end(done)
}

impl<G: Group> Near<G> {
    /// What lies at an offset of this PE alone.
    #[inline(always)]
    fn only(self, offset: u64) -> Row {
        Row { own: self.own(offset).addr() as u64, first: 0, step: 0 }
    }

    /// What lies at an offset of the heap on all members: by their numbers, or by the [list](Near::list) of their PEs.
    #[inline(always)]
    fn row(self, offset: u64) -> Row {
        let (first, step) = self.others(offset);
        Row { first, step, ..self.only(offset) }
    }

    /// Where that is on the first member, and how far from each to the next.
    #[inline(always)]
    fn others(self, offset: u64) -> Pair {
        let (base, bytes) = self.ways.near;
        let (start, step) = match self.pes {
            (_, 0) => (0, 1),
            (start, stride) => (start as u64, stride as i32 as i64 as u64),
        };
        (base.wrapping_add(start.wrapping_mul(bytes)).wrapping_add(offset), step.wrapping_mul(bytes))
    }

    /// The list of the members' PEs, if they lie at no equal distance.
    #[inline(always)]
    fn list(self) -> DevAddr {
        match self.pes {
            // SAFETY: the host made the entry.
            (_, 0) => unsafe { (*self.ways.desc()).pes },
            _ => DevAddr(0),
        }
    }

    #[inline(always)]
    fn fold(self, what: What, from: Row, to: Row, pes: DevAddr, to_all: bool, bytes: u64) {
        let members = Members { me: self.me, n: self.n, pes };
        // SAFETY: parts of objects that have been checked, and of the slots.
        unsafe { fold(self.group, what.op, what.kind, from, to, members, to_all, bytes) }
    }
}
