//! Injects execution faults into a responder that receives requests in packets. Real hardware may show all of them.
//!
//! Whether to stall, or to split a WRITE's payload, is decided when a request is about to be executed. Later requests
//! and all responses wait for it. Whether an answer is late is decided when a response is queued.

use super::{late, responder};
use crate::dma::{Dma, Mkeys};
use crate::objects::qp::{Qp, ResponderFaults, Split};
use crate::objects::{Objects, access};
use crate::request::RemoteError;
use crate::roce::{self, Packet};
use crate::transport::datapath::Datapath;
use std::ops::Range;

/// Maximum number of requests that faults delay per QP. Further ones are dropped, and the peer resends them.
const MAX_WAITING: usize = 1 << 10;

/// Executes a request immediately, or queues it after those that faults delay. `bytes` is the packet as received.
pub(super) fn request(path: &mut Datapath, qpn: u32, packet: &Packet<'_>, bytes: &[u8]) {
    let Datapath { objects: Objects { qps, .. }, report, .. } = path;
    let Some(qp) = qps.get_mut(qpn) else { return };
    let state = &mut qp.resp.faults;
    // Draws a stall only for a request whose turn it is. Others must queue, to keep the order.
    if state.until.is_none() && state.split.is_none() && state.waiting.is_empty() {
        state.until = report.draw_stall(qpn);
        if state.until.is_none() {
            return responder::request(path, qpn, packet);
        }
    }
    if state.waiting.len() < MAX_WAITING {
        state.waiting.push_back(bytes.into());
    } else {
        report.stats.dropped += 1;
    }
}

fn write_piece(
    qp: &Qp,
    mkeys: &Mkeys,
    dma: &mut Dma,
    split: &Split,
    piece: Range<u64>,
) -> Result<(), RemoteError> {
    let Some(span) = access::writable(qp, mkeys, split.place)? else { return Ok(()) };
    let part = span.part(split.skip + piece.start, piece.end - piece.start);
    let from = &split.payload[piece.start as usize..piece.end as usize];
    dma.write(&part, from).map_err(RemoteError::Failed)
}

/// Completes the requests that a QP has executed, and drops all others. The QP can no longer receive.
pub(crate) fn finish_executed(path: &mut Datapath, qpn: u32) {
    let Datapath { objects: Objects { qps, mkeys, dma, .. }, report, .. } = path;
    let Some(qp) = qps.get_mut(qpn) else { return };
    // Errors have nobody to be reported to.
    if late::land(qp, mkeys, dma, report, None).is_ok()
        && let Some(mut split) = qp.resp.faults.split.take()
    {
        while let Some(piece) = split.pieces.pop()
            && write_piece(qp, mkeys, dma, &split, piece).is_ok()
        {}
    }
    qp.resp.faults = ResponderFaults::default();
    dma.finish();
}

/// What is left to do for the delayed requests of a QP.
pub(super) enum Turn {
    /// No request is delayed.
    Clear,
    /// Requests are delayed until a timer expires.
    Waits,
    /// Requests can be executed, after other QPs have run.
    More,
}

/// Resumes the requests to a QP that faults have delayed.
pub(super) fn run(path: &mut Datapath, qpn: u32) -> Turn {
    loop {
        let Datapath { objects: Objects { qps, mkeys, dma, .. }, report, .. } = path;
        let Some(qp) = qps.get_mut(qpn) else { return Turn::Clear };
        if !qp.state.receives() {
            // A QP that was reset or failed executes no further request.
            finish_executed(path, qpn);
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
        // Moves one piece per turn, so the program can see the WRITE half done.
        if let Some(mut split) = state.split.take() {
            let Some(piece) = split.pieces.pop() else { continue };
            if let Err(refusal) = write_piece(qp, mkeys, dma, &split, piece) {
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
            // The next request draws its own stall.
            qp.resp.faults.until = path.report.draw_stall(qpn);
        }
    }
}
