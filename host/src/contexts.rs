//! Assigns QP sets to the contexts that the host creates.

use std::any::TypeId;
use std::sync::{Mutex, MutexGuard};
use std::time::Instant;

use rushmem_base::lock;
use rushmem_device::{Context, PerGpu};
use rushmem_fabric::queues::{RemoteEnd, Service, Shape};

use crate::{Error, Result};

/// The QP sets reserved for contexts, and which of them are in use.
///
/// A set keeps its sharing and its peers for the rest of the job, and its connections as well. Otherwise, posters with
/// weaker synchronization could meet posters with stronger synchronization on a queue through a context that has been
/// destroyed.
pub(crate) struct Contexts {
    sets: Mutex<Vec<Set>>,
    shape: Shape,
}

#[derive(Clone, Default)]
struct Set {
    /// Sharing and peers of the contexts that may use the QP set. Fixed by its first use.
    purpose: Option<Purpose>,
    in_use: bool,
}

/// The sharing of a QP set, and the PEs to which it is limited, if any.
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

    /// Reserves a QP set for a context with the given sharing and peers. Returns the context's index.
    ///
    /// # Errors
    /// - [`Error::Unavailable`] if all sets are in use or serve another purpose.
    pub(crate) fn take(&self, sharing: TypeId, peers: Option<Vec<u32>>, service: &Service) -> Result<u32> {
        let mut sets = self.sets();
        let wanted = Purpose { sharing, peers };
        let free = |set: &Set| !set.in_use && set.purpose.is_none();
        // Prefer a set that has served the same purpose: its QPs may be connected already.
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
        // Limited once and for all: a set never changes its purpose.
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

    /// Returns the first QP set of a context, for operations initiated by the host.
    ///
    /// # Errors
    /// - [`Error::Misuse`] if the context has been destroyed.
    pub(crate) fn set(&self, call: &'static str, context: Context) -> Result<u32> {
        self.check(call, TypeId::of::<PerGpu>(), context.index())?;
        Ok(self.shape.context_set(context.index()))
    }

    /// Releases the QP sets of a context after everything posted to them has completed. Returns the index of the first
    /// set. `ends` returns what to read back in symmetric memory other than the heap, by PE and rail.
    ///
    /// # Errors
    /// - [`Error::Misuse`] if the context has been destroyed.
    /// - [`Error::Unavailable`] if operations are not complete at `until`.
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
