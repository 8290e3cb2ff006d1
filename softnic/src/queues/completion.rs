//! Writes CQEs: those of send WQEs, in order, and those of receives.

use crate::objects::Cq;
use crate::objects::qp::{Qp, State};
use crate::report::{Event, Observation, Report, Rule};
use crate::table::Table;
use crate::wqe::{self, Done};
use rushmem_mlx5::cqe::{Completion, Failure};
use rushmem_mlx5::{Cqe, CqeOpcode, Syndrome};

/// Writes the CQE of a send WQE. If the CQ overruns, the QP enters the Error state.
#[inline]
pub(crate) fn complete(qp: &mut Qp, cqs: &mut Table<Cq>, report: &mut Report, done: Done) {
    report.lookout.note(|| wqe::ends(qp.qpn, done, None));
    let completion = Completion {
        opcode: done.opcode,
        qpn: qp.qpn,
        wqe_counter: done.index,
        user_index: qp.user_index,
        byte_cnt: done.byte_cnt,
        timestamp: report.timestamp(),
    };
    if report.faults.completion_delay > 0.0 {
        hold(qp, report, completion);
        return;
    }
    push(qp, qp.cq_send, cqs, report, |owner| Cqe::requester(&completion, owner));
}

/// Delays a completion, because an injected fault asks for it or an earlier completion is delayed.
fn hold(qp: &mut Qp, report: &mut Report, completion: Completion) {
    let mut due = report.now;
    if report.rng.chance(report.faults.completion_delay) {
        report.note_fault(Some(qp.qpn), "completion_delay");
        due += report.faults.completion_delay_time;
    }
    // Completions stay in order, so none precedes the one before it.
    let due = qp.held.back().map_or(due, |(before, _)| due.max(*before));
    qp.held.push_back((due, completion));
    report.wakeups.push((due, qp.qpn));
}

/// Writes the delayed completions of a QP that are due, or all of them.
pub(crate) fn release(qp: &mut Qp, cqs: &mut Table<Cq>, report: &mut Report, all: bool) {
    while let Some((due, completion)) = qp.held.front().copied() {
        if !all && due > report.now {
            report.wakeups.push((due, qp.qpn));
            break;
        }
        qp.held.pop_front();
        push(qp, qp.cq_send, cqs, report, |owner| Cqe::requester(&completion, owner));
    }
}

/// Writes the error CQE of a send WQE and moves the QP to the Error state.
#[cold]
pub(crate) fn fail(
    qp: &mut Qp,
    cqs: &mut Table<Cq>,
    report: &mut Report,
    done: Done,
    syndrome: Syndrome,
    vendor: u8,
) {
    if syndrome != Syndrome::WR_FLUSH_ERR {
        tracing::debug!(qpn = qp.qpn, index = done.index, opcode = %done.opcode, ?syndrome, vendor, "send entry failed");
    }
    // Earlier completions are written first.
    release(qp, cqs, report, true);
    qp.state = State::Error;
    report.lookout.note(|| wqe::ends(qp.qpn, done, Some(syndrome)));
    let failure = Failure {
        kind: CqeOpcode::REQ_ERR,
        opcode: done.opcode,
        qpn: qp.qpn,
        wqe_counter: done.index,
        srqn_uidx: qp.user_index,
        syndrome,
        vendor_syndrome: vendor,
    };
    report.stats.error_cqes += 1;
    push(qp, qp.cq_send, cqs, report, |owner| Cqe::error(&failure, owner));
}

/// Writes a CQE. If the CQ overruns, its QP enters the Error state.
pub(crate) fn push(
    qp: &mut Qp,
    cqn: Option<u32>,
    cqs: &mut Table<Cq>,
    report: &mut Report,
    make: impl FnOnce(bool) -> Cqe,
) {
    let Some(cq) = cqn.and_then(|cqn| cqs.get_mut(cqn)) else { return };
    // Reports an overrun only once.
    let first = !cq.overrun;
    match cq.push(make) {
        Ok(raised) => {
            report.stats.cqes += 1;
            report.lookout.note(|| Observation::Cqe { cqn: cqn.unwrap_or(0), qpn: qp.qpn });
            report.note_change(qp.owner);
            report.events.extend(raised.then_some(Event::Completion { cqn: cqn.unwrap_or(0) }));
        }
        Err(_) => {
            qp.enter_error(report, Syndrome::LOCAL_QP_OP_ERR);
            if first {
                let detail = format!("CQ {:#x} of {} entries is full", cqn.unwrap_or(0), 1u32 << cq.log_size);
                report.violations.record(Rule::CqOverrun, qp.qpn, detail);
                report.events.push(Event::CqError { cqn: cqn.unwrap_or(0) });
            }
        }
    }
}
