//! A queue of kernels and what became of them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rushmem_device::Ctx;
use rushmem_device::abi::{CtxParts, DevAddr};
use rushmem_device::kernel::Call;

use super::{Needs, Ticket};
use crate::machine::{Grid, Mark, Queue, Step};
use crate::stream::Recorded;
use crate::{Error, Pe, Result, launch};

/// A queue with the word that tells which of its launches has failed.
pub(crate) struct Line {
    queue: Box<dyn Queue>,
    /// Its word on the board.
    word: u32,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Number of the last launch.
    launches: u32,
    /// The PE has been told that kernels run.
    runs: bool,
    /// Launches that did not run since one before them failed: the failed one, and the last.
    lost: Vec<(Ticket, u32)>,
    /// What keeps what runs.
    needs: Vec<Needs>,
    /// Graphs launched since the last wait.
    graphs: Vec<Arc<Recorded>>,
}

/// Launch numbers begin again here: the bit above is [`SEALED`](rushmem_device::abi::SEALED).
const NUMBERS: u32 = 1 << 31;

/// Failures that are remembered for those who have not waited yet.
const LOST: usize = 64;

impl Line {
    pub(crate) fn new(queue: Box<dyn Queue>, word: u32) -> Self {
        Self { queue, word, state: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends a kernel.
    pub(crate) fn launch(
        &self,
        pe: &Pe,
        (ctx, needs): (Ctx, Needs),
        name: &'static str,
        grid: Grid,
        call: Call,
    ) -> Result<Ticket> {
        launch::fits(&call, grid)?;
        let board = &pe.work().board;
        let mut state = self.lock();
        state.launches = (state.launches + 1) % NUMBERS;
        let ticket = board.ticket(state.launches, name);
        let ctx = marked(ctx, board.addr(self.word), ticket);
        self.queue.launch(Step { ctx, grid, call, module: needs.module.clone() })?;
        if !state.needs.contains(&needs) {
            state.needs.push(needs);
        }
        state.began(pe);
        tracing::debug!(pe = pe.my_pe(), kernel = name, ?grid, "launched");
        Ok(ticket)
    }

    /// Appends the kernels of a graph.
    pub(crate) fn replay(&self, pe: &Pe, graph: &Arc<Recorded>) -> Result<()> {
        let mut state = self.lock();
        self.queue.replay(graph.recording())?;
        state.began(pe);
        if !state.graphs.iter().any(|known| Arc::ptr_eq(known, graph)) {
            state.graphs.push(Arc::clone(graph));
        }
        Ok(())
    }

    /// A mark behind all that is in it now.
    pub(crate) fn mark(&self) -> Result<Mark> {
        self.queue.mark()
    }

    /// What is appended from now on begins after all that is before the mark.
    pub(crate) fn follow(&self, mark: &Mark) -> Result<()> {
        self.queue.follow(mark)
    }

    /// Waits until all that is in it has ended.
    ///
    /// # Errors
    /// That of the first launch that failed, with its name.
    pub(crate) fn wait(&self, pe: &Pe) -> Result<()> {
        let ran = self.drain(pe);
        // Before the queue's own failure is taken, which goes on then.
        let failed = self.failed(pe);
        let ran = ran.and(self.queue.take_failure().map_or(Ok(()), Err));
        let graphs = std::mem::take(&mut self.lock().graphs);
        let mut failed = failed?;
        for graph in &graphs {
            let first = pe.work().board.failed(graph.word())?;
            failed = failed.or(first);
        }
        let outcome = pe.verdict(ran, failed);
        for graph in &graphs {
            pe.work().board.clear(graph.word())?;
        }
        self.restart(pe, failed)?;
        outcome
    }

    /// Waits for one launch, behind which `mark` stands. If another one has failed, that is for who waits for that one.
    ///
    /// # Errors
    /// The launch's own; [`Error::NotRun`] if one before it has failed.
    pub(crate) fn wait_for(&self, pe: &Pe, ticket: Ticket, mark: &Mark) -> Result<()> {
        let ran = self.queue.wait(mark, pe.patience());
        let before = |failed: Ticket| Error::NotRun {
            kernel: pe.work().board.name(ticket),
            failed: pe.work().board.name(failed),
        };
        let number = ticket.number;
        self.lock().ended_with(pe, number);
        let lost = |state: &State| {
            let found = state.lost.iter().find(|(failed, last)| failed.number < number && number <= *last);
            found.map(|(failed, _)| *failed)
        };
        if let Some(failed) = lost(&self.lock()) {
            return Err(before(failed));
        }
        match self.failed(pe)? {
            Some(failed) if failed.number < number => Err(before(failed)),
            Some(failed) if failed == ticket => {
                let ran = ran.and(self.drain(pe));
                let ran = ran.and(self.queue.take_failure().map_or(Ok(()), Err));
                let outcome = pe.judge(ran, true);
                self.restart(pe, Some(failed))?;
                outcome
            }
            // What no launch answers for is for the first who looks.
            _ => pe.judge(ran, false),
        }
    }

    /// Waits until nothing runs in it.
    fn drain(&self, pe: &Pe) -> Result<()> {
        let ran = self.queue.mark().and_then(|mark| self.queue.wait(&mark, pe.patience()));
        self.lock().ended(pe);
        ran
    }

    /// The launch that failed, if any.
    fn failed(&self, pe: &Pe) -> Result<Option<Ticket>> {
        let told = pe.work().board.failed(self.word)?;
        Ok(told.or_else(|| self.queue.failed().and_then(Ticket::of)))
    }

    /// Lets it go on after a failure that is now known.
    fn restart(&self, pe: &Pe, failed: Option<Ticket>) -> Result<()> {
        let Some(failed) = failed else { return Ok(()) };
        let mut state = self.lock();
        let last = state.launches;
        if state.lost.len() == LOST {
            state.lost.remove(0);
        }
        state.lost.push((failed, last));
        pe.work().board.clear(self.word)
    }

    /// Ends it: what goes wrong now, nobody waits for.
    pub(crate) fn close(&self, pe: &Pe, what: &str) {
        if self.lock().runs
            && let Err(error) = self.wait(pe)
        {
            tracing::error!(pe = pe.my_pe(), "{what} that nobody waited for: {error}");
        }
    }
}

impl State {
    fn began(&mut self, pe: &Pe) {
        if !std::mem::replace(&mut self.runs, true) {
            pe.service().launched();
        }
    }

    /// Launch `number` has ended: if it was the last one, nothing runs.
    fn ended_with(&mut self, pe: &Pe, number: u32) {
        if number == self.launches {
            self.ended(pe);
        }
    }

    fn ended(&mut self, pe: &Pe) {
        self.needs.clear();
        if std::mem::replace(&mut self.runs, false) {
            pe.service().ended();
        }
    }
}

/// A context whose kernel tells by `status` that it has failed.
pub(crate) fn marked(ctx: Ctx, status: DevAddr, ticket: Ticket) -> Ctx {
    let parts = CtxParts { status, mark: ticket.mark(), ..*ctx.parts() };
    // SAFETY: the parts are a context's; the word is the board's, which lives as long as the PE.
    unsafe { Ctx::from_parts(parts) }
}
