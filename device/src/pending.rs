//! Operations that were started and can be waited for one by one.

use core::panic::Location;

use bytemuck::Pod;

use crate::arch::{Scope, Sys};
use crate::ctx::Ctx;
use crate::error::Result;
use crate::group::{Group, agree};
use crate::heap::{LocalBuffer, SymSlice, local_operand};
use crate::rma::Direction;
use crate::sharing::Sharing;
use crate::sq::{EndIndex, Qp};

/// Something that was started, up to a point in the queues that it went through.
///
/// A value of each thread of the group that started it; dropping it cancels nothing. GIN's asynchronous requests, GPUNetIO's
/// tickets.
#[must_use = "without a wait or test of it, `quiet` must complete it"]
#[derive(Clone, Copy)]
pub struct Pending<'a, S> {
    /// The queue, and how far it must come; `None` where nothing is outstanding. Two, since puts and signals of a block
    /// may go through different ones.
    parts: [Option<(Qp<'a, S>, EndIndex)>; 2],
}

impl<S: Sharing> Pending<'_, S> {
    /// Waits until it is complete: a put is delivered and its source free, a get's data is here, for all threads of the
    /// group.
    ///
    /// # Errors
    /// Those of [`Ctx::quiet`].
    #[inline(always)]
    #[track_caller]
    pub fn wait<G: Group>(self, group: G) -> Result {
        let mut mine = Ok(());
        if group.leader() {
            let site = Location::caller();
            for (qp, ticket) in self.parts.into_iter().flatten() {
                mine = mine.and(qp.wait(ticket, site));
            }
            Sys::fence();
        }
        agree(group, mine)
    }

    /// Whether it is complete, as of [`Pending::wait`], for the calling thread.
    ///
    /// # Errors
    /// Those of [`Ctx::quiet`], but for the deadline.
    #[inline(always)]
    #[track_caller]
    pub fn test(&self) -> Result<bool> {
        let site = Location::caller();
        for (qp, ticket) in self.parts.into_iter().flatten() {
            if !qp.test(ticket, site)? {
                return Ok(false);
            }
        }
        Sys::fence();
        Ok(true)
    }
}

impl<S: Sharing> Ctx<S> {
    /// As [`Ctx::put_nbi`], and gives something to wait for.
    ///
    /// ```ignore
    /// let first = ctx.put_async(block, dst.slice(0..half), src.slice(0..half), right)?;
    /// let second = ctx.put_async(block, dst.slice(half..n), src.slice(half..n), right)?;
    /// first.wait(block)?; // the first half of `src` is free, the second may not be
    /// ```
    ///
    /// # Errors
    /// As [`Ctx::put_nbi`].
    #[inline(always)]
    #[track_caller]
    pub fn put_async<G: Group, T: Pod>(
        &self,
        group: G,
        dst: SymSlice<T>,
        src: impl LocalBuffer<T>,
        pe: u32,
    ) -> Result<Pending<'_, S>> {
        let ticket = self.transfer(group, Direction::Put, dst, local_operand(src), pe, false)?;
        Ok(self.pending(group, ticket, pe))
    }

    /// As [`Ctx::get_nbi`], and gives something to wait for.
    ///
    /// # Errors
    /// As [`Ctx::get_nbi`].
    #[inline(always)]
    #[track_caller]
    pub fn get_async<G: Group, T: Pod>(
        &self,
        group: G,
        dst: impl LocalBuffer<T>,
        src: SymSlice<T>,
        pe: u32,
    ) -> Result<Pending<'_, S>> {
        let ticket = self.transfer(group, Direction::Get, src, local_operand(dst), pe, false)?;
        Ok(self.pending(group, ticket, pe))
    }

    /// Something to wait for that covers what the calling thread's block has posted to `pe` so far, by threads that have
    /// synchronised with the caller; later puts are not waited for. GIN's `flushAsync`.
    ///
    /// # Errors
    /// [`Error::BadPe`](crate::Error::BadPe).
    #[inline(always)]
    #[track_caller]
    pub fn flush_async(&self, pe: u32) -> Result<Pending<'_, S>> {
        self.check_pe(pe)?;
        let (puts, signals) = (self.qp(pe), self.atomic_qp(pe));
        let second = if puts.entry() == signals.entry() { None } else { Some((signals, signals.last())) };
        Ok(Pending { parts: [Some((puts, puts.last())), second] })
    }

    #[inline(always)]
    fn pending<G: Group>(&self, group: G, ticket: Option<EndIndex>, pe: u32) -> Pending<'_, S> {
        let end = group.broadcast(ticket.map_or(0, |t| t.0));
        let part = if end == 0 { None } else { Some((self.qp(pe), EndIndex(end))) };
        Pending { parts: [part, None] }
    }
}
