//! Ordering and completion.
//!
//! | call | through a NIC | through mapped memory |
//! |---|---|---|
//! | `fence` | nothing to do while one QP serves a peer: it delivers in order; with several, waits for all of them | a fence at system scope |
//! | `quiet` | waits until the CQ has passed everything posted | the same fence |
//!
//! Mapped memory is reached both ways when atomics must go through the NIC, as they must as soon as one PE of the job
//! reaches another so. What was stored before an atomic is there before it, since a fence precedes every doorbell; what
//! is stored after it would overtake it, so `fence` waits for the QPs to those PEs.

use core::panic::Location;

use crate::arch::{Scope, Sys};
use crate::ctx::Ctx;
use crate::error::Result;
use crate::group::{Group, Thread, agree};
use crate::sharing::Sharing;

impl<S: Sharing> Ctx<S> {
    /// Orders: what the calling thread put, set or signalled before is delivered to each PE before what it issues
    /// to that PE afterwards. Completes nothing. OpenSHMEM 1.6 section 9.11, `shmem_fence`.
    ///
    /// # Errors
    /// Those of [`Ctx::quiet`], when it has to wait: several QPs serve a peer, or atomics on memory that is mapped
    /// here, at least this PE's own, go through the NIC.
    #[inline(always)]
    #[track_caller]
    pub fn fence(&self) -> Result {
        let p = self.parts_ref();
        if p.n_sets > 1 {
            return self.quiet(Thread);
        }
        let mut pe = p.mixed_from;
        while pe < p.mixed_to {
            let peer = self.peer(pe)?;
            if peer.mapped::<u8>(0).is_some() && !peer.direct_atomics {
                let qp = self.qp(pe);
                qp.wait(qp.last(), Location::caller())?;
            }
            pe += 1;
        }
        Sys::fence();
        Ok(())
    }

    /// Completes: everything posted through this context before, by whatever thread, is delivered and visible at
    /// its PE, gets and fetches have their results. OpenSHMEM 1.6 section 9.11, `shmem_quiet`.
    ///
    /// The threads of the group share the work of looking at the queues.
    ///
    /// # Errors
    /// [`Error::Completion`](crate::Error::Completion) if the NIC ended an operation with an error,
    /// [`Error::Timeout`](crate::Error::Timeout), [`Error::Aborted`](crate::Error::Aborted).
    #[inline(always)]
    #[track_caller]
    pub fn quiet<G: Group>(&self, group: G) -> Result {
        group.sync();
        Sys::fence();
        let (p, site) = (self.parts_ref(), Location::caller());
        let mut mine = Ok(());
        let mut pe = group.rank();
        while pe < p.n_pes {
            let mut set = p.first_set;
            while set < p.first_set + p.n_sets {
                let qp = self.qp_of_set(set, pe);
                mine = mine.and(qp.wait(qp.last(), site));
                set += 1;
            }
            pe += group.size();
        }
        agree(group, mine)
    }
}
