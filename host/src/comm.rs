//! Communicators: signals, barriers and contexts for the kernels of an application, allocated in one call.

use rushmem_device::{ClaimableSharing, Context, Signal, SymSlice, Team};

use crate::{Pe, Result, TeamConfig};

/// The numbers of signals, barriers and contexts that a [`Comm`] is created with. NCCL's `ncclDevCommRequirements`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommRequirements {
    signals: usize,
    barriers: usize,
    contexts: usize,
    peers: Option<Vec<u32>>,
}

impl CommRequirements {
    /// Creates requirements for a communicator without signals, barriers and contexts.
    pub const fn new() -> Self {
        Self { signals: 0, barriers: 0, contexts: 0, peers: None }
    }

    /// Sets the number of signals. Their values start at 0. Must be equal on all PEs.
    pub const fn signals(mut self, signals: usize) -> Self {
        self.signals = signals;
        self
    }

    /// Sets the number of barriers. Each barrier synchronizes one block of every PE, independently of the others. Must
    /// be equal on all PEs.
    pub const fn barriers(mut self, barriers: usize) -> Self {
        self.barriers = barriers;
        self
    }

    /// Sets the number of contexts. Each context has its own queues. May differ between PEs.
    pub const fn contexts(mut self, contexts: usize) -> Self {
        self.contexts = contexts;
        self
    }

    /// Limits the contexts to the PEs `peers`, as [`Pe::context_to`] does. NCCL's `ncclGinConnectionType_t`.
    pub fn peers(mut self, peers: &[u32]) -> Self {
        self.peers = Some(peers.to_vec());
        self
    }
}

/// A communicator: signals, barriers and contexts for kernels. [`Pe::comm`] creates it.
///
/// A kernel gets the parts as arguments. `S` is the sharing of the contexts: which threads may post to a context.
#[derive(Debug)]
pub struct Comm<S> {
    signals: SymSlice<Signal>,
    barriers: Vec<Team>,
    contexts: Vec<Context<S>>,
}

impl<S> Comm<S> {
    /// Returns the signals, as one symmetric object.
    pub fn signals(&self) -> SymSlice<Signal> {
        self.signals
    }

    /// Returns the barriers. Each is a team of all PEs, on which one block of each PE may synchronize at a time.
    pub fn barriers(&self) -> &[Team] {
        &self.barriers
    }

    /// Returns the contexts, which belong to this PE only.
    pub fn contexts(&self) -> &[Context<S>] {
        &self.contexts
    }
}

/// # Communicators
///
/// Signals, barriers and contexts for kernels, created in one call.
impl Pe {
    /// Creates a communicator with the resources `needs`. Collective. NCCL's `ncclDevCommCreate`.
    ///
    /// ```no_run
    /// # use rushmem::{CommRequirements, prelude::*};
    /// # use rushmem_device::prelude::*;
    /// #[kernel]
    /// pub fn exchange(ctx: &Ctx, queues: Context<PerBlock>, members: Team, arrived: SymSlice<Signal>) -> Result {
    ///     let (block, next) = (Block::current(), ctx.pe_after(1));
    ///     if block.leader() {
    ///         ctx.context(queues)?.signal_op(arrived.at(0).add(1), next)?;
    ///     }
    ///     ctx.signal_wait_until(block, arrived.at(0), Cmp::Ge, 1)?;
    ///     ctx.team_sync(block, members)
    /// }
    ///
    /// # fn solve(pe: &Pe, left: u32, right: u32) -> rushmem::Result<()> {
    /// let needs = CommRequirements::new().signals(8).barriers(2).contexts(4).peers(&[left, right]);
    /// let comm = pe.comm::<PerBlock>(&needs)?;
    /// let call = exchange(comm.contexts()[0], comm.barriers()[0], comm.signals());
    /// pe.run(LaunchConfig::new(1, 128), call)?;
    /// pe.destroy_comm(comm)
    /// # }
    /// # fn main() {}
    /// ```
    ///
    /// # Errors
    /// Every PE returns an error, and no resources remain allocated:
    /// - [`Error::Unavailable`](crate::Error::Unavailable) if the job has lost a PE.
    /// - [`Error::Mismatch`](crate::Error::Mismatch) if the numbers of signals or barriers differ.
    /// - The errors of [`Pe::alloc`] for the signals.
    /// - The errors of [`Pe::team_split_strided`] for the barriers; the setting `teams` limits their number.
    /// - The errors of [`Pe::context_to`] for the contexts; the setting `context_qps` limits their number.
    pub fn comm<S: ClaimableSharing>(&self, needs: &CommRequirements) -> Result<Comm<S>> {
        let arguments = format!("{} signals, {} barriers", needs.signals, needs.barriers);
        self.needs_all_pes()?;
        self.agree("comm", &arguments)?;
        let mut comm =
            Comm { signals: self.alloc(needs.signals)?, barriers: Vec::new(), contexts: Vec::new() };
        let made = self.add_barriers_and_contexts(&mut comm, needs);
        if let Err(error) = made {
            if let Err(also) = self.destroy_comm(comm) {
                tracing::warn!(
                    "a communicator could not be created, and its parts could not be freed: {also}"
                );
            }
            return Err(error);
        }
        Ok(comm)
    }

    /// Creates the requested barriers and contexts, and adds them to `comm`. On an error, `comm` contains those created
    /// so far.
    fn add_barriers_and_contexts<S: ClaimableSharing>(
        &self,
        comm: &mut Comm<S>,
        needs: &CommRequirements,
    ) -> Result<()> {
        for _ in 0..needs.barriers {
            comm.barriers.push(self.team_split_strided(
                Team::WORLD,
                0,
                1,
                self.n_pes(),
                TeamConfig::new(),
            )?);
        }
        // Contexts are not collective. A PE that fails to create one still takes part in `conclude`.
        let mut contexts = Ok(());
        while contexts.is_ok() && comm.contexts.len() < needs.contexts {
            let made = match &needs.peers {
                Some(peers) => self.context_to(peers),
                None => self.context(),
            };
            contexts = made.map(|context| comm.contexts.push(context));
        }
        self.conclude("comm", contexts)
    }

    /// Destroys a communicator after everything posted to its contexts has completed. Collective. NCCL's
    /// `ncclDevCommDestroy`.
    ///
    /// Kernels must not use the communicator any more.
    ///
    /// # Errors
    /// - The errors of [`Pe::destroy_context`], [`Pe::team_destroy`] and [`Pe::free`].
    pub fn destroy_comm<S: ClaimableSharing>(&self, comm: Comm<S>) -> Result<()> {
        comm.contexts.into_iter().try_for_each(|context| self.destroy_context(context))?;
        comm.barriers.into_iter().try_for_each(|team| self.team_destroy(team))?;
        self.free(comm.signals)
    }
}
