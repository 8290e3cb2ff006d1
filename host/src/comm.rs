//! What a kernel has for itself, asked for at once.

use rushmem_device::{Claim, Context, Signal, SymSlice, Team};

use crate::{Pe, Result, TeamConfig};

/// What a [`Comm`] is to have. NCCL's `ncclDevCommRequirements`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommRequirements {
    signals: usize,
    barriers: usize,
    contexts: usize,
    peers: Option<Vec<u32>>,
}

impl CommRequirements {
    /// Nothing.
    pub const fn new() -> Self {
        Self { signals: 0, barriers: 0, contexts: 0, peers: None }
    }

    /// So many signals, all 0. The same on all PEs.
    pub const fn signals(mut self, signals: usize) -> Self {
        self.signals = signals;
        self
    }

    /// So many barriers, by which as many blocks can meet those of other PEs at the same time. The same on all PEs.
    pub const fn barriers(mut self, barriers: usize) -> Self {
        self.barriers = barriers;
        self
    }

    /// So many contexts, with queues of their own.
    pub const fn contexts(mut self, contexts: usize) -> Self {
        self.contexts = contexts;
        self
    }

    /// The contexts lead to these PEs only: see [`Pe::context_to`]. NCCL's `ncclGinConnectionType_t`.
    pub fn peers(mut self, peers: &[u32]) -> Self {
        self.peers = Some(peers.to_vec());
        self
    }
}

/// What [`Pe::comm`] has made; a kernel gets its parts as arguments. `S` is who may post to each of the contexts.
#[derive(Debug)]
pub struct Comm<S> {
    signals: SymSlice<Signal>,
    barriers: Vec<Team>,
    contexts: Vec<Context<S>>,
}

impl<S> Comm<S> {
    /// The signals.
    pub fn signals(&self) -> SymSlice<Signal> {
        self.signals
    }

    /// The barriers: teams of all PEs, each for one block at a time.
    pub fn barriers(&self) -> &[Team] {
        &self.barriers
    }

    /// The contexts.
    pub fn contexts(&self) -> &[Context<S>] {
        &self.contexts
    }
}

impl Pe {
    /// Makes what a kernel is to have for itself, all of it or nothing. Collective. NCCL's `ncclDevCommCreate`.
    ///
    /// ```ignore
    /// let needs = CommRequirements::new().signals(8).barriers(2).contexts(4).peers(&[left, right]);
    /// let comm = pe.comm::<PerBlock>(&needs)?;
    /// pe.run(grid, exchange(comm.contexts()[0], comm.barriers()[0], comm.signals(), cells))?;
    /// pe.destroy_comm(comm)?;
    /// ```
    ///
    /// # Errors
    /// Those of [`Pe::alloc`], [`Pe::team_split_strided`] (the setting `teams`) and [`Pe::context_to`] (`context_qps`), on all
    /// PEs if on one.
    pub fn comm<S: Claim>(&self, needs: &CommRequirements) -> Result<Comm<S>> {
        let arguments = format!("{} signals, {} barriers", needs.signals, needs.barriers);
        self.agree("comm", &arguments)?;
        let mut comm =
            Comm { signals: self.alloc(needs.signals)?, barriers: Vec::new(), contexts: Vec::new() };
        let made = self.furnish(&mut comm, needs);
        if let Err(error) = made {
            if let Err(also) = self.destroy_comm(comm) {
                tracing::warn!("what had been made of the communicator could not be taken back: {also}");
            }
            return Err(error);
        }
        Ok(comm)
    }

    fn furnish<S: Claim>(&self, comm: &mut Comm<S>, needs: &CommRequirements) -> Result<()> {
        for _ in 0..needs.barriers {
            comm.barriers.push(self.team_split_strided(
                Team::WORLD,
                0,
                1,
                self.n_pes(),
                TeamConfig::new(),
            )?);
        }
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

    /// Takes it back, after all that was posted to its contexts is complete; no kernel uses it any more. Collective.
    /// NCCL's `ncclDevCommDestroy`.
    ///
    /// # Errors
    /// Those of [`Pe::destroy_context`], [`Pe::team_destroy`] and [`Pe::free`].
    pub fn destroy_comm<S: Claim>(&self, comm: Comm<S>) -> Result<()> {
        comm.contexts.into_iter().try_for_each(|context| self.destroy_context(context))?;
        comm.barriers.into_iter().try_for_each(|team| self.team_destroy(team))?;
        self.free(comm.signals)
    }
}
