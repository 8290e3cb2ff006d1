//! Collective calls where the heaps of all PEs are near: members write to each other's memory.
//!
//! What others write or read lies in the heap itself; objects in segments go the way of [`call`](super::call), as all members
//! see of their own arguments.
//!
//! **Meeting.** Each member stores its word at all others, after a fence, and waits for theirs: a lane for each. The words
//! are those of [`call`](super::call), so that calls of both kinds meet.
//!
//! **Small calls** take one flight, without a fence: see [`flight`]. Data and word travel at once, and what has come goes to
//! the destination after the meeting. So nobody's destination changes before all have come, and no arguments but one's own
//! are believed before.
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

/// A call in progress.
#[derive(Clone, Copy)]
struct Near<G> {
    group: G,
    ways: Ways,
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
    /// Takes the team for this group, and does `check` of the number of members and this one's: what that returned, all threads
    /// get. If it `fences`, what all threads of the group stored before is there for who hears of the next meeting.
    /// [`Near::end`] gives the team back.
    #[inline(always)]
    #[track_caller]
    fn begin(
        group: G,
        ways: Ways,
        fences: bool,
        check: impl FnOnce(u32, u32) -> Result,
    ) -> Result<(Self, Result)> {
        let (call, mine) = Self::begin_with(group, ways, fences, |n, me| check(n, me).map(|()| 0))?;
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
        check: impl FnOnce(u32, u32) -> Result<u64>,
    ) -> Result<(Self, Result<u64>)> {
        group.sync();
        if fences && group.front().is_some() {
            Sys::release();
        }
        // Where the leader's warp does not fence, it checks the arguments meanwhile.
        let checks = if fences { group.aide() } else { group.leader() };
        let (mut team, mut mine) = (None, None);
        if group.aide() || checks {
            let desc = ways.desc();
            // SAFETY: the host made the entry; only atomics touch the word, and what else is read of it does not change while
            // the team is one.
            let (word, [me, n, start, stride], generation) = unsafe {
                let word = if group.aide() { ask(desc) } else { 0 };
                (word, arch::load16(desc.cast()), (*desc).generation)
            };
            if checks {
                // Of another team, they mean nothing.
                let right = generation == ways.team.generation();
                mine = Some(match if right { check(n, me) } else { Ok(0) } {
                    Ok(number) => number << 8,
                    Err(error) => error as u64,
                });
            }
            if group.aide() {
                // SAFETY: as above, and this thread has asked.
                let told = match unsafe { granted(ways.state(), desc, generation, word, ways.team) } {
                    Ok(number) => number << 8,
                    Err(error) => error as u64,
                };
                let field = |value: u32, k: u32| (value as u64 & 0xffff) << (16 * k);
                team = Some((told, field(n, 0) | field(me, 1) | field(start, 2) | field(stride, 3)));
            }
        }
        let ((told, team), mine) = group.cast_both(team, mine);
        outcome(told as u32 & 0xff)?;
        let field = |k: u32| team >> (16 * k) & 0xffff;
        let pes = (field(2) as u32, field(3) as i16 as i32 as u32);
        let (n, me) = (field(0) as u32, field(1) as u32);
        Ok((
            Self { group, ways, n, me, pes, number: told >> 8, fenced: fences, given: false },
            outcome(mine as u32 & 0xff).map(|()| mine >> 8),
        ))
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

    /// Waits until all members have come, and meant the same: `said`, of 31 bits, or that something is wrong with their own
    /// arguments, which is `mine`. What all threads of the group stored before, to whatever memory, is there for them.
    #[inline(always)]
    #[track_caller]
    fn meet(&mut self, said: u32, mine: Result) -> Result {
        self.meeting(said, mine, |_, _| (), false)
    }

    /// The last meeting, when all has been done but what the threads that have nothing to do with it do `meanwhile`, given
    /// their numbers and how many they are: something that other members do not hear of. If there are no such threads, all
    /// do it first.
    #[inline(always)]
    #[track_caller]
    fn meet_last(&mut self, meanwhile: impl Fn(Self, u32, u32)) -> Result {
        let call = *self;
        self.meeting(self.ways.says(kind::STEP, [0; 4]), Ok(()), |rank, of| meanwhile(call, rank, of), true)
    }

    /// What both of them are made of. The barrier of the `last` one gives the team back.
    #[inline(always)]
    #[track_caller]
    fn meeting(&mut self, said: u32, mine: Result, meanwhile: impl Fn(u32, u32), last: bool) -> Result {
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
                self.tell(front, said, mine);
                self.hear(front, said, mine)
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
    fn tell<F: Group>(self, front: F, said: u32, mine: Result) {
        let (base, stride) = self.ways.near;
        let said = if mine.is_err() { WRONG } else { said };
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
    fn hear<F: Group>(self, front: F, said: u32, mine: Result) -> Result {
        // The first member that is not as it should be: how, and what it said.
        let mut odd = u32::MAX;
        let mut member = front.rank();
        let (how, heard) = loop {
            let here = DevAddr(self.ways.heap.0).add(self.word_of(member.min(self.n - 1))).ptr();
            let (how, heard) = await_word(self.ways.state(), self.is_other(member), here, self.number, said);
            if how != 0 || heard as u32 != said {
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
        let (_, most) = self.ways.scratch();
        flight::bytes(bytes).saturating_mul(blocks as u64) <= most
    }

    /// The meeting of a small call, on the way of its data: `bytes` from `src` for each of the others, or `step` bytes further on
    /// for each receiver, go to block `block` of the receiver's slots. Nothing goes, if there are none.
    #[inline(always)]
    #[track_caller]
    #[allow(clippy::too_many_arguments)] // plain words
    fn meet_with(
        &mut self,
        said: u32,
        mine: Result,
        (src, step): (u64, u64),
        block: u32,
        bytes: u64,
    ) -> Result {
        self.number += 1;
        if let Some(front) = self.group.front() {
            self.tell(front, said, mine);
        }
        if mine.is_ok() && bytes != 0 {
            let slots = self.row(self.slots() + flight::bytes(bytes) * block as u64);
            let to = (slots.first, slots.step);
            let threads = (self.group.rank(), self.group.size());
            // SAFETY: checked objects of this PE, and slots of the others that are this member's until the next meeting but one.
            unsafe {
                flight::send(
                    threads,
                    (self.me, self.n),
                    to,
                    self.list(),
                    (self.own(src).addr() as u64, step),
                    self.words(bytes),
                )
            }
        }
        let met = match self.group.front() {
            Some(front) => self.hear(front, said, mine),
            None => Ok(()),
        };
        agree(self.group, met)
    }

    /// Takes what has come with the meeting from the members from `first` to `end`, whose blocks are the first of the slots:
    /// to `dst`, and for each further one `step` bytes further on. This member's own block comes from `own`, unless that is 0.
    /// If it is the `last` step of the call, its barrier gives the team back.
    #[inline(always)]
    #[track_caller]
    fn take(
        &mut self,
        dst: *mut u8,
        step: u64,
        members: (u32, u32),
        own: u64,
        bytes: u64,
        last: bool,
    ) -> Result {
        let end = if bytes == 0 { members.0 } else { members.1 };
        let from = self.own(self.slots()).addr() as u64;
        let threads = (self.group.rank(), self.group.size());
        let to = (dst.addr() as u64, step);
        // SAFETY: this member's slots of the last meeting, and checked objects, or scratch.
        let missed = unsafe {
            flight::take(
                threads,
                (members.0, end),
                self.me,
                from,
                own,
                to,
                self.words(bytes),
                self.ways.state(),
            )
        };
        self.given = last;
        if last {
            self.give();
        }
        if self.group.any(missed != 0) { Err(self.missing(missed)) } else { Ok(()) }
    }

    /// Where a block of this member's begins that is to get to `dst`; 0 if it is there.
    #[inline(always)]
    fn unless_there(self, src: u64, dst: u64) -> u64 {
        if src == dst { 0 } else { self.own(src).addr() as u64 }
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
        let (scratch, bytes) = self.ways.scratch();
        scratch + (self.number & 1) * bytes
    }

    #[inline(always)]
    fn words(self, bytes: u64) -> Words {
        Words { bytes, flag: self.number as u32 }
    }
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
    let said = ways.says(kind::SYNC, [0; 4]);
    let (mut call, _) = Near::begin(group, ways, true, |_, _| Ok(()))?;
    call.number += 1;
    let met = match group.front() {
        Some(front) => {
            call.tell(front, said, Ok(()));
            call.hear(front, said, Ok(()))
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
    let check = |n: u32, _| {
        let ctx = ways.ctx();
        if root >= n {
            let d = Detail { found: root as u64, wanted: n as u64, ..Detail::NONE };
            return Err(record(ctx.parts_ref().state, Error::BadPe, d, site));
        }
        check_spans(site, &ctx, dst, src, dst.0).and_then(|()| check_equal(site, &ctx, src.1, dst.1))
    };
    let says = ways.says(kind::BROADCAST, [dst.0, dst.1, root as u64, 0]);
    let (mut call, mine) = Near::begin(group, ways, is_large(dst.1), check)?;
    let done = broadcast_in(&mut call, says, mine, dst, src, root);
    call.end(done)
}

#[inline(always)]
#[track_caller]
fn broadcast_in<G: Group>(
    call: &mut Near<G>,
    says: u32,
    mine: Result,
    dst: Span,
    src: Span,
    root: u32,
) -> Result {
    let is_root = call.me == root;
    if call.is_small(1, dst.1) {
        call.meet_with(says, mine, (src.0, 0), 0, if is_root { dst.1 } else { 0 })?;
        let own = call.unless_there(src.0, dst.0);
        return call.take(call.own(dst.0), 0, (root, root + 1), own, dst.1, true);
    }
    call.meet(says, mine)?;
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
    let check = |n: u32, me: u32| {
        let ctx = ways.ctx();
        let at = dst.0.wrapping_add(me as u64 * src.1);
        check_spans(site, &ctx, dst, src, at).and_then(|()| check_equal(site, &ctx, dst.1, src.1 * n as u64))
    };
    let says = ways.says(kind::FCOLLECT, [dst.0, dst.1, 0, 0]);
    let (mut call, mine) = Near::begin(group, ways, is_large(dst.1), check)?;
    let done = spread(&mut call, says, mine, dst, src.0, 0, src.1);
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
    // Whole elements.
    let block_of = |n: u32| share_of(share_of(src.1, n), size as u32) * size;
    let check = |n: u32, _| {
        let (ctx, block) = (ways.ctx(), block_of(n));
        check_spans(site, &ctx, dst, src, u64::MAX)
            .and_then(|()| check_equal(site, &ctx, src.1, dst.1))
            .and_then(|()| check_equal(site, &ctx, src.1, n as u64 * block))
            .map(|()| block)
    };
    let says = ways.says(kind::ALLTOALL, [dst.0, dst.1, size, 0]);
    let (mut call, checked) = Near::begin_with(group, ways, is_large(dst.1), check)?;
    // Wrong arguments have no blocks.
    let (block, mine) = (checked.unwrap_or(0), checked.map(|_| ()));
    let done = spread(&mut call, says, mine, dst, src.0, block, block);
    call.end(done)
}

/// Each member's `dst` gets a block from each, which lies at `src` of that one, and `step` bytes further on for each
/// receiver.
#[inline(always)]
#[track_caller]
fn spread<G: Group>(
    call: &mut Near<G>,
    says: u32,
    mine: Result,
    dst: Span,
    src: u64,
    step: u64,
    block: u64,
) -> Result {
    let (at, from) = (dst.0 + call.me as u64 * block, |member: u32| src + member as u64 * step);
    let own = from(call.me);
    if call.is_small(call.n, block) {
        call.meet_with(says, mine, (src, step), call.me, block)?;
        let own = call.unless_there(own, at);
        return call.take(call.own(dst.0), block, (0, call.n), own, block, true);
    }
    call.meet(says, mine)?;
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
    let check =
        |n: u32, _| check_strided(site, &ways.ctx(), (n as u64).saturating_mul(len), dst, src, strides, size);
    let (mut call, mine) = Near::begin(group, ways, true, check)?;
    let says = ways.says(kind::ALLTOALLS, [dst.0, len, folded(strides), size]);
    let done = call.meet(says, mine).and_then(|()| {
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
    let check = |_, _| {
        let ctx = ways.ctx();
        check_spans(site, &ctx, dst, src, dst.0)
            .and_then(|()| check_equal(site, &ctx, src.1, dst.1))
            .and_then(|()| what.check(site, &ctx, dst, src))
    };
    let says = ways.says(kind::REDUCE, [dst.0, dst.1, src.0, what.word()]);
    let (mut call, mine) = Near::begin(group, ways, is_large(src.1), check)?;
    let done = reduce_in(&mut call, says, mine, what, dst, src);
    call.end(done)
}

/// Small: each member gets all sources, and combines them. Otherwise each combines a share of the elements, from the
/// sources themselves, and writes it to all; nobody else reads that share of any source.
#[inline(always)]
#[track_caller]
fn reduce_in<G: Group>(
    call: &mut Near<G>,
    says: u32,
    mine: Result,
    what: What,
    dst: Span,
    src: Span,
) -> Result {
    let bytes = src.1;
    if call.is_small(call.n, bytes) {
        call.meet_with(says, mine, (src.0, 0), call.me, bytes)?;
        // The sources in the second half of the scratch, each at a multiple of 16.
        let ((scratch, set), step) = (call.ways.scratch(), bytes.next_multiple_of(16));
        let came = call.own(scratch + 2 * set);
        call.take(came, step, (0, call.n), 0, bytes, false)?;
        let from = Row { first: came.addr() as u64, step, ..call.only(src.0) };
        call.fold(what, from, call.only(dst.0), DevAddr(0), false, bytes);
        return Ok(());
    }
    call.meet(says, mine)?;
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
    let check = |n: u32, me: u32| {
        let ctx = ways.ctx();
        let may = if dst.0 == own(me) { src.0 } else { u64::MAX };
        check_spans(site, &ctx, dst, src, may)
            .and_then(|()| check_equal(site, &ctx, src.1, dst.1 * n as u64))
            .and_then(|()| what.check(site, &ctx, dst, src))
    };
    let (mut call, mine) = Near::begin(group, ways, true, check)?;
    let own = own(call.me);
    // Where the destination is a block of the source, it is another one on each member.
    let place = if dst.0 == own { u64::MAX } else { dst.0 };
    let says = ways.says(kind::REDUCE_SCATTER, [place, dst.1, src.0, what.word()]);
    let done = call.meet(says, mine).and_then(|()| {
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
        let (base, bytes) = self.ways.near;
        let (start, step) = match self.pes {
            (_, 0) => (0, 1),
            (start, stride) => (start as u64, stride as i32 as i64 as u64),
        };
        let first = base.wrapping_add(start.wrapping_mul(bytes)).wrapping_add(offset);
        Row { first, step: step.wrapping_mul(bytes), ..self.only(offset) }
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
