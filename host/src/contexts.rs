//! The sets of queues for contexts that the host makes.

use std::any::TypeId;
use std::sync::{Mutex, MutexGuard};
use std::time::Instant;

use rushmem_base::lock;
use rushmem_device::{Context, PerGpu};
use rushmem_fabric::queues::{RemoteEnd, Service, Shape};

use crate::{Error, Result};

/// The sets of queues for contexts, and their use.
///
/// A set serves one sharing, and leads to the same PEs, until the job ends. Posters with less synchronisation must
/// never meet posters with more, even through a context that was destroyed. Connections stay, too.
pub(crate) struct Contexts {
    sets: Mutex<Vec<Set>>,
    shape: Shape,
}

/// A set of queues.
#[derive(Clone, Default)]
struct Set {
    /// The purpose since it was first taken.
    purpose: Option<Purpose>,
    in_use: bool,
}

/// The sharing of a set, and the only PEs that it leads to.
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

    /// Takes a set for a context with this sharing and these peers.
    ///
    /// # Errors
    /// - [`Error::Unavailable`] if all sets are in use or have another purpose.
    pub(crate) fn take(&self, sharing: TypeId, peers: Option<Vec<u32>>, service: &Service) -> Result<u32> {
        let mut sets = self.sets();
        let wanted = Purpose { sharing, peers };
        let free = |set: &Set| !set.in_use && set.purpose.is_none();
        let index = sets
            .iter()
            .position(|set| !set.in_use && set.purpose.as_ref() == Some(&wanted))
            .or_else(|| sets.iter().position(free));
        let Some(index) = index else {
            let why = format!(
                "the job has queues for {} contexts, which are in use or have another sharing or other PEs; raise \
                 RUSHMEM_CONTEXT_QPS",
                sets.len()
            );
            return Err(Error::Unavailable { what: "another context".into(), why });
        };
        if let (None, Some(peers)) = (&sets[index].purpose, &wanted.peers) {
            service.limit(self.shape.context_qps(index as u32), peers)?;
        }
        sets[index] = Set { purpose: Some(wanted), in_use: true };
        Ok(index as u32)
    }

    fn check(&self, call: &'static str, sharing: TypeId, index: u32) -> Result<()> {
        let ours = |set: &Set| set.in_use && set.purpose.as_ref().is_some_and(|p| p.sharing == sharing);
        if !self.sets().get(index as usize).is_some_and(ours) {
            let what = format!("context {index} does not exist, or has been destroyed");
            return Err(Error::misuse(call, what));
        }
        Ok(())
    }

    /// Returns the first QP set of the context, for operations that the host initiates.
    ///
    /// # Errors
    /// - [`Error::Misuse`] if the context has been destroyed.
    pub(crate) fn set(&self, call: &'static str, context: Context) -> Result<u32> {
        self.check(call, TypeId::of::<PerGpu>(), context.index())?;
        Ok(self.shape.context_set(context.index()))
    }

    /// Gives a set back after everything posted to it is complete, and returns its number. `ends` returns the ends of symmetric memory beyond the
    /// heap, by PE and rail.
    ///
    /// # Errors
    /// - [`Error::Misuse`] if the context has been destroyed.
    /// - [`Error::Unavailable`] if postings are not complete at `until`.
    pub(crate) fn give_back(
        &self,
        sharing: TypeId,
        index: u32,
        service: &Service,
        ends: impl Fn(u32, usize) -> Vec<RemoteEnd>,
        until: Instant,
    ) -> Result<u32> {
        self.check("destroy_context", sharing, index)?;
        service.drain(self.shape.context_qps(index), ends, until)?;
        if let Some(set) = self.sets().get_mut(index as usize) {
            set.in_use = false;
        }
        Ok(self.shape.context_set(index))
    }
}
