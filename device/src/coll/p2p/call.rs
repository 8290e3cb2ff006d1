//! Steps of a collective call of a P2P team: lock the team, check in, send and receive.

#![allow(unsafe_code, reason = "accesses checked addresses of mapped heaps")]

use core::panic::Location;

use crate::abi::{DevAddr, team_words};
use crate::arch::{self, Scope, Sys};
use crate::coll::args::{Reduction, Strides, WRONG, check_in_word, kind, pe_of, wrapped};
use crate::coll::check_in::{Mismatch, await_word, outcome_of};
use crate::coll::fold::{self, Fold, MemberAddrs};
use crate::coll::ll::{self, LlBlock, Receiver, Reducer, Sender, Senders};
use crate::coll::p2p_team::P2pTeam;
use crate::coll::spread::{self, Spread};
use crate::coll::team_lock::{check_locked, restore, try_lock, unlock};
use crate::error::{Detail, Error, Result, outcome, record};
use crate::group::{Group, Thread, agree};
use crate::rma::copy::{copy, copy_part};
use crate::wait::lost;

/// Number of bytes per thread from which several blocks combine the data of more than two members by
/// [`run_long`](fold::run_long).
const LONG_FOLD: u64 = 128;

/// Data that a member of a small call sends: `bytes` bytes to block `block` of each receiver's slots. The data for
/// member 0 is at `src`, that for the next ones at multiples of `step` from there. If `bytes` is 0, the member sends
/// nothing.
pub(super) struct Sent {
    pub(super) src: u64,
    pub(super) step: u64,
    pub(super) block: u32,
    pub(super) bytes: u64,
}

/// Data that a member of a small call receives: `bytes` bytes from each of a range of members. The first block is
/// stored at `dst`, the next ones at multiples of `step` from there. The member's own block is copied from `own`,
/// unless it is in place already.
pub(super) struct Received {
    pub(super) dst: u64,
    pub(super) step: u64,
    pub(super) members: (u32, u32),
    pub(super) own: Option<u64>,
    pub(super) bytes: u64,
}

/// A collective call of a P2P team in progress. Its group holds the team lock.
#[derive(Clone, Copy)]
pub(super) struct P2pCall<G> {
    pub(super) group: G,
    pub(super) team: P2pTeam,
    pub(super) call_hash: u32,
    /// Heap offset of the two sets of LL slots, and length of one set in bytes. (0, 0) in calls that are always large.
    pub(super) slots: (u64, u64),
    pub(super) n: u32,
    pub(super) me: u32,
    /// PE of member 0, and stride to the next member.
    pes: (u32, u32),
    /// Number of the last check-in.
    number: u64,
    /// Whether a fence already covers all stores of the group.
    fenced: bool,
    /// Whether the team has already been unlocked. A call that fails later unlocks it again.
    unlocked: bool,
}

impl<G: Group> P2pCall<G> {
    /// Locks the team for this group and checks the arguments. [`P2pCall::end`] unlocks it.
    ///
    /// `check` gets the number of members, this member's rank, and the result of `plain`. All threads get its result.
    /// With `fences`, the next check-in also publishes all earlier stores of the group to the other members.
    #[inline(always)]
    #[track_caller]
    pub(super) fn begin(
        group: G,
        team: P2pTeam,
        fences: bool,
        call_hash: impl FnOnce() -> u32,
        plain: impl FnOnce() -> bool,
        check: impl FnOnce(u32, u32, bool) -> Result,
    ) -> Result<(Self, Result)> {
        let check = |n, me, plain| check(n, me, plain).map(|()| 0);
        let (call, mine) = Self::begin_with(group, team, fences, call_hash, plain, check)?;
        Ok((call, mine.map(|_| ())))
    }

    /// Starts a call like [`P2pCall::begin`], and also returns the 56-bit number that `check` computed.
    ///
    /// One thread checks while another locks, so their latencies overlap.
    #[inline(always)]
    #[track_caller]
    pub(super) fn begin_with(
        group: G,
        team: P2pTeam,
        fences: bool,
        call_hash: impl FnOnce() -> u32,
        plain: impl FnOnce() -> bool,
        check: impl FnOnce(u32, u32, bool) -> Result<u64>,
    ) -> Result<(Self, Result<u64>)> {
        let desc = team.desc();
        let ([me, n, start, stride], generation) = team.entry();
        group.sync();
        // SAFETY: the host made the entry, of whichever team.
        let lock = || if group.helper_warp() { unsafe { try_lock(desc) } } else { 0 };
        // Two calls of `lock`: a thread that may have to fence would wait for its loads even without a fence.
        let word = if fences {
            if group.leader_warp().is_some() {
                Sys::release();
            }
            lock()
        } else {
            lock()
        };
        // The work below does not need the answer of the lock, which is still on its way.
        let call_hash = arch::overlap(call_hash() as u64) as u32;
        let mut slots = (0, 0);
        if !fences {
            slots = team.scratch(n);
            slots = (arch::overlap(slots.0), arch::overlap(slots.1));
        }
        // The leader warp checks unless it fences. Arguments for a stale team handle are not checked.
        let checks = if fences { group.helper_warp() } else { group.leader() };
        let mut mine = None;
        if checks {
            let plain = arch::overlap(plain() as u64) != 0;
            let current = generation == team.team.generation();
            mine = Some(encode(if current { check(n, me, plain) } else { Ok(0) }));
        }
        let mut lock_result = None;
        if group.helper_warp() {
            // SAFETY: the host made the entry, and this thread called `try_lock`.
            lock_result =
                Some(encode(unsafe { check_locked(team.state(), desc, generation, word, team.team) }));
        }
        let (lock_result, mine) = group.broadcast_both(lock_result, mine);
        let (number, pes) = (lock_result >> 8, (start, stride));
        let call =
            Self { group, team, call_hash, slots, n, me, pes, number, fenced: fences, unlocked: false };
        // One branch covers the common case.
        if (lock_result | mine) & 0xff == 0 {
            return Ok((call, Ok(mine >> 8)));
        }
        decode(lock_result)?;
        Ok((call, decode(mine)))
    }

    /// Starts a small call of a kernel that has done nothing before, whose arguments the host has checked. Returns `None`
    /// if the launch `follows_failure`, in which case it must not make the call.
    #[inline(always)]
    #[track_caller]
    pub(super) fn begin_small(
        group: G,
        team: P2pTeam,
        call_hash: u32,
        follows_failure: impl FnOnce() -> bool,
    ) -> Result<Option<Self>> {
        /// Stands for a call that is not made: no error code, and no number of a check-in has so many bits.
        const NOT_MADE: u64 = u64::MAX;
        let desc = team.desc();
        let ([me, n, start, stride], generation) = team.entry();
        let mut lock_result = None;
        if group.helper_warp() {
            // SAFETY: the host made the entry, of whichever team.
            let word = unsafe { try_lock(desc) };
            // Loads the status while the lock's answer is on its way.
            lock_result = Some(if follows_failure() {
                // SAFETY: this thread called `try_lock`, which returned `word`.
                unsafe { restore(desc, word) };
                NOT_MADE
            } else {
                // SAFETY: the host made the entry, and this thread called `try_lock`.
                encode(unsafe { check_locked(team.state(), desc, generation, word, team.team) })
            });
        }
        let (lock_result, _) = group.broadcast_both(lock_result, lock_result);
        if lock_result == NOT_MADE {
            return Ok(None);
        }
        let (number, pes) = (decode(lock_result)?, (start, stride));
        let slots = team.scratch(n);
        Ok(Some(Self { group, team, call_hash, slots, n, me, pes, number, fenced: false, unlocked: false }))
    }

    /// Finishes the call and unlocks the team, unless the last check-in has already done so.
    #[inline(always)]
    pub(super) fn end(self, result: Result) -> Result {
        if result.is_err() {
            // Only the leader knows the error.
            if self.group.leader() {
                // SAFETY: the group has the team.
                unsafe { unlock(self.team.desc(), self.number, result) }
            }
            self.group.sync();
        } else if !self.unlocked {
            self.unlock();
            self.group.sync();
        }
        result
    }

    /// Unlocks the team after a successful call. The caller executes a group barrier afterwards.
    #[inline(always)]
    fn unlock(self) {
        if self.group.helper_warp() {
            // SAFETY: the group has the team.
            unsafe { unlock(self.team.desc(), self.number, Ok(())) }
        }
    }

    /// Waits until all members have checked in with the same call hash. `mine` is the result of the local argument
    /// check; if the check failed on any member, no member proceeds. All earlier stores of the group are visible to the
    /// members afterwards.
    #[inline(always)]
    #[track_caller]
    pub(super) fn check_in(&mut self, mine: Result) -> Result {
        self.check_in_beside(mine, |_, _| (), false)
    }

    /// Runs the only check-in of a call that started with a fence and has stored nothing since. Unlocks the team as
    /// well.
    #[inline(always)]
    #[track_caller]
    pub(super) fn check_in_once(&mut self) -> Result {
        self.number += 1;
        let checked_in = match self.group.leader_warp() {
            Some(leaders) => {
                self.send_hash(leaders, Ok(()));
                self.compare_hashes(leaders, Ok(()))
            }
            None => Ok(()),
        };
        self.unlocked = true;
        self.unlock();
        agree(self.group, checked_in)
    }

    /// Runs the last check-in of a call. Meanwhile, threads outside of the leader warp run `overlap` with their rank
    /// and number; if there are none, all threads run it before. Its stores need not be visible to other members.
    #[inline(always)]
    #[track_caller]
    pub(super) fn check_in_last(&mut self, overlap: impl Fn(Self, u32, u32)) -> Result {
        let call = *self;
        self.call_hash = self.team.call_hash(self.group, kind::STEP, [0; 4]);
        self.check_in_beside(Ok(()), |rank, of| overlap(call, rank, of), true)
    }

    /// Implements [`P2pCall::check_in`] and [`P2pCall::check_in_last`]. With `last`, unlocks the team as well.
    #[inline(always)]
    #[track_caller]
    fn check_in_beside(&mut self, mine: Result, overlap: impl Fn(u32, u32), last: bool) -> Result {
        self.number += 1;
        let (rank, of) = self.spare();
        if of == 0 {
            overlap(self.group.rank(), self.group.size());
        }
        self.group.sync();
        let checked_in = match self.group.leader_warp() {
            Some(leaders) => {
                if !self.fenced {
                    Sys::release();
                }
                self.send_hash(leaders, mine);
                self.compare_hashes(leaders, mine)
            }
            None => {
                overlap(rank, of);
                Ok(())
            }
        };
        self.fenced = false;
        self.unlocked = last;
        if last {
            self.unlock();
        }
        agree(self.group, checked_in)
    }

    /// Stores this member's check-in word at all other members, one lane for each. To publish earlier stores, the
    /// caller must have issued a fence in these lanes.
    #[inline(always)]
    fn send_hash<F: Group>(self, leaders: F, mine: Result) {
        let (base, stride) = (self.team.p2p_base, self.team.p2p_stride);
        let call_hash = if mine.is_err() { WRONG } else { self.call_hash };
        let at = self.word_of(self.me);
        let mut member = leaders.rank();
        loop {
            let there = DevAddr(base.wrapping_add(stride.wrapping_mul(self.pe(member) as u64))).add(at).ptr();
            // SAFETY: the word of this member in the heap of an existing member; `store_if` skips others.
            unsafe { arch::store_if(self.is_other(member), there, self.number << 32 | call_hash as u64) };
            member += leaders.size();
            if member >= self.n {
                return;
            }
        }
    }

    #[inline(always)]
    fn is_other(self, member: u32) -> bool {
        member < self.n && member != self.me
    }

    /// Returns the heap offset of a member's word for the current check-in.
    #[inline(always)]
    fn word_of(self, member: u32) -> u64 {
        self.team.words() + check_in_word(self.number, self.n, member)
    }

    /// Waits for the check-in words of the other members, one lane for each, and compares their hashes.
    #[inline(always)]
    #[track_caller]
    fn compare_hashes<F: Group>(self, leaders: F, mine: Result) -> Result {
        // This lane's first member that did not come or differs, the error code of the wait, and the word found.
        let mut odd = u32::MAX;
        let mut member = leaders.rank();
        let (how, heard) = loop {
            let here = DevAddr(self.here(self.word_of(member.min(self.n - 1)))).ptr();
            let waits = (self.team.needs(), self.is_other(member));
            let (how, heard) = await_word(self.team.state(), waits, here, self.number, self.call_hash);
            if how != 0 || heard as u32 != self.call_hash {
                odd = member;
            }
            member += leaders.size();
            if member >= self.n || odd != u32::MAX {
                break (how, heard);
            }
        };
        if !leaders.any(odd != u32::MAX || mine.is_err()) {
            return Ok(());
        }
        let mismatch = Mismatch {
            state: self.team.state(),
            desc: self.team.desc(),
            words: self.team.words(),
            pes: self.pes,
            members: (self.n, self.me),
            number: self.number,
            call_hash: self.call_hash,
            odd,
            found: (how, heard),
        };
        outcome_of(leaders, mine, Location::caller(), mismatch)
    }

    #[inline(always)]
    fn pe(self, member: u32) -> u32 {
        pe_of(self.team.desc(), self.pes, member.min(self.n - 1))
    }

    /// Returns the member that follows this one at distance `k` in the ring of all members. `k` is at most their
    /// number.
    #[inline(always)]
    pub(super) fn after(self, k: u32) -> u32 {
        wrapped(self.me + k, self.n)
    }

    /// Returns the address of an offset in the heap or a segment of this PE.
    #[inline(always)]
    fn own(self, offset: u64) -> *mut u8 {
        self.team.ctx().address(offset)
    }

    /// Returns the address of an offset in the heap of this PE.
    #[inline(always)]
    pub(super) fn here(self, offset: u64) -> u64 {
        self.team.heap + offset
    }

    /// Returns the address of an offset in the heap of another member.
    #[inline(always)]
    fn theirs(self, member: u32, offset: u64) -> *mut u8 {
        self.team.ctx().p2p_heap_addr(self.pe(member), offset)
    }

    /// Returns the address of an offset in the heap or a segment of this PE.
    #[inline(always)]
    pub(super) fn address(self, offset: u64) -> u64 {
        self.own(offset).addr() as u64
    }

    /// Returns the address of an offset in the heap of another member.
    #[inline(always)]
    pub(super) fn address_at(self, member: u32, offset: u64) -> u64 {
        self.theirs(member, offset).addr() as u64
    }

    /// Returns this member's rank in the ring of all members that starts after `root`.
    #[inline(always)]
    pub(super) fn rank_after(self, root: u32) -> u32 {
        wrapped(self.me + self.n - 1 - root, self.n)
    }

    /// Stores the offset of a broadcast's source in the [`SOURCE`](team_words::SOURCE) words of all other members. The
    /// next check-in publishes it.
    #[inline(always)]
    pub(super) fn tell_source(&mut self, offset: u64) {
        if let Some(leaders) = self.group.leader_warp() {
            let mut member = leaders.rank();
            while member < self.n {
                let there = self.theirs(member, self.team.words() + team_words::SOURCE);
                // SAFETY: the word in the heap of an existing member, who reads it only after the next check-in.
                unsafe { arch::store_if(self.is_other(member), there.cast(), offset) };
                member += leaders.size();
            }
        }
        self.fenced = false;
    }

    /// Returns the source offset that the root stored with [`P2pCall::tell_source`].
    #[inline(always)]
    pub(super) fn source(self) -> u64 {
        let here = DevAddr(self.here(self.team.words() + team_words::SOURCE));
        // SAFETY: the root has written the word before the last check-in, and does not write it again in this call.
        unsafe { arch::read(here.ptr()) }
    }

    /// Copies `bytes` bytes to `dst` of all members but `except`, with all threads of the group. `src` is the address
    /// of the data for member 0, and the distance to the data for the next member.
    #[inline(always)]
    pub(super) fn spread(self, src: (u64, u64), dst: u64, bytes: u64, except: u32) {
        let (members, MemberAddrs { own, first, step }) = ((self.me, self.n), self.on_all(dst));
        let spread = Spread { src, own, first, step, pes: self.list(), members, except, bytes };
        // SAFETY: parts of objects that have been checked.
        unsafe { spread::run((self.group.rank(), self.group.size()), spread) }
    }

    /// Copies `bytes` bytes from `src` of this PE to `dst` of a member.
    #[inline(always)]
    pub(super) fn put(self, member: u32, dst: u64, src: u64, bytes: u64) {
        // SAFETY: parts of objects that have been checked, or of the scratch.
        unsafe { copy(self.group, self.theirs(member, dst), self.own(src).cast_const(), bytes as usize) }
    }

    /// Copies a strided block of `len` elements to a member, one thread for each element.
    #[inline(always)]
    pub(super) fn put_strided(self, member: u32, dst: u64, src: u64, strides: Strides, len: u64, size: u64) {
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

    /// Copies `bytes` bytes within the memory of this PE, as thread `rank` of `of`.
    #[inline(always)]
    pub(super) fn copy(self, rank: u32, of: u32, dst: u64, src: u64, bytes: u64) {
        if bytes != 0 {
            // SAFETY: as above.
            unsafe { copy_part((rank, of), self.own(dst), self.own(src).cast_const(), bytes as usize, 1) }
        }
    }

    /// Returns whether a call that delivers `blocks` blocks of `bytes` bytes to a member fits into the LL slots.
    #[inline(always)]
    pub(super) fn is_small(self, blocks: u32, bytes: u64) -> bool {
        ll::bytes(bytes).saturating_mul(blocks as u64) <= self.slots.1
    }

    /// Runs the check-in of a small call while its data travels. If the check-in fails, this member may have received
    /// part of the data.
    #[inline(always)]
    #[track_caller]
    pub(super) fn exchange(&mut self, mine: Result, sent: Sent, received: Received) -> Result {
        self.number += 1;
        if let Some(leaders) = self.group.leader_warp() {
            self.send_hash(leaders, mine);
        }
        if mine.is_ok() && sent.bytes != 0 {
            self.send(sent);
        }
        let checked_in = self.await_hashes(mine);
        let proceeds = received.bytes != 0 && mine.is_ok() && checked_in.is_ok();
        let missed = self.receive(received, proceeds);
        self.all_arrived(checked_in, missed)
    }

    /// Runs the check-in of a small reduction while its data travels. If the check-in fails, the destination may hold
    /// arbitrary data.
    ///
    /// `src` is the offset of the block for member 0, and the distance to the block for the next member.
    #[inline(always)]
    #[track_caller]
    pub(super) fn exchange_to_combine(
        &mut self,
        mine: Result,
        reduction: Reduction,
        dst: u64,
        src: (u64, u64),
        bytes: u64,
    ) -> Result {
        self.number += 1;
        if let Some(leaders) = self.group.leader_warp() {
            self.send_hash(leaders, mine);
        }
        let block = self.block(bytes);
        // A thread has two pairs at a time.
        let (rank, of, _) = self.workers(block.pairs().div_ceil(2));
        let works = bytes != 0 && rank < of && mine.is_ok();
        let reducer = || Reducer {
            reduction,
            members: (self.me, self.n),
            to: self.others(self.slots()),
            pes: self.list(),
            from: self.here(self.slots()),
            src: (self.own(src.0).addr() as u64, src.1),
            dst: self.own(dst).addr() as u64,
            block,
        };
        // SAFETY: objects of this PE that were checked, and slots of this check-in. Each word has one thread.
        let own = if works { unsafe { reducer().send(rank, of) } } else { (0, 0) };
        let checked_in = self.await_hashes(mine);
        let missed = if works && checked_in.is_ok() {
            let hashes = (self.here(self.word_of(0)), self.call_hash as u64);
            // SAFETY: the same, and the check-in words.
            unsafe { reducer().combine(rank, of, own, hashes, (self.team.state(), self.team.needs())) }
        } else {
            0
        };
        self.all_arrived(checked_in, missed)
    }

    #[inline(always)]
    #[track_caller]
    fn await_hashes(self, mine: Result) -> Result {
        match self.group.leader_warp() {
            Some(leaders) => self.compare_hashes(leaders, mine),
            None => Ok(()),
        }
    }

    /// Returns the outcome of a small call in which this thread has `missed` data, or 0, and whose check-in returned
    /// `checked_in`.
    #[inline(always)]
    #[track_caller]
    fn all_arrived(self, checked_in: Result, missed: u64) -> Result {
        if !self.group.any(checked_in.is_err() || missed != 0) {
            return Ok(());
        }
        agree(self.group, checked_in)?;
        Err(self.missing(missed))
    }

    /// Sends the data of a small call to the LL slots of the other members.
    #[inline(always)]
    fn send(self, sent: Sent) {
        let block = self.block(sent.bytes);
        let (rank, of, one_each) = self.workers(block.pairs() * (self.n - 1));
        if rank >= of {
            return;
        }
        let to = self.others(self.slots() + ll::bytes(sent.bytes) * sent.block as u64);
        let sender = Sender {
            members: (self.me, self.n),
            to,
            pes: self.list(),
            src: (self.own(sent.src).addr() as u64, sent.step),
            block,
        };
        // SAFETY: objects of this PE that were checked, and slots of the other members. Only this member writes them
        // until the check-in after the next.
        unsafe {
            if one_each {
                sender.send_one(rank);
            } else {
                sender.send(rank, of);
            }
        }
    }

    /// Receives the data of a small call from the LL slots, if this thread `proceeds`. Returns 0, or the result of
    /// [`ll::receive`].
    #[inline(always)]
    fn receive(self, received: Received, proceeds: bool) -> u64 {
        let (senders, block) =
            (Senders { members: received.members, me: self.me }, self.block(received.bytes));
        let (rank, of, one_each) = self.workers(block.pairs() * senders.others().max(1));
        if rank >= of || !proceeds {
            return 0;
        }
        let receiver = Receiver {
            members: received.members,
            me: self.me,
            from: self.here(self.slots()),
            // Other members write these bytes, so they lie in the heap itself.
            to: (self.here(received.dst), received.step),
            block,
        };
        let own = || received.own.map_or(0, |own| self.own(own).addr() as u64);
        // SAFETY: this member's slots of this check-in, the check-in words, and checked objects or scratch.
        unsafe {
            if one_each && receiver.receive_one(rank, own) {
                return 0;
            }
            let hashes = (self.here(self.word_of(0)), self.call_hash as u64);
            ll::receive((rank, of), own(), hashes, (self.team.state(), self.team.needs()), receiver)
        }
    }

    /// Returns this thread's rank among the threads that move `pairs` word pairs, their number, and whether each moves
    /// at most one. Only threads outside of the leader warp work if there are enough of them.
    #[inline(always)]
    fn workers(self, pairs: u32) -> (u32, u32, bool) {
        let (rank, of) = self.spare();
        if pairs <= of { (rank, of, true) } else { (self.group.rank(), self.group.size(), false) }
    }

    /// Returns this thread's rank among the threads outside of the leader warp, and their number. A thread of the leader
    /// warp gets a rank beyond that number.
    #[inline(always)]
    fn spare(self) -> (u32, u32) {
        let size = self.group.size();
        let spare = size.saturating_sub(self.group.leader_warp_size());
        (self.group.rank().wrapping_sub(size - spare), spare)
    }

    /// Returns the error of a call in which some thread has `missed` data of a member that checked in. The leader
    /// records the error.
    #[cold]
    #[track_caller]
    fn missing(self, missed: u64) -> Error {
        if self.group.any(missed & 0xff == Error::Aborted as u64) {
            return Error::Aborted;
        }
        if self.group.any(missed & 0xff == Error::PeerLost as u64) {
            let (state, needs) = (self.team.state(), self.team.needs());
            return if self.group.leader() {
                lost(state, needs, Location::caller())
            } else {
                Error::PeerLost
            };
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
        record(self.team.state(), Error::WaitTimeout, d, Location::caller())
    }

    /// Returns the heap offset of the LL slots of the last check-in. Even and odd check-ins have separate slots.
    #[inline(always)]
    fn slots(self) -> u64 {
        self.slots.0 + (self.number & 1) * self.slots.1
    }

    /// Returns a block of `bytes` bytes with the flag of the last check-in.
    #[inline(always)]
    fn block(self, bytes: u64) -> LlBlock {
        LlBlock { bytes, flag: self.number as u32 }
    }

    /// Returns the address of a symmetric offset on this PE, without addresses on other members.
    #[inline(always)]
    pub(super) fn on_this(self, offset: u64) -> MemberAddrs {
        MemberAddrs { own: self.own(offset).addr() as u64, first: 0, step: 0 }
    }

    /// Returns the addresses of a heap offset on all members, indexed by rank or by the [list](P2pCall::list) of their
    /// PEs.
    #[inline(always)]
    pub(super) fn on_all(self, offset: u64) -> MemberAddrs {
        let (first, step) = self.others(offset);
        MemberAddrs { first, step, ..self.on_this(offset) }
    }

    /// Returns the address of a heap offset on the first member, or on PE 0 with a list of PEs, and the distance to the
    /// next.
    #[inline(always)]
    fn others(self, offset: u64) -> (u64, u64) {
        let (base, bytes) = (self.team.p2p_base, self.team.p2p_stride);
        let (start, step) = match self.pes {
            (_, 0) => (0, 1),
            (start, stride) => (start as u64, stride as i32 as i64 as u64),
        };
        (base.wrapping_add(start.wrapping_mul(bytes)).wrapping_add(offset), step.wrapping_mul(bytes))
    }

    /// Returns the address of the list of the members' PEs, or 0 if the PE numbers have one stride.
    #[inline(always)]
    pub(super) fn list(self) -> DevAddr {
        match self.pes {
            // SAFETY: the host made the entry.
            (_, 0) => unsafe { (*self.team.desc()).pes },
            _ => DevAddr(0),
        }
    }

    /// Combines `bytes` bytes at `from` of all members into `to`. With a list of PEs, their addresses are indexed by PE
    /// number.
    #[inline(always)]
    pub(super) fn fold(
        self,
        reduction: Reduction,
        from: MemberAddrs,
        to: MemberAddrs,
        pes: DevAddr,
        to_all: bool,
        bytes: u64,
    ) {
        let (own, first, step) = ((from.own, to.own), (from.first, to.first), (from.step, to.step));
        let mut fold = Fold { reduction, own, first, step, pes, members: (self.me, self.n), to_all, bytes };
        let thread = (self.group.rank(), self.group.size());
        let is_long = bytes >= LONG_FOLD * thread.1 as u64;
        // SAFETY: parts of objects that were checked, and of the slots.
        unsafe {
            if self.n > 2 && self.group.channels() > 1 && is_long {
                fold = fold.after(fold::run_long(thread, fold));
            }
            fold::run(thread, fold)
        }
    }
}

/// Encodes a 56-bit number or an error as one word, which a thread can broadcast to its group.
#[inline(always)]
fn encode(number: Result<u64>) -> u64 {
    match number {
        Ok(number) => number << 8,
        Err(error) => error as u64,
    }
}

/// Decodes a word produced by [`encode`].
#[inline(always)]
fn decode(word: u64) -> Result<u64> {
    outcome(word as u32 & 0xff).map(|()| word >> 8)
}
