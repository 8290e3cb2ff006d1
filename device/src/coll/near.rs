//! Collective calls where the heaps of all PEs are near: members write to each other's memory.
//!
//! What others write or read lies in the heap itself; objects in segments go the way of [`call`](super::call), as all members
//! see of their own arguments.
//!
//! **Meeting.** Each member stores its word at all others, after a fence, and waits for theirs: a lane for each. The words
//! are those of [`call`](super::call), so that calls of both kinds meet.
//!
//! **Small calls** take one flight: each member stores what it has for the others to their scratch, fences, and meets; what
//! is there then goes to the destination. So nobody's destination changes before all have come, and no arguments but one's
//! own are believed before. There are two sets of slots, by turns, as there are of words: who writes to a set for meeting
//! `k` has seen all come to meeting `k - 1`, and they came there with meeting `k - 2` behind them, whose slots are these. The
//! members that write to a set are thus those of one meeting, and each writes to slots of its own; if they mean different
//! calls, slots may overlap, but then nobody reads them.
//!
//! **Others** meet, write straight to the destinations, or read from the sources, and meet again.
//!
//! Kernels pass their context as pairs of words ([`Ways`]), and nothing of it is read from memory.

use core::panic::Location;

use bytemuck::Zeroable;

use super::call::{WRONG, meeting_at, says, scratch_of, wrapped};
use super::fold::{Members, Row, fold};
use super::hold::{ask, give, granted};
use super::kind;
use super::reduce::{What, cut};
use super::spread::{Span, check_equal, check_spans};
use super::strided::{check_strided, folded};
use crate::abi::{CtxParts, DevAddr, TeamDesc};
use crate::arch::{self, Scope, Sys, SysWord};
use crate::copy::copy;
use crate::ctx::Ctx;
use crate::error::{Detail, Error, Result, record};
use crate::group::{Group, Thread};
use crate::sharing::Sharing;
use crate::team::Team;
use crate::wait::Watch;

/// Most bytes that a small call moves to a member, or combines.
const SMALL: u64 = 32 << 10;

/// What Rust passes in registers.
pub(super) type Pair = (u64, u64);

/// What these calls need of the context and the handle.
#[derive(Clone, Copy)]
pub(super) struct Ways {
    /// This PE's heap, and its bytes.
    pub(super) heap: Pair,
    /// Those of all PEs: the first, and the bytes from one to the next.
    pub(super) near: Pair,
    /// The segments, and the PE's state.
    pub(super) rest: Pair,
    /// The table of teams, and the heap offset of the first one's words.
    pub(super) teams: Pair,
    /// Bytes of heap that each team has; in the next word the PEs, and this one in the lower half.
    pub(super) sizes: Pair,
    pub(super) team: Team,
}

impl Ways {
    /// Those of a team; none if not all heaps are near, or the handle is that of no team at all. The same for all members,
    /// whatever they have registered when they were launched.
    #[inline(always)]
    pub(super) fn of<S: Sharing>(ctx: &Ctx<S>, team: Team) -> Option<Self> {
        let p = ctx.parts_ref();
        if !ctx.heaps_near() || team.slot() >= p.team_slots {
            return None;
        }
        if !ctx.all_near() {
            // What others wait for must not be held back.
            ctx.submit_held();
        }
        // Parameters of the kernel as they are: what is made of them would take registers of it.
        Some(Self {
            heap: (p.heap.0, p.heap_bytes),
            near: (p.near_base.0, p.near_stride),
            rest: (p.segments.0, p.state.0),
            teams: (p.teams.0, p.team_words),
            sizes: (p.team_bytes, (p.n_pes as u64) << 32 | p.pe as u64),
            team,
        })
    }

    /// As [`Ways::of`]; none also if what others access, which is the same for all members, does not lie in the heap itself.
    #[inline(always)]
    pub(super) fn to<S: Sharing>(ctx: &Ctx<S>, team: Team, (offset, bytes): Span) -> Option<Self> {
        if offset.saturating_add(bytes) > ctx.parts_ref().heap_bytes { None } else { Self::of(ctx, team) }
    }

    /// A context with what these calls look at.
    #[inline(always)]
    fn ctx(self) -> Ctx {
        let parts = CtxParts {
            state: self.state(),
            heap: DevAddr(self.heap.0),
            heap_bytes: self.heap.1,
            segments: DevAddr(self.rest.0),
            near_base: DevAddr(self.near.0),
            near_stride: self.near.1,
            pe: self.sizes.1 as u32,
            n_pes: (self.sizes.1 >> 32) as u32,
            team_bytes: self.sizes.0,
            ..Zeroable::zeroed()
        };
        // SAFETY: `of` had these from a context; of the others nothing is used.
        unsafe { Ctx::from_parts(parts) }
    }

    #[inline(always)]
    fn state(self) -> DevAddr {
        DevAddr(self.rest.1)
    }

    /// The team's entry: `of` has seen that there is one.
    #[inline(always)]
    fn desc(self) -> *mut TeamDesc {
        DevAddr(self.teams.0).ptr::<TeamDesc>().wrapping_add(self.team.slot() as usize)
    }

    /// The heap offset of the team's words.
    #[inline(always)]
    fn words(self) -> u64 {
        self.teams.1 + self.sizes.0 * self.team.slot() as u64
    }

    /// Bytes of a set of slots: half of the scratch is for both.
    #[inline(always)]
    fn set_bytes(self) -> u64 {
        let (_, bytes) = scratch_of(&self.ctx());
        (bytes / 4).min(SMALL) & !127
    }
}

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
}

impl<G: Group> Near<G> {
    /// Takes the team for this group. While the answer is on its way, all threads do what there is to do `meanwhile`, and the
    /// leader does `check` of the number of members and this one's: what that returned, all threads get. [`Near::end`] gives
    /// the team back.
    #[inline(always)]
    #[track_caller]
    fn begin(
        group: G,
        ways: Ways,
        meanwhile: impl FnOnce(),
        check: impl FnOnce(u32, u32) -> Result,
    ) -> Result<(Self, Result)> {
        let desc = ways.desc();
        // SAFETY: the host made the entry; what is read of it does not change while the team is one.
        let (word, generation, n, me, pes) = unsafe {
            let word = if group.leader() { ask(desc) } else { 0 };
            let pes = ((*desc).start, (*desc).stride);
            (word, (*desc).generation, (*desc).n_pes, (*desc).my_pe, pes)
        };
        meanwhile();
        let told = if group.leader() {
            // Of another team, they mean nothing.
            let mine = if generation == ways.team.generation() { check(n, me) } else { Ok(()) };
            // SAFETY: as above, and this thread has asked.
            match unsafe { granted(ways.state(), desc, generation, word, ways.team) } {
                Ok(number) => number << 16 | code(mine) << 8,
                Err(error) => error as u64,
            }
        } else {
            0
        };
        let told = group.cast(told);
        result(told & 0xff)?;
        Ok((Self { group, ways, n, me, pes, number: told >> 16 }, result(told >> 8 & 0xff)))
    }

    /// Ends the call.
    #[inline(always)]
    fn end(self, result: Result) -> Result {
        self.group.sync();
        if self.group.leader() {
            // SAFETY: the group has the team.
            unsafe { give(self.ways.desc(), self.number, result) }
        }
        result
    }

    /// Waits until all members have come, and meant the same: `said`, of 31 bits, or that something is wrong with their own
    /// arguments, which is `mine`. What all threads of the group stored before, to whatever memory, is there for them.
    #[inline(always)]
    #[track_caller]
    fn meet(&mut self, said: u32, mine: Result) -> Result {
        self.number += 1;
        self.group.sync();
        let met = match self.group.front() {
            Some(front) => {
                Sys::fence();
                self.exchange(front, said, mine)
            }
            None => Ok(()),
        };
        if self.group.any(met.is_err()) { met.and(Err(Error::InGroup)) } else { Ok(()) }
    }

    /// The words of a meeting, by the first lanes of the group, which have fenced: a lane for each member.
    #[inline(always)]
    #[track_caller]
    fn exchange<F: Group>(self, front: F, said: u32, mine: Result) -> Result {
        let ctx = self.ways.ctx();
        let said = if mine.is_err() { WRONG } else { said };
        let at = |member: u32| self.ways.words() + meeting_at(self.number, self.n, member);
        let mut member = front.rank();
        while member < self.n {
            if member != self.me {
                let there = ctx.near::<u64>(self.pe(member), at(self.me));
                // SAFETY: this member's word in that PE's heap.
                unsafe { Sys::store_relaxed(there, self.number << 32 | said as u64) };
            }
            member += front.size();
        }
        // The first member that is not as it should be: how, and what it said.
        let (mut odd, mut how, mut heard) = (u32::MAX, Ok(()), 0);
        let mut member = front.rank();
        while member < self.n && odd == u32::MAX {
            if member != self.me {
                let here = DevAddr(self.ways.heap.0).add(at(member)).ptr();
                (how, heard) = await_word(self.ways.state(), here, self.number as u32);
                if how.is_err() || heard as u32 != said {
                    odd = member;
                }
            }
            member += front.size();
        }
        if !front.any(odd != u32::MAX || mine.is_err()) {
            return Ok(());
        }
        let odd_pe = if odd == u32::MAX { odd } else { self.pe(odd) };
        let pes = (self.pe(self.me), odd_pe);
        let offset = at(odd & 0xffff);
        let (number, site) = (self.number, Location::caller());
        verdict(front, self.ways.state(), (odd, self.n), pes, (code(how), heard), number, offset, mine, site)
    }

    /// The PE of a member.
    #[inline(always)]
    fn pe(self, member: u32) -> u32 {
        match self.pes {
            // SAFETY: the list has a word for each member.
            (_, 0) => unsafe { arch::read((*self.ways.desc()).pes.ptr::<u32>().add(member as usize)) },
            (start, stride) => start.wrapping_add(member.wrapping_mul(stride)),
        }
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

    /// Copies within this PE's memory.
    #[inline(always)]
    fn copy(self, dst: u64, src: u64, bytes: u64) {
        // SAFETY: as above.
        unsafe { copy(self.group, self.own(dst), self.own(src).cast_const(), bytes as usize) }
    }

    /// The heap offset of the slots for the next meeting.
    #[inline(always)]
    fn slots(self) -> u64 {
        let (scratch, _) = scratch_of(&self.ways.ctx());
        let odd = (self.number + 1) & 1;
        self.ways.words() + scratch + odd * self.ways.set_bytes()
    }

    /// True if a call that needs so many bytes of slots is a small one.
    #[inline(always)]
    fn is_small(self, bytes: u64) -> bool {
        bytes <= self.ways.set_bytes()
    }

    #[inline(always)]
    fn says(self, kind: u32, arguments: [u64; 4]) -> u32 {
        says(self.ways.team.generation(), kind, arguments)
    }
}

/// An error's code, or 0.
#[inline(always)]
fn code(result: Result) -> u64 {
    result.map_or_else(|error| error as u64, |()| 0)
}

#[inline(always)]
fn result(code: u64) -> Result {
    Error::from_code(code as u32).map_or(Ok(()), Err)
}

/// Looks at a word until it is of meeting `number`: what it holds. Nothing is recorded.
#[inline(always)]
fn await_word(state: DevAddr, at: *const u64, number: u32) -> (Result, u64) {
    let mut watch = Watch::new(state);
    loop {
        // SAFETY: a word of the runtime's own in this PE's heap, aligned.
        let found = unsafe { u64::load_acquire(at) };
        if (found >> 32) as u32 == number {
            return (Ok(()), found);
        }
        if let Err(error) = watch.turn() {
            return (Err(error), found);
        }
    }
}

/// Why a meeting came to nothing, for all lanes, each of which knows of its first `odd` member of `n` that did not come, or
/// differs: the first of all is recorded.
#[cold]
#[inline(never)]
#[allow(clippy::too_many_arguments)] // plain words
fn verdict<F: Group>(
    front: F,
    state: DevAddr,
    (odd, n): (u32, u32),
    (pe, odd_pe): (u32, u32),
    (how, heard): (u64, u64),
    number: u64,
    offset: u64,
    mine: Result,
    site: &'static Location<'static>,
) -> Result {
    let waited = front.any(how != 0);
    if front.any(how == Error::Aborted as u64) {
        return Err(Error::Aborted);
    }
    if !waited {
        mine?;
    }
    let mut first = 0;
    while first < n && !front.any(odd == first && (how != 0 || !waited)) {
        first += 1;
    }
    let (error, d) = if waited {
        let d =
            Detail { peer: odd_pe, found: heard >> 32, wanted: number as u32 as u64, offset, ..Detail::NONE };
        (Error::WaitTimeout, d)
    } else {
        (Error::TeamMismatch, Detail { peer: odd_pe, found: pe as u64, wanted: number, ..Detail::NONE })
    };
    if odd == first {
        let _ = record(state, error, d, site);
    }
    Err(error)
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
    group.sync();
    let met = match group.front() {
        Some(front) => sync_front(front, ways),
        None => Ok(()),
    };
    if group.any(met.is_err()) { met.and(Err(Error::InGroup)) } else { Ok(()) }
}

/// The first lanes do it all; their fence speaks for the threads behind the barrier before it.
#[inline(always)]
#[track_caller]
fn sync_front<F: Group>(front: F, ways: Ways) -> Result {
    let (mut call, _) = Near::begin(front, ways, Sys::fence, |_, _| Ok(()))?;
    call.number += 1;
    let met = call.exchange(front, call.says(kind::SYNC, [0; 4]), Ok(()));
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
    let ways = Ways { heap, near, rest, teams, sizes, team };
    let check = |n: u32, _| {
        let ctx = ways.ctx();
        if root >= n {
            let d = Detail { found: root as u64, wanted: n as u64, ..Detail::NONE };
            return Err(ctx.fail(Error::BadPe, d));
        }
        check_spans(&ctx, dst, src, dst.0).and_then(|()| check_equal(&ctx, src.1, dst.1))
    };
    let (mut call, mine) = Near::begin(group, ways, || (), check)?;
    let done = broadcast_in(&mut call, mine, dst, src, root);
    call.end(done)
}

#[inline(always)]
#[track_caller]
fn broadcast_in<G: Group>(call: &mut Near<G>, mine: Result, dst: Span, src: Span, root: u32) -> Result {
    let says = call.says(kind::BROADCAST, [dst.0, dst.1, root as u64, 0]);
    let (small, slots) = (call.is_small(dst.1), call.slots());
    if !small {
        call.meet(says, mine)?;
    }
    if call.me == root && mine.is_ok() {
        let to = if small { slots } else { dst.0 };
        let mut k = 1;
        while k < call.n {
            call.put(call.after(k), to, src.0, src.1);
            k += 1;
        }
    }
    if small {
        call.meet(says, mine)?;
    }
    if call.me != root && small {
        call.copy(dst.0, slots, dst.1);
    }
    if call.me == root && dst.0 != src.0 {
        call.copy(dst.0, src.0, dst.1);
    }
    if small { Ok(()) } else { call.meet(call.says(kind::STEP, [0; 4]), Ok(())) }
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
    let ways = Ways { heap, near, rest, teams, sizes, team };
    let check = |n: u32, me: u32| {
        let ctx = ways.ctx();
        let at = dst.0.wrapping_add(me as u64 * src.1);
        check_spans(&ctx, dst, src, at).and_then(|()| check_equal(&ctx, dst.1, src.1 * n as u64))
    };
    let (mut call, mine) = Near::begin(group, ways, || (), check)?;
    let says = call.says(kind::FCOLLECT, [dst.0, dst.1, 0, 0]);
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
    let ways = Ways { heap, near, rest, teams, sizes, team };
    // Whole elements.
    let block_of = |n: u32| src.1.checked_div(n as u64 * size).unwrap_or(0) * size;
    let check = |n: u32, _| {
        let ctx = ways.ctx();
        check_spans(&ctx, dst, src, u64::MAX)
            .and_then(|()| check_equal(&ctx, src.1, dst.1))
            .and_then(|()| check_equal(&ctx, src.1, n as u64 * block_of(n)))
    };
    let (mut call, mine) = Near::begin(group, ways, || (), check)?;
    let says = call.says(kind::ALLTOALL, [dst.0, dst.1, size, 0]);
    let block = block_of(call.n);
    let done = spread(&mut call, says, mine, dst, src.0, block, block);
    call.end(done)
}

/// Each member's `dst` gets a block from each, which lies at `src` of that one, and `step` bytes further on for each
/// receiver. The slots are an image of the destination.
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
    let (small, slots) = (call.is_small(dst.1), call.slots());
    if !small {
        call.meet(says, mine)?;
    }
    if mine.is_ok() {
        let (to, from) = (if small { slots } else { dst.0 }, |member: u32| src + member as u64 * step);
        let at = to + call.me as u64 * block;
        let mut k = 1;
        while k < call.n {
            let member = call.after(k);
            call.put(member, at, from(member), block);
            k += 1;
        }
        if at != from(call.me) {
            call.copy(at, from(call.me), block);
        }
    }
    if !small {
        return call.meet(call.says(kind::STEP, [0; 4]), Ok(()));
    }
    call.meet(says, mine)?;
    call.copy(dst.0, slots, dst.1);
    Ok(())
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
    let ways = Ways { heap, near, rest, teams, sizes, team };
    let check =
        |n: u32, _| check_strided(&ways.ctx(), (n as u64).saturating_mul(len), dst, src, strides, size);
    let (mut call, mine) = Near::begin(group, ways, || (), check)?;
    let says = call.says(kind::ALLTOALLS, [dst.0, len, folded(strides), size]);
    let done = call.meet(says, mine).and_then(|()| {
        let mut k = 0;
        while k < call.n {
            call.put_strided(call.after(k), dst.0, src.0, strides, len, size);
            k += 1;
        }
        call.meet(call.says(kind::STEP, [0; 4]), Ok(()))
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
    let ways = Ways { heap, near, rest, teams, sizes, team };
    let check = |_, _| {
        let ctx = ways.ctx();
        check_spans(&ctx, dst, src, dst.0)
            .and_then(|()| check_equal(&ctx, src.1, dst.1))
            .and_then(|()| what.check(&ctx, dst, src))
    };
    let (mut call, mine) = Near::begin(group, ways, || (), check)?;
    let done = reduce_in(&mut call, mine, what, dst, src);
    call.end(done)
}

/// Small: each member gets all sources, and combines them. Otherwise each combines a share of the elements, from the
/// sources themselves, and writes it to all; nobody else reads that share of any source.
#[inline(always)]
#[track_caller]
fn reduce_in<G: Group>(call: &mut Near<G>, mine: Result, what: What, dst: Span, src: Span) -> Result {
    let says = call.says(kind::REDUCE, [dst.0, dst.1, src.0, what.word()]);
    // Each source begins at a multiple of 16.
    let (bytes, slot) = (src.1, src.1.next_multiple_of(16));
    let slots = call.slots();
    if call.is_small(slot.saturating_mul(call.n as u64)) {
        if mine.is_ok() {
            let mut k = 1;
            while k < call.n {
                call.put(call.after(k), slots + call.me as u64 * slot, src.0, bytes);
                k += 1;
            }
        }
        call.meet(says, mine)?;
        let from = Row { first: call.own(slots).addr() as u64, step: slot, ..call.only(src.0) };
        call.fold(what, from, call.only(dst.0), DevAddr(0), false, bytes);
        return Ok(());
    }
    call.meet(says, mine)?;
    let (me, n) = (call.me as u64, call.n as u64);
    let (begin, end) = (cut(bytes, me, n), cut(bytes, me + 1, n));
    let (from, to) = (call.row(src.0 + begin), call.row(dst.0 + begin));
    call.fold(what, from, to, call.list(), true, end - begin);
    call.meet(call.says(kind::STEP, [0; 4]), Ok(()))
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
    let ways = Ways { heap, near, rest, teams, sizes, team };
    let own = |me: u32| src.0.wrapping_add(me as u64 * dst.1);
    let check = |n: u32, me: u32| {
        let ctx = ways.ctx();
        let may = if dst.0 == own(me) { src.0 } else { u64::MAX };
        check_spans(&ctx, dst, src, may)
            .and_then(|()| check_equal(&ctx, src.1, dst.1 * n as u64))
            .and_then(|()| what.check(&ctx, dst, src))
    };
    let (mut call, mine) = Near::begin(group, ways, || (), check)?;
    let own = own(call.me);
    // Where the destination is a block of the source, it is another one on each member.
    let place = if dst.0 == own { u64::MAX } else { dst.0 };
    let says = call.says(kind::REDUCE_SCATTER, [place, dst.1, src.0, what.word()]);
    let done = call.meet(says, mine).and_then(|()| {
        call.fold(what, call.row(own), call.only(dst.0), call.list(), false, dst.1);
        // The source may be reused once all have read it.
        call.meet(call.says(kind::STEP, [0; 4]), Ok(()))
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
