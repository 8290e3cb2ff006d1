//! Injected execution faults at the responder of a connection over packets. All are legal for hardware.
//!
//! Faults are drawn for each request when its turn comes: a stall before it, a split of a WRITE's payload. Later
//! requests and all responses wait too. Late answers are drawn when a response is queued.

use super::{late, responder};
use crate::objects::qp::ResponderFaults;
use crate::objects::{Objects, access};
use crate::request::RemoteError;
use crate::roce::{self, Packet};
use crate::transport::datapath::Datapath;

/// Maximum number of waiting requests of a QP. Further ones are dropped, and the peer sends them again.
const WAITING: usize = 1 << 10;

/// Handles a request, with packet bytes `bytes`, immediately, or after those that wait.
pub(super) fn request(path: &mut Datapath, qpn: u32, packet: &Packet<'_>, bytes: &[u8]) {
    let Datapath { objects: Objects { qps, .. }, report, .. } = path;
    let Some(qp) = qps.get_mut(qpn) else { return };
    let state = &mut qp.resp.faults;
    if state.until.is_none() && state.split.is_none() && state.waiting.is_empty() {
        state.until = report.draw_stall(qpn);
        if state.until.is_none() {
            return responder::request(path, qpn, packet);
        }
    }
    if state.waiting.len() < WAITING {
        state.waiting.push_back(bytes.into());
    } else {
        report.stats.dropped += 1;
    }
}

/// The state of a QP after a turn.
pub(super) enum Turn {
    /// Nothing waits.
    Clear,
    /// The requests of the QP wait for a timer.
    Waits,
    /// More can be moved after other QPs had a turn.
    More,
}

/// Continues the waiting requests of a QP.
pub(super) fn run(path: &mut Datapath, qpn: u32) -> Turn {
    loop {
        let Datapath { objects: Objects { qps, mkeys, dma, .. }, report, .. } = path;
        let Some(qp) = qps.get_mut(qpn) else { return Turn::Clear };
        if !qp.state.receives() {
            qp.resp.faults = ResponderFaults::default();
            return Turn::Clear;
        }
        if !qp.resp.faults.late.is_empty() {
            if let Err((psn, refusal)) = late::land(qp, mkeys, dma, report, Some(report.now)) {
                responder::refuse(qp, report, psn, refusal);
                continue;
            }
            report.note_change(qp.owner);
        }
        let state = &mut qp.resp.faults;
        if let Some(until) = state.until {
            if until > report.now {
                report.wakeups.push((until, qpn));
                return Turn::Waits;
            }
            state.until = None;
        }
        if let Some(mut split) = state.split.take() {
            let Some(piece) = split.pieces.pop() else { continue };
            let len = piece.end - piece.start;
            let moved = access::writable(qp, mkeys, split.place).and_then(|span| match span {
                Some(span) => {
                    let from = &split.payload[piece.start as usize..piece.end as usize];
                    dma.write(&span.part(split.skip + piece.start, len), from).map_err(RemoteError::Failed)
                }
                None => Ok(()),
            });
            if let Err(refusal) = moved {
                responder::refuse(qp, report, split.psn, refusal);
            } else if !split.pieces.is_empty() {
                qp.resp.faults.until = report.draw_stall(qpn);
                qp.resp.faults.split = Some(split);
                return Turn::More;
            } else if let Some(arrival) = split.arrival {
                report.lookout.note_landing(dma.has_landed(), || arrival);
            }
            continue;
        }
        let Some(bytes) = state.waiting.pop_front() else {
            let Some(due) = state.late.iter().map(|write| write.due).min() else { return Turn::Clear };
            report.wakeups.push((due, qpn));
            return Turn::Waits;
        };
        let more = !state.waiting.is_empty();
        if let Ok(packet) = roce::parse(&bytes) {
            responder::request(path, qpn, &packet);
        }
        if more && let Some(qp) = path.objects.qps.get_mut(qpn) {
            qp.resp.faults.until = path.report.draw_stall(qpn);
        }
    }
}
