//! Starts send WQEs: fetches and checks them, and assigns their PSNs.

use crate::dma::{Dma, Mkeys, Rights, User};
use crate::objects::Cq;
use crate::objects::qp::{Dci, Kind, Message, Qp};
use crate::queues::{BadWqe, MAX_SEGMENTS, cq_reached, fetch};
use crate::report::{Report, Rule};
use crate::route::Route;
use crate::table::Table;
use crate::wqe::{self, LocalError, check_keys, waits_for_all, waits_for_reads};
use rushmem_mlx5::wqe::View;
use rushmem_mlx5::{Flags, Opcode, Segment, Syndrome};

/// Maximum number of WQEs in flight per QP.
const MAX_WQES_IN_FLIGHT: usize = 1024;

pub(super) enum Start {
    Started,
    Nothing,
    /// The WQE waits for a condition that no doorbell or packet reports.
    Poll,
}

/// Starts the next WQE of a QP's send queue, if there is one and nothing blocks it.
pub(super) fn start(
    qp: &mut Qp,
    cqs: &Table<Cq>,
    mkeys: &Mkeys,
    dma: &mut Dma,
    report: &mut Report,
    scratch: &mut [Segment; MAX_SEGMENTS],
) -> Start {
    let Some(sq) = qp.sq.as_ref() else { return Start::Nothing };
    // With nothing in flight, the consumer counter is authoritative.
    if qp.req.messages.is_empty() {
        qp.req.started = sq.consumer;
    }
    // PSNs are assigned once the target has accepted.
    if qp.dci.as_deref().is_some_and(Dci::is_connecting) {
        return Start::Nothing;
    }
    if qp.req.messages.back().is_some_and(|message| message.changes_key) {
        return Start::Nothing;
    }
    let index = qp.req.started;
    // After a local error, later WQEs are flushed when the error has completed.
    if qp.req.broken || index == sq.producer || qp.req.messages.len() >= MAX_WQES_IN_FLIGHT {
        return Start::Nothing;
    }
    let view = match fetch(sq, (qp.service, qp.qpn), index, scratch, report) {
        Ok(view) => view,
        Err(bad) => {
            start_malformed(qp, report, index, bad);
            return Start::Started;
        }
    };
    // A fenced WQE is fetched again at the next attempt.
    if qp.dci.as_mut().is_some_and(|dci| !dci.serves(&view)) || is_fenced(qp, view.flags()) {
        return Start::Nothing;
    }
    let reached = cq_reached(&view, cqs).map_err(LocalError::syndrome);
    if reached == Ok(false) {
        return Start::Poll;
    }
    let (kind, psn) = (kind_of(&view), qp.send_psn);
    let packets = match kind {
        Kind::Local => 0,
        Kind::Atomic => 1,
        _ => qp.attrs.packets(view.data_len()),
    };
    let mut message = Message::new(&view, qp.service, kind, psn, packets);
    if let Route::Peer(peer) = qp.route {
        report.lookout.note(|| wqe::begins(qp.qpn, &view, Some(peer)));
    }
    let checked = reached.and_then(|_| check(&view, kind, mkeys, qp));
    let checked = checked.and_then(|()| match view.opcode() {
        // The completion of a DUMP guarantees that earlier writes are visible.
        Opcode::DUMP => dma.flush().map_err(|_| (Syndrome::LOCAL_PROT_ERR, 0)),
        _ => Ok(()),
    });
    if let Err(fault) = checked {
        // No packet is sent, and the error completes when all earlier WQEs have.
        (message.fault, message.packets, message.changes_key) = (Some(fault), 0, false);
        qp.req.broken = true;
    }
    // Only now is the WQE taken: up to here, every return leaves it to the next attempt.
    qp.req.started = index.wrapping_add(u16::from(message.blocks));
    qp.send_psn = psn.plus(message.packets);
    qp.req.messages.push_back(message);
    Start::Started
}

/// Queues the error of a WQE that cannot be parsed, after which the send queue starts no more WQEs.
#[cold]
fn start_malformed(qp: &mut Qp, report: &mut Report, index: u16, bad: BadWqe) {
    report.violations.record(Rule::Wqe, qp.qpn, bad.detail);
    let blocks = bad.blocks.min(u16::from(u8::MAX)) as u8;
    let fault = (Syndrome::LOCAL_QP_OP_ERR, 0);
    qp.req.messages.push_back(Message::broken(index, blocks, bad.opcode, qp.send_psn, fault));
    qp.req.broken = true;
}

/// Returns whether a WQE with these fence flags must wait for earlier WQEs of the QP.
#[inline]
fn is_fenced(qp: &Qp, flags: Flags) -> bool {
    let unanswered = |message: &Message| message.fetches() && message.end().since(qp.req.acked()) > 0;
    (waits_for_reads(flags) && qp.req.messages.iter().any(unanswered))
        || (waits_for_all(flags) && !qp.req.messages.is_empty())
}

#[inline]
fn kind_of(view: &View<'_>) -> Kind {
    match (view.opcode(), view.atomic()) {
        (_, Some(_)) => Kind::Atomic,
        (Opcode::RDMA_READ, _) => Kind::Read,
        (Opcode::RDMA_WRITE | Opcode::RDMA_WRITE_IMM, _) => Kind::Write,
        (Opcode::SEND | Opcode::SEND_IMM | Opcode::SEND_INVAL, _) => Kind::Send,
        _ => Kind::Local,
    }
}

/// Performs all checks of a WQE that the requester makes before it sends anything.
fn check(view: &View<'_>, kind: Kind, mkeys: &Mkeys, qp: &Qp) -> Result<(), (Syndrome, u8)> {
    let (len, user) = (view.data_len(), User { pd: qp.pd, qpn: qp.qpn });
    if !qp.service.is_reliable() && matches!(kind, Kind::Read | Kind::Atomic) {
        return Err(LocalError::Operation.syndrome());
    }
    if view.opcode() == Opcode::SEND_INVAL {
        return Err((Syndrome::REMOTE_INVAL_REQ_ERR, 0));
    }
    if len > 1 << qp.attrs.log_msg_max {
        return Err(LocalError::Length.syndrome());
    }
    let checked = match kind {
        Kind::Local | Kind::Connect | Kind::Write | Kind::Send => {
            check_keys(view, mkeys, user, Rights::LOCAL_READ, len)
        }
        Kind::Read => check_keys(view, mkeys, user, Rights::LOCAL_WRITE, len),
        Kind::Atomic => {
            let size = view.atomic().map_or(0, |atomic| u64::from(atomic.size()));
            if len < size {
                Err(LocalError::Length)
            } else {
                check_keys(view, mkeys, user, Rights::LOCAL_WRITE, len)
            }
        }
    };
    checked.map_err(LocalError::syndrome)
}
