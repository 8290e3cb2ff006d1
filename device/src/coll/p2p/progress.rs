//! A collective call in progress, where the heaps of all PEs are near: taking the team, meeting, sending and taking.
#![allow(unsafe_code, reason = "accesses checked addresses of mapped heaps")]

use core::panic::Location;

use crate::abi::DevAddr;
use crate::arch::{self, Scope, Sys};
use crate::coll::call::{WRONG, meeting_at, wrapped};
use crate::coll::fold::{Members, Row, fold};
use crate::coll::kind;
use crate::coll::ll::{self, Senders, Words};
use crate::coll::meeting::{await_word, pe_of, verdict};
use crate::coll::p2p_team::{P2pTeam, Pair};
use crate::coll::reduce::What;
use crate::coll::team_lock::{check_locked, try_lock, unlock};
use crate::copy::{copy, copy_part};
use crate::error::{Detail, Error, Result, outcome, record};
use crate::group::{Group, Thread, agree};

/// What a member of a small call sends to each of the others: `bytes` from `src`, or `step` bytes further on for each receiver,
/// to block `block` of the receiver's slots. Nothing, if there are none.
pub(super) struct Sends {
    pub(super) src: u64,
    pub(super) step: u64,
    pub(super) block: u32,
    pub(super) bytes: u64,
}

/// What it takes from the members from one to the next, whose blocks are the first of its slots: `bytes` of each, to `dst`, and
/// for each further one `step` bytes further on. Its own block comes from `own`, if it is not there.
pub(super) struct Takes {
    pub(super) dst: u64,
    pub(super) step: u64,
    pub(super) members: (u32, u32),
    pub(super) own: Option<u64>,
    pub(super) bytes: u64,
}

/// A call in progress.
#[derive(Clone, Copy)]
pub(super) struct Near<G> {
    group: G,
    ways: P2pTeam,
    /// What this member means by the call.
    pub(super) call_hash: u32,
    /// The heap offset of the slots, two sets of them, and the bytes of one: of a call that may be a small one.
    pub(super) slots: Pair,
    pub(super) n: u32,
    pub(super) me: u32,
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
    pub(super) fn begin(
        group: G,
        ways: P2pTeam,
        fences: bool,
        call_hash: impl FnOnce() -> u32,
        plain: impl FnOnce() -> bool,
        check: impl FnOnce(u32, u32, bool) -> Result,
    ) -> Result<(Self, Result)> {
        let check = |n, me, plain| check(n, me, plain).map(|()| 0);
        let (call, mine) = Self::begin_with(group, ways, fences, call_hash, plain, check)?;
        Ok((call, mine.map(|_| ())))
    }

    /// As [`Near::begin`], with a number of 56 bits that follows from the arguments: one thread makes it, while another asks
    /// for the team.
    #[inline(always)]
    #[track_caller]
    pub(super) fn begin_with(
        group: G,
        ways: P2pTeam,
        fences: bool,
        call_hash: impl FnOnce() -> u32,
        plain: impl FnOnce() -> bool,
        check: impl FnOnce(u32, u32, bool) -> Result<u64>,
    ) -> Result<(Self, Result<u64>)> {
        let desc = ways.desc();
        let ([me, n, start, stride], generation) = ways.entry();
        group.sync();
        // SAFETY: the host made the entry, of whichever team.
        let asks = || if group.helper_warp() { unsafe { try_lock(desc) } } else { 0 };
        // Not asked in one place: where a thread may have to make a fence, it waits for loads even if it has not.
        let word = if fences {
            if group.leader_warp().is_some() {
                Sys::release();
            }
            asks()
        } else {
            asks()
        };
        // All that needs no answer, while it is on its way.
        let call_hash = arch::overlap(call_hash() as u64) as u32;
        let mut slots = (0, 0);
        if !fences {
            slots = ways.scratch();
            slots = (arch::overlap(slots.0), arch::overlap(slots.1));
        }
        // Where the leader's warp does not fence, it checks the arguments. Of another team, they mean nothing.
        let checks = if fences { group.helper_warp() } else { group.leader() };
        let mut mine = None;
        if checks {
            let plain = arch::overlap(plain() as u64) != 0;
            let right = generation == ways.team.generation();
            mine = Some(coded(if right { check(n, me, plain) } else { Ok(0) }));
        }
        let mut told = None;
        if group.helper_warp() {
            // SAFETY: the host made the entry, and this thread has asked.
            told = Some(coded(unsafe { check_locked(ways.state(), desc, generation, word, ways.team) }));
        }
        let (told, mine) = group.broadcast_both(told, mine);
        let (number, pes) = (told >> 8, (start, stride));
        let call = Self { group, ways, call_hash, slots, n, me, pes, number, fenced: fences, given: false };
        // As a rule neither is an error: one branch for both.
        if (told | mine) & 0xff == 0 {
            return Ok((call, Ok(mine >> 8)));
        }
        decoded(told)?;
        Ok((call, decoded(mine)))
    }

    /// Ends the call, if its last barrier has not.
    #[inline(always)]
    pub(super) fn end(self, result: Result) -> Result {
        if result.is_err() {
            // What went wrong, its leader knows.
            if self.group.leader() {
                // SAFETY: the group has the team.
                unsafe { unlock(self.ways.desc(), self.number, result) }
            }
            self.group.sync();
        } else if !self.given {
            self.unlock();
            self.group.sync();
        }
        result
    }

    /// Gives the team back after a call that has not failed. There is a barrier between this and the call's end.
    #[inline(always)]
    fn unlock(self) {
        if self.group.helper_warp() {
            // SAFETY: the group has the team.
            unsafe { unlock(self.ways.desc(), self.number, Ok(())) }
        }
    }

    /// Waits until all members have come, and meant the same, or that something is wrong with their own arguments, which is
    /// `mine`. What all threads of the group stored before, to whatever memory, is there for them.
    #[inline(always)]
    #[track_caller]
    pub(super) fn meet(&mut self, mine: Result) -> Result {
        self.meeting(mine, |_, _| (), false)
    }

    /// The only meeting of a call that has begun with a fence, and stored nothing since. Its barrier gives the team back.
    #[inline(always)]
    #[track_caller]
    pub(super) fn meet_once(&mut self) -> Result {
        self.number += 1;
        let met = match self.group.leader_warp() {
            Some(front) => {
                self.tell(front, Ok(()));
                self.hear(front, Ok(()))
            }
            None => Ok(()),
        };
        self.given = true;
        self.unlock();
        agree(self.group, met)
    }

    /// The last meeting, when all has been done but what the threads that have nothing to do with it do `overlap`, given
    /// their numbers and how many they are: something that other members do not hear of. If there are no such threads, all
    /// do it first.
    #[inline(always)]
    #[track_caller]
    pub(super) fn meet_last(&mut self, overlap: impl Fn(Self, u32, u32)) -> Result {
        let call = *self;
        self.call_hash = self.ways.call_hash(kind::STEP, [0; 4]);
        self.meeting(Ok(()), |rank, of| overlap(call, rank, of), true)
    }

    /// What both of them are made of. The barrier of the `last` one gives the team back.
    #[inline(always)]
    #[track_caller]
    fn meeting(&mut self, mine: Result, overlap: impl Fn(u32, u32), last: bool) -> Result {
        self.number += 1;
        let (rank, of) = self.spare();
        if of == 0 {
            overlap(self.group.rank(), self.group.size());
        }
        self.group.sync();
        let met = match self.group.leader_warp() {
            Some(front) => {
                if !self.fenced {
                    Sys::release();
                }
                self.tell(front, mine);
                self.hear(front, mine)
            }
            None => {
                overlap(rank, of);
                Ok(())
            }
        };
        self.fenced = false;
        self.given = last;
        if last {
            self.unlock();
        }
        agree(self.group, met)
    }

    /// Stores this member's word of the meeting at all others, a lane for each. If it is to speak for what was stored
    /// before, there was a fence of these lanes.
    #[inline(always)]
    fn tell<F: Group>(self, front: F, mine: Result) {
        let (base, stride) = self.ways.near;
        let call_hash = if mine.is_err() { WRONG } else { self.call_hash };
        let at = self.word_of(self.me);
        let mut member = front.rank();
        loop {
            let there = DevAddr(base.wrapping_add(stride.wrapping_mul(self.pe(member) as u64))).add(at).ptr();
            // SAFETY: if there is such a member, this one's word in its heap.
            unsafe { arch::store_if(self.is_other(member), there, self.number << 32 | call_hash as u64) };
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
                await_word(self.ways.state(), self.is_other(member), here, self.number, self.call_hash);
            if how != 0 || heard as u32 != self.call_hash {
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
    pub(super) fn after(self, k: u32) -> u32 {
        wrapped(self.me + k, self.n)
    }

    /// Where this PE's memory at an offset is.
    #[inline(always)]
    fn own(self, offset: u64) -> *mut u8 {
        self.ways.ctx().address(offset)
    }

    /// Where the heap itself is at an offset.
    #[inline(always)]
    pub(super) fn here(self, offset: u64) -> u64 {
        self.ways.heap.0 + offset
    }

    /// Where another member's heap is at an offset.
    #[inline(always)]
    fn theirs(self, member: u32, offset: u64) -> *mut u8 {
        self.ways.ctx().p2p_heap_addr(self.pe(member), offset)
    }

    /// Copies from `src` of this PE to `dst` of a member.
    #[inline(always)]
    pub(super) fn put(self, member: u32, dst: u64, src: u64, bytes: u64) {
        // SAFETY: parts of objects that have been checked, or of the scratch.
        unsafe { copy(self.group, self.theirs(member, dst), self.own(src).cast_const(), bytes as usize) }
    }

    /// Copies a block of `len` elements to a member, each by one thread.
    #[inline(always)]
    pub(super) fn put_strided(self, member: u32, dst: u64, src: u64, strides: Pair, len: u64, size: u64) {
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
    pub(super) fn copy(self, rank: u32, of: u32, dst: u64, src: u64, bytes: u64) {
        if bytes != 0 {
            // SAFETY: as above.
            unsafe { copy_part((rank, of), self.own(dst), self.own(src).cast_const(), bytes as usize, 1) }
        }
    }

    /// True if a call is a small one that brings a member `blocks` blocks of so many bytes.
    #[inline(always)]
    pub(super) fn is_small(self, blocks: u32, bytes: u64) -> bool {
        ll::bytes(bytes).saturating_mul(blocks as u64) <= self.slots.1
    }

    /// The meeting of a small call, with its data. If it fails, this member may have taken some of the data.
    #[inline(always)]
    #[track_caller]
    pub(super) fn exchange(&mut self, mine: Result, sends: Sends, takes: Takes) -> Result {
        self.number += 1;
        if let Some(front) = self.group.leader_warp() {
            self.tell(front, mine);
        }
        if mine.is_ok() && sends.bytes != 0 {
            let words = self.words(sends.bytes);
            let (rank, of, each_one) = self.workers(words.pairs() * (self.n - 1));
            if rank < of {
                let to = self.others(self.slots() + ll::bytes(sends.bytes) * sends.block as u64);
                let (who, src) = ((self.me, self.n), (self.own(sends.src).addr() as u64, sends.step));
                // SAFETY: checked objects of this PE, and slots of the others that are this member's until the next meeting but one.
                unsafe {
                    if each_one {
                        ll::send_one(rank, who, to, self.list(), src, words);
                    } else {
                        ll::send((rank, of), who, to, self.list(), src, words);
                    }
                }
            }
        }
        let met = match self.group.leader_warp() {
            Some(front) => self.hear(front, mine),
            None => Ok(()),
        };
        let (senders, words) = (Senders { members: takes.members, me: self.me }, self.words(takes.bytes));
        let (rank, of, each_one) = self.workers(words.pairs() * senders.others().max(1));
        let mut missed = 0;
        if rank < of && takes.bytes != 0 && mine.is_ok() && met.is_ok() {
            let (from, told) = (self.here(self.slots()), (self.here(self.word_of(0)), self.call_hash as u64));
            // What others write lies in the heap itself.
            let to = (self.here(takes.dst), takes.step);
            let own = || takes.own.map_or(0, |own| self.own(own).addr() as u64);
            // SAFETY: this member's slots of this meeting and the words of the members, and checked objects, or scratch.
            unsafe {
                if !(each_one && ll::take_one(rank, senders, from, own, to, words)) {
                    let threads = (rank, of);
                    let state = self.ways.state();
                    missed = ll::take(threads, takes.members, self.me, from, own(), to, words, told, state);
                }
            }
        }
        if !self.group.any(met.is_err() || missed != 0) {
            return Ok(());
        }
        agree(self.group, met)?;
        Err(self.missing(missed))
    }

    /// This thread's number, and how many they are, of those that send or take so many pairs: those that have nothing to do with
    /// the meeting, if they are enough for one pair each, which is the third.
    #[inline(always)]
    fn workers(self, pairs: u32) -> (u32, u32, bool) {
        let (rank, of) = self.spare();
        if pairs <= of { (rank, of, true) } else { (self.group.rank(), self.group.size(), false) }
    }

    /// This thread's number, and how many they are, of those that have nothing to do with a meeting; no number of theirs, if it has.
    #[inline(always)]
    fn spare(self) -> (u32, u32) {
        let size = self.group.size();
        let spare = size.saturating_sub(self.group.leader_warp_size());
        (self.group.rank().wrapping_sub(size - spare), spare)
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

    /// What lies at an offset of this PE alone.
    #[inline(always)]
    pub(super) fn only(self, offset: u64) -> Row {
        Row { own: self.own(offset).addr() as u64, first: 0, step: 0 }
    }

    /// What lies at an offset of the heap on all members: by their numbers, or by the [list](Near::list) of their PEs.
    #[inline(always)]
    pub(super) fn row(self, offset: u64) -> Row {
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
    pub(super) fn list(self) -> DevAddr {
        match self.pes {
            // SAFETY: the host made the entry.
            (_, 0) => unsafe { (*self.ways.desc()).pes },
            _ => DevAddr(0),
        }
    }

    #[inline(always)]
    pub(super) fn fold(self, what: What, from: Row, to: Row, pes: DevAddr, to_all: bool, bytes: u64) {
        let members = Members { me: self.me, n: self.n, pes };
        // SAFETY: parts of objects that have been checked, and of the slots.
        unsafe { fold(self.group, what.op, what.kind, from, to, members, to_all, bytes) }
    }
}

/// A number of 56 bits or an error, as a word.
#[inline(always)]
fn coded(number: Result<u64>) -> u64 {
    match number {
        Ok(number) => number << 8,
        Err(error) => error as u64,
    }
}

/// What [`coded`] was given.
#[inline(always)]
fn decoded(word: u64) -> Result<u64> {
    outcome(word as u32 & 0xff).map(|()| word >> 8)
}
