//! Receive queues: fetches receive WQEs and completes them.

use super::completion::push;
use crate::objects::Cq;
use crate::objects::qp::Qp;
use crate::report::{Event, Report};
use crate::request::{BadReceive, Receive};
use crate::table::Table;
use rushmem_mlx5::cqe::{Failure, FrameReception, Reception};
use rushmem_mlx5::{Cqe, CqeOpcode, Opcode, Segment};

/// Takes the next posted receive from the QP's receive queue or SRQ. `None` means receiver not ready.
pub(crate) fn take_receive(qp: &mut Qp, report: &mut Report) -> Option<Receive> {
    if let Some(srq) = &qp.srq {
        let mut srq = srq.get();
        let (index, segments) = srq.take()?;
        if srq.falls_below_limit() {
            report.events.push(Event::SrqLimit { srqn: srq.srqn });
        }
        return Some(Receive::new(index, &segments, srq.pd));
    }
    let index = next_receive(qp)?;
    let rq = qp.rq.as_ref()?;
    let slot = usize::from(index) & ((1 << rq.log_size) - 1);
    let mut segments = vec![Segment::ZERO; rq.stride / 16];
    rq.ring.load_segments(slot * rq.stride, &mut segments);
    Some(Receive::new(index, &segments, qp.pd))
}

/// Takes the next receive of the QP's own queue, and returns its index.
pub(crate) fn next_receive(qp: &mut Qp) -> Option<u16> {
    let producer = qp.record_receives();
    let rq = qp.rq.as_mut()?;
    if producer == rq.consumer {
        return None;
    }
    let index = rq.consumer;
    rq.consumer = index.wrapping_add(1);
    Some(index)
}

/// The sender of a datagram, for the CQE. All fields are zero on a connection, whose peer is known.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Origin {
    pub(crate) qpn: u32,
    pub(crate) lid: u16,
    /// Whether the receive buffer starts with the datagram's IPv4 header.
    pub(crate) grh: bool,
    /// Service level on InfiniBand, or packet type on Ethernet.
    pub(crate) sl: u8,
}

/// A message that has been written to a receive, with what its CQE reports.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReceivedMessage {
    pub(crate) kind: CqeOpcode,
    pub(crate) index: u16,
    pub(crate) byte_cnt: u32,
    pub(crate) imm: u32,
    pub(crate) solicited: bool,
    pub(crate) origin: Origin,
}

pub(crate) fn complete_receive(
    qp: &mut Qp,
    cqs: &mut Table<Cq>,
    report: &mut Report,
    message: ReceivedMessage,
) {
    let reception = Reception {
        kind: message.kind,
        qpn: qp.number(),
        wqe_counter: message.index,
        srqn_uidx: qp.user_index,
        remote_qpn: message.origin.qpn,
        slid: message.origin.lid,
        grh: message.origin.grh,
        sl: message.origin.sl,
        imm: message.imm,
        byte_cnt: message.byte_cnt,
        timestamp: report.timestamp(),
        solicited: message.solicited,
    };
    push(qp, qp.cq_recv, cqs, report, |owner| Cqe::responder(&reception, owner));
}

/// Completes the receive of an Ethernet frame.
pub(crate) fn complete_frame(qp: &mut Qp, cqs: &mut Table<Cq>, report: &mut Report, frame: FrameReception) {
    let frame = FrameReception { user_index: qp.user_index, timestamp: report.timestamp(), ..frame };
    push(qp, qp.cq_recv, cqs, report, |owner| Cqe::frame(&frame, owner));
}

/// Completes a receive with an error. The caller moves the QP to the Error state.
pub(crate) fn fail_receive(
    qp: &mut Qp,
    cqs: &mut Table<Cq>,
    report: &mut Report,
    index: u16,
    bad: BadReceive,
) {
    let (syndrome, vendor_syndrome) = bad.syndrome();
    let failure = Failure {
        kind: CqeOpcode::RESP_ERR,
        opcode: Opcode(0),
        qpn: qp.number(),
        wqe_counter: index,
        srqn_uidx: qp.user_index,
        syndrome,
        vendor_syndrome,
    };
    report.stats.error_cqes += 1;
    push(qp, qp.cq_recv, cqs, report, |owner| Cqe::error(&failure, owner));
}
