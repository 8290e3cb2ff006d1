//! Lost PEs, and waits for words that a given PE updates, for jobs with live membership.

use core::panic::Location;

use crate::amo::Amo;
use crate::ctx::{Ctx, CtxRef};
use crate::error::Result;
use crate::group::{Group, agree, agree_on};
use crate::heap::{Signal, Sym};
use crate::sharing::Sharing;
use crate::sq::HAS_FAILOVER;
use crate::sync::{Cmp, WaitWords};
use crate::team::Team;
use crate::wait::Needs;

/// # Lost PEs
///
/// Calls for jobs with live membership (`membership=live`). docs/membership.md describes what holds after a loss.
impl<S: Sharing> Ctx<'_, S> {
    /// Returns whether `pe` was lost, and no other process has replaced it. Called by one thread.
    ///
    /// If this context reaches `pe` through the NIC, and another process has replaced it while the kernel was running, the first
    /// call connects the context's queues to the new process, and waits for that. Operations that were posted to the lost one and
    /// are not complete are dropped: no later call reports them. If the queues cannot be connected, the call returns `true`, and
    /// operations on them fail.
    ///
    /// Reads host memory, which takes a GPU about a microsecond, and as long for each queue of this context to `pe`. Always `false` in jobs with fixed membership, where a
    /// loss makes the job fail.
    #[inline(always)]
    #[track_caller]
    pub fn is_lost(&self, pe: u32) -> bool {
        let p = self.parts_ref();
        if pe >= p.n_pes {
            return false;
        }
        Needs::pe(pe).is_lost(p.state)
            || (HAS_FAILOVER && !self.p2p_all() && renew_queues::<S>(CtxRef::of(self), pe).is_err())
    }

    /// Waits like [`Ctx::signal_wait_until`] for a signal that `pe` updates.
    ///
    /// Fails if `pe` is lost. A signal that arrived before the loss still counts.
    ///
    /// ```
    /// # use rushmem_device::prelude::*;
    /// /// Waits for a signal of every other PE. Counts those that are lost in `missing`.
    /// #[kernel]
    /// pub fn wait_for_living(ctx: &Ctx, arrived: SymSlice<Signal>, missing: SymSlice<u64>) -> Result {
    ///     for pe in 0..ctx.n_pes() {
    ///         match ctx.signal_wait_until_from(Thread, arrived.at(pe as usize), Cmp::Ge, 1, pe) {
    ///             Ok(_) => {}
    ///             Err(Error::PeerLost) => ctx.local(missing).store(pe as usize, 1),
    ///             Err(other) => return Err(other),
    ///         }
    ///     }
    ///     Ok(())
    /// }
    /// # fn main() {}
    /// ```
    ///
    /// # Errors
    /// - [`Error::PeerLost`](crate::Error::PeerLost): `pe` was lost.
    /// - [`Error::BadPe`](crate::Error::BadPe): the job has no such PE.
    /// - The errors of [`Ctx::signal_wait_until`].
    #[inline(always)]
    #[track_caller]
    pub fn signal_wait_until_from<G: Group>(
        &self,
        group: G,
        signal: Sym<Signal>,
        cmp: Cmp,
        value: u64,
        pe: u32,
    ) -> Result<u64> {
        self.check_pe(pe)?;
        self.await_signal(group, ("signal_wait_until_from", Needs::pe(pe)), signal, cmp, value)
    }

    /// Waits like [`Ctx::wait_until`] for a word that `pe` updates. Fails if `pe` is lost.
    ///
    /// # Errors
    /// - [`Error::PeerLost`](crate::Error::PeerLost): `pe` was lost.
    /// - [`Error::BadPe`](crate::Error::BadPe): the job has no such PE.
    /// - The errors of [`Ctx::signal_wait_until`].
    #[inline(always)]
    #[track_caller]
    pub fn wait_until_from<G: Group, T: Amo + PartialOrd>(
        &self,
        group: G,
        word: Sym<T>,
        cmp: Cmp,
        value: T,
        pe: u32,
    ) -> Result {
        self.check_pe(pe)?;
        self.await_update(group, ("wait_until_from", Needs::pe(pe)), word, cmp, value)
    }

    /// Waits like [`Ctx::wait_until_all`] for words that members of `team` update. Fails if any member is lost before all
    /// words have arrived: the missing ones may be those of members that have stopped because of the loss.
    ///
    /// ```
    /// # use rushmem_device::prelude::*;
    /// /// Waits for a signal of every member of `team`. `absent` is not 0 for the other PEs.
    /// #[kernel]
    /// pub fn wait_for_team(ctx: &Ctx, team: Team, arrived: SymSlice<Signal>, absent: SymSlice<i32>) -> Result {
    ///     let words = WaitWords::new(arrived, Cmp::Ge, 1).except(ctx.local(absent));
    ///     ctx.wait_until_all_from(Block::current(), &words, team)
    /// }
    /// # fn main() {}
    /// ```
    ///
    /// # Errors
    /// - [`Error::PeerLost`](crate::Error::PeerLost): a member of `team` was lost.
    /// - [`Error::BadTeam`](crate::Error::BadTeam): the team does not exist.
    /// - The errors of [`Ctx::wait_until_all`].
    #[inline(always)]
    #[track_caller]
    pub fn wait_until_all_from<G: Group, T: Amo + PartialOrd>(
        &self,
        group: G,
        words: &WaitWords<T>,
        team: Team,
    ) -> Result {
        if self.team_desc(team).is_none() {
            return Err(self.bad_team(team));
        }
        self.await_all(group, ("wait_until_all_from", Needs::members(team.slot())), words)
    }

    /// Waits for a signal with the whole group, of which the leader polls. `name` and `needs` are as in
    /// [`Ctx::await_word`].
    #[inline(always)]
    #[track_caller]
    pub(super) fn await_signal<G: Group>(
        &self,
        group: G,
        (name, needs): (&'static str, Needs),
        signal: Sym<Signal>,
        cmp: Cmp,
        value: u64,
    ) -> Result<u64> {
        // This barrier is free: all threads wait for the word anyway.
        group.sync();
        let found = if group.leader() { self.await_word((name, needs), signal, cmp, value) } else { Ok(0) };
        agree_on(group, found)
    }

    /// Waits for a word like [`Ctx::await_signal`], without its value.
    #[inline(always)]
    #[track_caller]
    pub(super) fn await_update<G: Group, T: Amo + PartialOrd>(
        &self,
        group: G,
        (name, needs): (&'static str, Needs),
        word: Sym<T>,
        cmp: Cmp,
        value: T,
    ) -> Result {
        let mine = if group.leader() {
            self.await_word((name, needs), word, cmp, value).map(|_| ())
        } else {
            Ok(())
        };
        agree(group, mine)
    }
}

/// Connects the queues of a context to the process that has replaced `pe`, if any has since they were last connected.
#[cold]
#[inline(never)]
#[track_caller]
fn renew_queues<S: Sharing>(ctx_ref: CtxRef, pe: u32) -> Result {
    let ctx = ctx_ref.ctx::<S>();
    let (first, n_sets) = (ctx.parts_ref().first_set, ctx.parts_ref().n_sets);
    (first..first + n_sets).try_for_each(|set| ctx.qp_of_set(set, pe).renew(Location::caller()))
}
