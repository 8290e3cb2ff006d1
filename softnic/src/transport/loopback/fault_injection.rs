//! Injects execution faults into the loopback transport. Real hardware may show all of them.
//!
//! Faults are decided once per WQE, when it reaches the head of the queue: a stall before it, a split of its message, a
//! late answer. The WQEs after a late answer continue unless they request a fence, but their completions wait, since a
//! QP completes in order. A WRITE of an unordered QP may land late in the same way. Only WRITEs without strong ordering
//! may overtake it.

use super::{Outcome, give_old, move_read, move_write, observe};
use crate::dma::User;
use crate::objects::Objects;
use crate::objects::qp::{Dci, Qp, State, Unanswered};
use crate::queues::{complete, fail};
use crate::report::Report;
use crate::wqe::{self, Done, parse, waits_for_all, waits_for_reads};
use rushmem_mlx5::wqe::View;
use rushmem_mlx5::{Opcode, Syndrome};
use std::time::Instant;

fn fetches(view: &View<'_>) -> bool {
    view.opcode() == Opcode::RDMA_READ || view.atomic().is_some()
}

/// Decides, once, which faults affect the WQE at the head of the queue. Returns the time until which the WQE must wait,
/// if any.
pub(super) fn waits(qp: &mut Qp, view: &View<'_>, report: &mut Report) -> Option<Instant> {
    let (qpn, most) = (qp.qpn, 1usize << qp.attrs.log_sra_max);
    let state = &mut qp.faults;
    if state.cast.replace(view.ctrl().index()) != Some(view.ctrl().index()) {
        state.until = report.draw_stall(qpn);
        state.due = if view.xrc_srqn().is_some() {
            // By the time of the answer, the target may serve another queue.
            None
        } else if fetches(view) {
            report.draw_late_answer(qpn)
        } else if view.opcode() == Opcode::RDMA_WRITE && qp.attrs.unordered {
            report.draw_unordered(qpn)
        } else {
            None
        };
        // A late message is moved as a whole.
        let moves = matches!(view.opcode(), Opcode::RDMA_READ | Opcode::RDMA_WRITE | Opcode::RDMA_WRITE_IMM);
        state.pieces = match view.remote() {
            Some(at) if moves && state.due.is_none() => {
                report.draw_split(qpn, at.addr.get(), view.data_len())
            }
            _ => Vec::new(),
        };
    }
    if let Some(until) = state.until.filter(|until| *until > report.now) {
        return Some(until);
    }
    let last = state.unanswered.back()?.due;
    // Everything but a plain WRITE is ordered after earlier WRITEs, so it waits for late ones to land.
    let passes_writes =
        matches!(view.opcode(), Opcode::RDMA_WRITE | Opcode::NOP) && !waits_for_all(view.flags());
    if (!passes_writes && state.unanswered.iter().any(Unanswered::is_write))
        || (waits_for_reads(view.flags()) && state.unanswered.iter().any(Unanswered::is_fetch))
    {
        return Some(last);
    }
    if fetches(view) {
        // `log_sra_max` limits outstanding READs and atomics, and a late one is outstanding.
        if state.unanswered.iter().filter(|entry| entry.is_fetch()).count() >= most {
            return Some(last);
        }
        // Answers are in order, so this one cannot precede the last.
        state.due = Some(state.due.map_or(last, |due| due.max(last)));
        state.pieces.clear();
    }
    None
}

/// Returns when part of a WRITE reaches memory, if that may happen after its acknowledgement.
///
/// Within one protection domain, a completion may be taken as proof that the data is there, so such a WRITE reaches
/// memory first. So does one with an immediate value, which announces its data.
pub(super) fn posts(view: &View<'_>, user: User, target: &Qp, report: &mut Report) -> Option<Instant> {
    let own = user.pd == target.pd;
    if own || view.opcode() != Opcode::RDMA_WRITE { None } else { report.draw_posted(user.qpn) }
}

/// Records that part of a message was moved. The QP may stall before the next part is.
pub(super) fn moved(qp: &mut Qp, report: &mut Report) {
    if qp.faults.pieces.pop().is_some() && !qp.faults.pieces.is_empty() {
        qp.faults.until = report.draw_stall(qp.qpn);
    }
}

/// Takes over an executed WQE that must not complete yet. Returns `false` if it may complete.
pub(super) fn holds(qp: &mut Qp, view: &View<'_>, done: Done, report: &mut Report) -> bool {
    let state = &mut qp.faults;
    let signaled = view.flags().is_signaled();
    let (due, answer) = match (state.due.take(), state.unanswered.back()) {
        // Answers are in order.
        (Some(due), before) => {
            let due = before.map_or(due, |before| before.due.max(due));
            (due, Some((view.segments().into(), state.old)))
        }
        // An on-time WQE completes after the late one before it.
        (None, Some(before)) => (before.due, None),
        (None, None) => return false,
    };
    state.unanswered.push_back(Unanswered { done, signaled, due, answer });
    report.wakeups.push((due, qp.qpn));
    true
}

/// Delivers the late answers of a QP that are due, or all of them, and completes the WQEs that waited for them.
///
/// Returns `false` if the QP has failed and must be flushed.
pub(super) fn answer(qpn: u32, objects: &mut Objects, report: &mut Report, all: bool) -> bool {
    let Objects { qps, cqs, mkeys, dma, .. } = objects;
    loop {
        let Some(qp) = qps.get_mut(qpn) else { return true };
        if qp.state != State::Rts {
            return false;
        }
        let Some(next) = qp.faults.unanswered.front() else { return true };
        if next.due > report.now && !all {
            report.wakeups.push((next.due, qpn));
            return true;
        }
        let Some(Unanswered { done, signaled, answer, .. }) = qp.faults.unanswered.pop_front() else {
            return true;
        };
        let (user, peer) = (User { pd: qp.pd, qpn }, qp.attrs.remote_qpn);
        let number = qp.dci.as_deref().and_then(Dci::dctn).unwrap_or(peer);
        let service = qp.service;
        let answered = answer.map_or(Ok(()), |(segments, old)| {
            // The copy of the WQE was parsed before, so this cannot fail.
            let Ok(view) = parse(service, &segments) else { return Ok(()) };
            match (view.opcode(), view.remote()) {
                (Opcode::RDMA_READ, Some(at)) => {
                    let target = qps.get(peer).filter(|target| target.state.receives());
                    let target = target.ok_or(Outcome::Silent)?;
                    move_read(&view, (user, 0..view.data_len()), target, mkeys, dma, at)
                }
                (Opcode::RDMA_WRITE, Some(at)) => {
                    let target = qps.get(peer).filter(|target| target.state.receives());
                    let target = target.ok_or(Outcome::Silent)?;
                    report.note_change(target.owner);
                    let since = report.lookout.time();
                    move_write(&view, (user, 0..view.data_len()), target, mkeys, (dma, report), at)?;
                    observe::arrives(&view, number, since, dma, report);
                    Ok(())
                }
                _ => give_old(&view, mkeys, dma, user, old),
            }
        });
        let answered = answered.and_then(|()| Ok(dma.flush()?));
        let Some(qp) = qps.get_mut(qpn) else { return true };
        let (syndrome, vendor) = match answered {
            Ok(()) => {
                if signaled {
                    complete(qp, cqs, report, done);
                } else {
                    report.lookout.note(|| wqe::ends(qpn, done, None));
                }
                continue;
            }
            Err(Outcome::Local(refused)) => refused.syndrome(),
            Err(Outcome::Remote(refusal)) => refusal.syndrome(),
            Err(_) => (Syndrome::TRANSPORT_RETRY_EXC_ERR, 0),
        };
        fail(qp, cqs, report, done, syndrome, vendor);
        if let Some(target) = qps.get_mut(peer).filter(|target| target.attrs.remote_qpn == qpn) {
            target.enter_error(report, syndrome);
        }
    }
}
