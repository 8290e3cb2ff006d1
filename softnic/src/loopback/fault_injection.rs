//! Faults of execution: what hardware may do with the entries of one QP, and a careless program trips over.
//!
//! Faults are drawn once for each entry, when its turn comes: does the QP stand still first, is the message moved in
//! pieces, does its answer come late. Entries behind a late answer go on unless they ask for a fence, but their
//! completions wait for it, as all completions of a QP are in order.

use super::{Outcome, Parts, give_old, read};
use crate::core::{Done, Output, complete, fail};
use crate::dma::User;
use crate::qp::{Qp, State};
use crate::wqe::waits_for_reads;
use rushmem_mlx5::wqe::View;
use rushmem_mlx5::{Opcode, Segment, Syndrome};
use std::collections::VecDeque;
use std::ops::Range;
use std::time::Instant;

/// What faults do to one QP.
#[derive(Default)]
pub(crate) struct LoopbackFaults {
    /// The entry that the faults were drawn for.
    cast: Option<u16>,
    /// The QP stands still until then.
    until: Option<Instant>,
    /// What is still to be moved of the message at the head of the queue; the last one goes next.
    pieces: Vec<Range<u64>>,
    /// When the answer to the entry at the head of the queue comes.
    due: Option<Instant>,
    /// The old value of an atomic whose answer is late.
    pub(super) old: u64,
    /// Entries that have been executed, from the first one whose answer is late.
    unanswered: VecDeque<Unanswered>,
}

/// An executed entry without completion.
struct Unanswered {
    done: Done,
    signaled: bool,
    due: Instant,
    /// The entry and an atomic's old value, where an answer is late; entries without only wait for those before them.
    answer: Option<(Box<[Segment]>, u64)>,
}

impl LoopbackFaults {
    /// The part of a split message that is moved next.
    pub(super) fn piece(&self) -> Option<Range<u64>> {
        self.pieces.last().cloned()
    }

    /// Whether the entry at the head of the queue is answered late.
    pub(super) fn is_late(&self) -> bool {
        self.due.is_some()
    }

    /// Forgets everything, and gives the entries without completion.
    pub(crate) fn take(&mut self) -> impl Iterator<Item = Done> + use<> {
        std::mem::take(self).unanswered.into_iter().map(|entry| entry.done)
    }
}

fn fetches(view: &View<'_>) -> bool {
    view.opcode() == Opcode::RDMA_READ || view.atomic().is_some()
}

/// Draws the faults for the entry at the head of the queue, if that has not been done. If it has to wait, says until when.
pub(super) fn waits(qp: &mut Qp, view: &View<'_>, out: &mut Output) -> Option<Instant> {
    let most = 1usize << qp.attrs.log_sra_max;
    let state = &mut qp.faults;
    if state.cast.replace(view.ctrl().index()) != Some(view.ctrl().index()) {
        state.until = out.draw_stall();
        state.due = if fetches(view) { out.draw_late_answer() } else { None };
        let moves = matches!(view.opcode(), Opcode::RDMA_READ | Opcode::RDMA_WRITE | Opcode::RDMA_WRITE_IMM);
        state.pieces = match view.remote() {
            Some(at) if moves && state.due.is_none() => out.draw_split(at.addr.get(), view.data_len()),
            _ => Vec::new(),
        };
    }
    if let Some(until) = state.until.filter(|until| *until > out.now) {
        return Some(until);
    }
    let last = state.unanswered.back()?.due;
    if waits_for_reads(view.flags()) {
        return Some(last);
    }
    if fetches(view) {
        if state.unanswered.iter().filter(|entry| entry.answer.is_some()).count() >= most {
            return Some(last);
        }
        // Answers are in order.
        state.due = Some(state.due.map_or(last, |due| due.max(last)));
        state.pieces.clear();
    }
    None
}

/// Notes that a part of the message at the head of the queue has been moved; the QP may stand still before the next.
pub(super) fn moved(qp: &mut Qp, out: &mut Output) {
    if qp.faults.pieces.pop().is_some() && !qp.faults.pieces.is_empty() {
        qp.faults.until = out.draw_stall();
    }
}

/// Takes an executed entry that must not complete yet; false if it may.
pub(super) fn holds(qp: &mut Qp, view: &View<'_>, done: Done, out: &mut Output) -> bool {
    let state = &mut qp.faults;
    let signaled = view.flags().is_signaled();
    let (due, answer) = match (state.due.take(), state.unanswered.back()) {
        (Some(due), _) => (due, Some((view.segments().into(), state.old))),
        (None, Some(before)) => (before.due, None),
        (None, None) => return false,
    };
    state.unanswered.push_back(Unanswered { done, signaled, due, answer });
    out.wakeups.push((due, qp.qpn));
    true
}

/// Gives the answers that are due, or all, and completes the entries behind them. False if the QP is in error then, and
/// has to be flushed.
pub(super) fn answer(qpn: u32, parts: Parts<'_>, all: bool) -> bool {
    let Parts { qps, cqs, mkeys, dma, out } = parts;
    loop {
        let Some(qp) = qps.get_mut(qpn) else { return true };
        if qp.state != State::Rts {
            return false;
        }
        let Some(next) = qp.faults.unanswered.front() else { return true };
        if next.due > out.now && !all {
            out.wakeups.push((next.due, qpn));
            return true;
        }
        let Some(Unanswered { done, signaled, answer, .. }) = qp.faults.unanswered.pop_front() else {
            return true;
        };
        let (user, peer) = (User { pd: qp.pd, qpn }, qp.attrs.remote_qpn);
        let answered = answer.map_or(Ok(()), |(segments, old)| {
            let Ok(view) = View::parse(&segments) else { return Ok(()) };
            match (view.opcode(), view.remote()) {
                (Opcode::RDMA_READ, Some(at)) => {
                    let target = qps.get(peer).filter(|target| target.state.receives());
                    let target = target.ok_or(Outcome::Silent)?;
                    read(&view, user, target, mkeys, dma, at, 0..view.data_len())
                }
                _ => give_old(&view, mkeys, dma, user, old),
            }
        });
        let answered = answered.and_then(|()| Ok(dma.flush()?));
        let Some(qp) = qps.get_mut(qpn) else { return true };
        let (syndrome, vendor) = match answered {
            Ok(()) => {
                if signaled {
                    complete(qp, cqs, out, done);
                }
                continue;
            }
            Err(Outcome::Local(refused)) => refused.syndrome(),
            Err(Outcome::Remote(refusal)) => refusal.syndrome(),
            Err(_) => (Syndrome::TRANSPORT_RETRY_EXC_ERR, 0),
        };
        fail(qp, cqs, out, done, syndrome, vendor);
        if let Some(target) = qps.get_mut(peer).filter(|target| target.attrs.remote_qpn == qpn) {
            out.fail_qp(target, syndrome);
        }
    }
}
