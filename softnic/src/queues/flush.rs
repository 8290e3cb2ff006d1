//! Flushes the queues of a QP in the Error state: every WQE completes with a flush error.

use super::completion::{fail, push};
use super::receive::next_receive;
use super::send;
use crate::objects::Cq;
use crate::objects::qp::Qp;
use crate::report::{Event, Report};
use crate::table::Table;
use crate::wqe::Done;
use rushmem_mlx5::cqe::Failure;
use rushmem_mlx5::{Cqe, CqeOpcode, Opcode, Syndrome};

/// Maximum number of WQEs flushed per queue before other QPs run.
const BURST: usize = 64;

/// Flushes WQEs of the send queue and the receive queue, signaled or not. Returns whether there are more.
pub(crate) fn run(qp: &mut Qp, cqs: &mut Table<Cq>, report: &mut Report) -> bool {
    qp.progress = 0;
    qp.stall = None;
    if qp.srq.is_some() && !std::mem::replace(&mut qp.has_left_srq, true) {
        // The receive of a partly received message goes back to the queue, for other QPs.
        qp.drop_partial_message();
        if qp.of_dct.is_none() && !qp.is_xrc_target() {
            report.events.push(Event::LastReceive { qpn: qp.qpn });
        }
    }
    // These were executed, but their completions are held by a fault.
    for done in qp.faults.take() {
        fail(qp, cqs, report, done, Syndrome::WR_FLUSH_ERR, 0);
    }
    for _ in 0..BURST {
        let Some((index, opcode, blocks)) = send::blocks_at_head(qp) else { break };
        if let Some(sq) = &mut qp.sq {
            sq.consumer = sq.consumer.wrapping_add(blocks);
        }
        report.stats.wqes += 1;
        fail(qp, cqs, report, Done { index, opcode, byte_cnt: 0 }, Syndrome::WR_FLUSH_ERR, 0);
    }
    // A shared receive queue is not flushed, since other QPs use it: `next_receive` sees only the QP's own.
    for _ in 0..BURST {
        let Some(index) = next_receive(qp) else { break };
        let failure = Failure {
            kind: CqeOpcode::RESP_ERR,
            opcode: Opcode(0),
            qpn: qp.qpn,
            wqe_counter: index,
            srqn_uidx: qp.user_index,
            syndrome: Syndrome::WR_FLUSH_ERR,
            vendor_syndrome: 0,
        };
        report.stats.error_cqes += 1;
        push(qp, qp.cq_recv, cqs, report, |owner| Cqe::error(&failure, owner));
    }
    qp.sq.as_ref().is_some_and(|sq| sq.pending() != 0) || qp.rq.is_some() && qp.has_receive()
}
