//! Reports to the observer what the loopback transport does.

use super::{Outcome, Source};
use crate::dma::Dma;
use crate::objects::qp::Qp;
use crate::report::{Observation, RemoteAddress, Report};
use crate::wqe;
use rushmem_mlx5::Opcode;
use rushmem_mlx5::wqe::View;
use std::time::Instant;

/// Reports that the WQE at the head of the queue has started, unless this is another attempt.
pub(super) fn begins(qp: &mut Qp, view: &View<'_>, report: &mut Report) {
    let index = view.ctrl().index();
    match &mut qp.observed {
        Some((begun, since)) if *begun == index => {
            // A retry moves the start time: the peer was not ready until now.
            if qp.progress == 0 {
                *since = Instant::now();
            }
        }
        _ => {
            report.lookout.note(|| wqe::begins(qp.qpn, view, None));
            qp.observed = Some((index, Instant::now()));
        }
    }
}

/// Reports the arrival of a message or its refusal, if an attempt to execute a WQE has led to one.
pub(super) fn outcome(
    outcome: &Outcome,
    view: &View<'_>,
    (qp, source): (&Qp, &Source),
    dma: &Dma,
    report: &mut Report,
) {
    let since = qp.observed.map(|(_, since)| since);
    match outcome {
        // The data lands later.
        Outcome::Done if source.late && view.opcode() == Opcode::RDMA_WRITE => {}
        Outcome::Done => arrives(view, source.peer_number, since, dma, report),
        Outcome::NotReady(_) => {
            let (qpn, psn) = (source.user.qpn, source.psn.get());
            report.lookout.note(|| Observation::Nak { qpn, psn, reason: "receiver not ready" });
        }
        _ => {}
    }
}

/// Reports that the message of a WQE has arrived at the QP `qpn`. `since` is set if an observer is attached.
pub(super) fn arrives(view: &View<'_>, qpn: u32, since: Option<Instant>, dma: &Dma, report: &mut Report) {
    let (opcode, bytes) = (view.opcode(), view.data_len());
    let Some(since) = since.filter(|_| wqe::changes_memory(view)) else { return };
    let remote = view.remote().map(RemoteAddress::from);
    let arrival = || Observation::Arrival { qpn, opcode, remote, bytes, since };
    report.lookout.note_landing(dma.has_landed(), arrival);
}
