//! Contexts that the host makes and destroys.
#![allow(unsafe_code, reason = "makes the handle of a context from the number of its queues")]

use std::any::TypeId;
use std::sync::{Mutex, MutexGuard};
use std::time::Instant;

use rushmem_base::lock;
use rushmem_device::{Claim, Context, PerGpu};

use crate::queues::{Service, Shape};
use crate::{Error, Pe, Result};

/// Which of the contexts' sets of queues are in use. A set serves one sharing as long as the job runs: who posts to it with
/// less synchronisation must never meet who posts with more, not even by a context that was destroyed. So with the PEs that it
/// leads to: connections stay.
pub(crate) struct Contexts {
    sets: Mutex<Vec<Set>>,
    shape: Shape,
}

#[derive(Clone, Default)]
struct Set {
    /// Who posts, and to which PEs only, since it was first taken.
    purpose: Option<Purpose>,
    in_use: bool,
}

/// What a set is for.
#[derive(Clone, PartialEq, Eq)]
struct Purpose {
    sharing: TypeId,
    peers: Option<Vec<u32>>,
}

impl Contexts {
    pub(crate) fn new(shape: Shape) -> Self {
        Self { sets: Mutex::new(vec![Set::default(); shape.context_sets as usize]), shape }
    }

    fn sets(&self) -> MutexGuard<'_, Vec<Set>> {
        lock(&self.sets)
    }

    fn take(&self, sharing: TypeId, peers: Option<Vec<u32>>, service: &Service) -> Result<u32> {
        let mut sets = self.sets();
        let wanted = Purpose { sharing, peers };
        let free = |set: &Set| !set.in_use && set.purpose.is_none();
        let place = sets
            .iter()
            .position(|set| !set.in_use && set.purpose.as_ref() == Some(&wanted))
            .or_else(|| sets.iter().position(free));
        let Some(place) = place else {
            let why = format!(
                "the job has QPs for {}, which are in use or made for another sharing or other PEs; raise \
                 RUSHMEM_CONTEXT_QPS",
                sets.len()
            );
            return Err(Error::Unavailable { what: "another context".into(), why });
        };
        if let (None, Some(peers)) = (&sets[place].purpose, &wanted.peers) {
            service.limit(self.shape.context_qps(place as u32), peers)?;
        }
        sets[place] = Set { purpose: Some(wanted), in_use: true };
        Ok(place as u32)
    }

    fn check(&self, call: &'static str, sharing: TypeId, index: u32) -> Result<()> {
        let ours = |set: &Set| set.in_use && set.purpose.as_ref().is_some_and(|p| p.sharing == sharing);
        if !self.sets().get(index as usize).is_some_and(ours) {
            let what = format!("context {index} is not there, or has been destroyed");
            return Err(Error::Misuse { call, what });
        }
        Ok(())
    }

    /// What the host initiates through this context uses the sets of queues from this one on.
    pub(crate) fn set(&self, call: &'static str, context: Context) -> Result<u32> {
        self.check(call, TypeId::of::<PerGpu>(), context.index())?;
        Ok(self.shape.context_set(context.index()))
    }

    fn give_back(&self, sharing: TypeId, index: u32, service: &Service, until: Instant) -> Result<()> {
        self.check("destroy_context", sharing, index)?;
        service.drain(self.shape.context_qps(index), until)?;
        if let Some(set) = self.sets().get_mut(index as usize) {
            set.in_use = false;
        }
        Ok(())
    }
}

impl Pe {
    /// Makes a context: queues of its own, which a kernel uses by [`Ctx::context`](rushmem_device::Ctx::context), and the host
    /// by a stream ([`Stream::with_context`](crate::Stream::with_context)). What is posted there is ordered and completed by
    /// itself. Not collective. OpenSHMEM 1.6 section 9.5, `shmem_ctx_create`.
    ///
    /// ```ignore
    /// let halo = pe.context::<PerGpu>()?;
    /// pe.run(grid, exchange(halo, cells))?;
    /// pe.destroy_context(halo)?;
    /// ```
    ///
    /// # Errors
    /// [`Error::Unavailable`] if all that the job has QPs for are in use (`context_qps`); nothing else is affected.
    pub fn context<S: Claim>(&self) -> Result<Context<S>> {
        self.context_of(None)
    }

    /// As [`Pe::context`], with queues to these PEs only: the others take no QPs, and a kernel that posts to one of them ends
    /// with an error. What goes to mapped memory needs no queue, and is not restrained.
    ///
    /// # Errors
    /// As [`Pe::context`]; [`Error::Misuse`] if there is no such PE; [`Error::Unavailable`] if the queues lead to all PEs since
    /// the job began (`connect` is `eager`).
    pub fn context_to<S: Claim>(&self, peers: &[u32]) -> Result<Context<S>> {
        peers.iter().try_for_each(|&pe| self.check_pe("context_to", pe))?;
        let mut peers = peers.to_vec();
        peers.sort_unstable();
        peers.dedup();
        self.context_of(Some(peers))
    }

    fn context_of<S: Claim>(&self, peers: Option<Vec<u32>>) -> Result<Context<S>> {
        let index = self.contexts.take(TypeId::of::<S>(), peers, self.service())?;
        // SAFETY: `take` gives a number to one sharing only, as long as the job runs.
        Ok(unsafe { Context::from_raw(index) })
    }

    /// Destroys a context, after all that was posted to it is complete; no kernel uses it any more. Not collective.
    /// OpenSHMEM 1.6 section 9.5, `shmem_ctx_destroy`.
    ///
    /// # Errors
    /// [`Error::Misuse`] if it has been destroyed; [`Error::Unavailable`] if it is not complete before the deadline
    /// (`timeout`).
    pub fn destroy_context<S: Claim>(&self, context: Context<S>) -> Result<()> {
        let until = Instant::now() + self.config().timeout;
        self.contexts.give_back(TypeId::of::<S>(), context.index(), self.service(), until)
    }
}
