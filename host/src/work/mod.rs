//! What a PE's kernels are launched with, and what became of them.
//!
//! A kernel that fails leaves a record of what happened on the PE's control page, and its mark in the word of the queue
//! that it is in. The record says what is wrong, the mark whose it is.

mod board;
mod line;
mod needs;
mod ops;
mod pool;
mod scratch;

use rushmem_device::kernel::Call;

pub(crate) use board::{Board, OWN, Ticket};
pub(crate) use line::{Line, marked};
pub(crate) use needs::Needs;
pub(crate) use ops::Announcement;
pub(crate) use pool::Place;
pub(crate) use scratch::{Chunk, Scratch};

use crate::machine::{Grid, Machine, Step};
use crate::{Error, Pe, Result};

/// The queues of a PE.
pub(crate) struct Work {
    /// The PE's own queue.
    pub(crate) own: Line,
    pub(crate) board: Board,
    pub(crate) scratch: Scratch,
}

/// A kernel of the runtime's, with the name of the operation that it does.
pub(crate) struct Op {
    pub(crate) name: &'static str,
    pub(crate) grid: Grid,
    pub(crate) call: Call,
}

impl Work {
    /// `scratch` bytes from the base of the heap lies [`Scratch::BYTES`] of the runtime's.
    pub(crate) fn new(machine: &dyn Machine, scratch: u64) -> Result<Self> {
        Ok(Self {
            own: Line::new(machine.queue()?, OWN),
            board: Board::new(machine)?,
            scratch: Scratch::new(scratch),
        })
    }
}

impl Pe {
    /// Does an operation now, on the calling thread, beside all queues. Nobody else's errors are its own.
    ///
    /// # Errors
    /// [`Error::Operation`].
    pub(crate) fn initiate(&self, op: Op) -> Result<()> {
        let board = &self.work().board;
        let word = board.take(self.config().timeout)?;
        let ticket = board.ticket(1, op.name);
        let (ctx, needs) = self.context_for(&op.call)?;
        let ctx = marked(ctx, board.addr(word.index), ticket);
        self.service().launched();
        let step = Step { ctx, grid: op.grid, call: op.call, module: needs.module.clone() };
        let ran = self.machine_ref().run(step, self.patience());
        self.service().ended();
        let mut failed = board.failed(word.index)?;
        if failed.is_some() {
            board.clear(word.index)?;
        } else if ran.is_err() {
            failed = Some(ticket);
        }
        match failed {
            None => Ok(()),
            failed => self.verdict(ran, failed),
        }
    }

    /// What became of launches that have ended: `failed` is the first that says that it failed, `ran` what the machine
    /// says.
    pub(crate) fn verdict(&self, ran: Result<()>, failed: Option<Ticket>) -> Result<()> {
        let outcome = self.judge(ran, failed.is_some());
        match (outcome, failed) {
            (Err(error), Some(failed)) if !matches!(error, Error::PeerLost(_)) => {
                Err(Error::Operation { what: self.work().board.name(failed), cause: Box::new(error) })
            }
            (outcome, _) => outcome,
        }
    }

    /// As [`Pe::verdict`], without a name. What is recorded belongs to a launch that failed; if none of this queue has,
    /// it may be for another one: that has failed, or still runs and is about to say so. What no launch answers for is for the
    /// first who looks when nothing runs.
    pub(crate) fn judge(&self, ran: Result<()>, failed: bool) -> Result<()> {
        // Before it is asked who has failed: of what has ended, that is known.
        let busy = self.service().is_busy();
        if !failed && self.work().board.any_failed()? {
            return ran;
        }
        if let Some(failure) = self.service().take_failure() {
            self.take_errors()?;
            return Err(failure);
        }
        let error = if failed || !busy { self.take_errors()? } else { None };
        match (error, self.lost()) {
            // What this kernel met by itself may be why the other PE has given up.
            (Some(error), lost) if lost.is_none() || !is_explained_by_loss(&error) => Err(error),
            (_, Some(lost)) => Err(Error::PeerLost(lost)),
            (None, None) if failed && ran.is_ok() => Err(match self.service().poisoned()? {
                Some((peer, qpn)) => Error::Poisoned { peer, qpn },
                None => Error::Unrecorded,
            }),
            _ => ran,
        }
    }
}

fn is_explained_by_loss(error: &Error) -> bool {
    matches!(error, Error::Device { first, .. } if first.is_explained_by_loss())
}
