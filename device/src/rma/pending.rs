//! Asynchronous operations that can be waited for individually.

use core::panic::Location;

use bytemuck::Pod;

use super::{Direction, Form};
use crate::arch::{self, Scope, Sys};
use crate::ctx::Ctx;
use crate::error::Result;
use crate::group::{Group, agree};
use crate::heap::{LocalBuffer, SymSlice, local_operand};
use crate::scope::FenceScope;
use crate::sharing::Sharing;
use crate::sq::{EndIndex, Qp};
use crate::watch::{self, Event, Ticket};

/// Handle of an operation in flight, by which it can be waited for or tested.
///
/// Each thread of the group that started the operation has its own copy. Dropping it does not cancel anything. GIN:
/// asynchronous requests. GPUNetIO: tickets.
#[must_use = "without a wait or test of it, `quiet` must complete it"]
#[derive(Clone, Copy)]
pub struct Pending<'a, S> {
    /// QPs that the operation uses, each with the index up to which to wait; `None` where nothing is outstanding. There
    /// are two, because puts and signals of a block may use different QPs.
    parts: [Option<(Qp<'a, S>, EndIndex)>; 2],
    ticket: Ticket,
}

impl<S: Sharing> Pending<'_, S> {
    /// Waits until the operation is complete, for all threads of the group: a put has been delivered and its source may
    /// be reused, or the data of a get has arrived.
    ///
    /// # Errors
    /// - The errors of [`Ctx::quiet`].
    #[inline(always)]
    #[track_caller]
    pub fn wait<G: Group>(self, group: G) -> Result {
        let mut mine = Ok(());
        if group.leader() {
            let site = Location::caller();
            // After an error, still wait for the other queue.
            for (qp, ticket) in self.parts.into_iter().flatten() {
                mine = mine.and(qp.wait(ticket, site));
            }
            Sys::fence();
            self.ticket.complete("wait");
        }
        let done = agree(group, mine);
        watch::note("wait", Event::OwnOrder { acquires: true, scope: FenceScope::System });
        done
    }

    /// Returns whether the operation is complete, without waiting. Called by one thread. See [`Pending::wait`].
    ///
    /// # Errors
    /// - The errors of [`Ctx::quiet`]. A loop of tests has its own deadline: see [`Ctx::test`].
    #[inline(always)]
    #[track_caller]
    pub fn test(&self) -> Result<bool> {
        let site = Location::caller();
        for (qp, ticket) in self.parts.into_iter().flatten() {
            if !qp.test(ticket, site)? {
                return Ok(false);
            }
        }
        arch::clear_failed_tests();
        Sys::fence();
        self.ticket.complete("test");
        watch::note("test", Event::OwnOrder { acquires: true, scope: FenceScope::System });
        Ok(true)
    }
}

/// # Transfers with a handle
///
/// Transfers that can be waited for individually.
impl<S: Sharing> Ctx<'_, S> {
    /// Starts a put like [`Ctx::put_nbi`], and returns a handle to wait for it.
    ///
    /// ```
    /// # use rushmem_device::prelude::*;
    /// /// Puts two halves, and reuses the source of the first early.
    /// pub fn put_halves(ctx: &Ctx, dst: SymSlice<u32>, src: SymSlice<u32>) -> Result {
    ///     let (block, right, n) = (Block::current(), ctx.pe_after(1), src.len());
    ///     let first = ctx.put_async(block, dst.slice(0..n / 2), src.slice(0..n / 2), right)?;
    ///     let second = ctx.put_async(block, dst.slice(n / 2..n), src.slice(n / 2..n), right)?;
    ///     first.wait(block)?; // the first half of `src` may be reused, the second one may not
    ///     second.wait(block)
    /// }
    /// # fn main() {}
    /// ```
    ///
    /// # Errors
    /// - The errors of [`Ctx::put_nbi`].
    #[inline(always)]
    #[track_caller]
    pub fn put_async<G: Group, T: Pod>(
        &self,
        group: G,
        dst: SymSlice<T>,
        src: impl LocalBuffer<T>,
        pe: u32,
    ) -> Result<Pending<'_, S>> {
        let mut ticket = self.transfer(
            group,
            Direction::Put,
            dst,
            local_operand(src),
            pe,
            Form::nonblocking("put_async"),
        )?;
        // Delivery to all observers includes the read-back, so wait for that instead.
        if self.has_early_acks() && ticket.is_some() {
            let qp = self.qp(pe);
            self.read_back(qp.peer_entry())?;
            ticket = Some(qp.last());
        }
        Ok(self.pending(group, ticket, pe))
    }

    /// Starts a get like [`Ctx::get_nbi`], and returns a handle to wait for it.
    ///
    /// # Errors
    /// - The errors of [`Ctx::get_nbi`].
    #[inline(always)]
    #[track_caller]
    pub fn get_async<G: Group, T: Pod>(
        &self,
        group: G,
        dst: impl LocalBuffer<T>,
        src: SymSlice<T>,
        pe: u32,
    ) -> Result<Pending<'_, S>> {
        let ticket = self.transfer(
            group,
            Direction::Get,
            src,
            local_operand(dst),
            pe,
            Form::nonblocking("get_async"),
        )?;
        Ok(self.pending(group, ticket, pe))
    }

    /// Returns a handle that covers all earlier postings to `pe` of the calling thread's block, by threads that have
    /// synchronised with the caller. Later puts are not covered. GIN: `flushAsync`.
    ///
    /// # Errors
    /// - [`Error::BadPe`](crate::Error::BadPe).
    #[inline(always)]
    #[track_caller]
    pub fn flush_async(&self, pe: u32) -> Result<Pending<'_, S>> {
        self.check_pe(pe)?;
        let (puts, signals) = (self.qp(pe), self.atomic_qp(pe));
        self.read_back(puts.peer_entry()).and(self.read_back(signals.peer_entry()))?;
        let ticket = Ticket::of(self.parts_ref().first_set, pe);
        // If data and signals share a QP, one wait covers both.
        let second = if puts.entry() == signals.entry() { None } else { Some((signals, signals.last())) };
        Ok(Pending { parts: [Some((puts, puts.last())), second], ticket })
    }

    #[inline(always)]
    fn pending<G: Group>(&self, group: G, ticket: Option<EndIndex>, pe: u32) -> Pending<'_, S> {
        let end = group.broadcast(ticket.map_or(0, |t| t.0));
        let part = if end == 0 { None } else { Some((self.qp(pe), EndIndex(end))) };
        Pending { parts: [part, None], ticket: watch::ticket(group) }
    }
}
