//! Injected execution faults at the responder of a connection over packets. All are legal for hardware.
//!
//! Faults are drawn for each request when its turn comes: a stall before it, a split of a WRITE's payload. Later
//! requests and all responses wait too. Late answers are drawn when a response is queued.
//!
//! The payload of a WRITE of an unordered QP may land late. Later WRITEs pass it. Other requests land it first, and all
//! responses wait for it.

use super::responder;
use crate::core::Core;
use crate::dma::{Dma, Mkeys};
use crate::qp::Qp;
use crate::report::Report;
use crate::report::observe::Observation;
use crate::roce::{self, Packet, Psn};
use crate::target::{self, RemoteError, RemoteRange};
use std::collections::VecDeque;
use std::ops::Range;
use std::time::Instant;

/// Maximum number of waiting requests of a QP. Further ones are dropped, and the peer sends them again.
const WAITING: usize = 1 << 10;

/// State of the faults injected into one responder.
#[derive(Debug, Default)]
pub(super) struct ResponderFaults {
    /// End of the QP's stall.
    until: Option<Instant>,
    /// Payload of a packet that is partly moved.
    split: Option<Split>,
    /// Packets received meanwhile.
    waiting: VecDeque<Box<[u8]>>,
    /// Payloads that land late.
    late: Vec<LatePayload>,
}

/// The payload of a WRITE packet that later WRITEs pass.
#[derive(Debug)]
struct LatePayload {
    due: Instant,
    psn: Psn,
    /// Destination of the whole message, and the offset of this packet in it.
    place: RemoteRange,
    skip: u64,
    payload: Box<[u8]>,
    /// The arrival that it completes, if there is an observer.
    arrival: Option<Observation>,
}

/// The payload of a WRITE packet that is moved in pieces.
#[derive(Debug)]
struct Split {
    psn: Psn,
    /// Destination of the whole message, and the offset of this packet in it.
    place: RemoteRange,
    skip: u64,
    payload: Box<[u8]>,
    /// Remaining pieces; the last one is next.
    pieces: Vec<Range<u64>>,
    /// The arrival that it completes, if there is an observer.
    arrival: Option<Observation>,
}

/// Handles a request, with packet bytes `bytes`, at once or when its turn comes.
pub(super) fn request(core: &mut Core, qpn: u32, packet: &Packet<'_>, bytes: &[u8]) {
    let Core { qps, report, .. } = core;
    let Some(qp) = qps.get_mut(qpn) else { return };
    let state = &mut qp.resp.faults;
    if state.until.is_none() && state.split.is_none() && state.waiting.is_empty() {
        state.until = report.draw_stall(qpn);
        if state.until.is_none() {
            return responder::request(core, qpn, packet);
        }
    }
    if state.waiting.len() < WAITING {
        state.waiting.push_back(bytes.into());
    } else {
        report.stats.dropped += 1;
    }
}

/// Decides whether to split a WRITE payload at offset `skip` of `place`. Returns whether [`run`] will move it.
pub(super) fn start_split(
    qp: &mut Qp,
    report: &mut Report,
    packet: &Packet<'_>,
    (place, skip): (RemoteRange, u64),
    arrival: Option<Observation>,
) -> bool {
    if !qp.service.is_reliable() {
        return false;
    }
    let pieces = report.draw_split(qp.qpn, place.addr.wrapping_add(skip), packet.payload.len() as u64);
    if pieces.is_empty() {
        return false;
    }
    let payload = packet.payload.into();
    qp.resp.faults.split = Some(Split { psn: packet.bth.psn, place, skip, payload, pieces, arrival });
    true
}

/// Decides whether a WRITE payload at offset `skip` of `place` lands late. Returns whether [`land`] will move it.
pub(super) fn start_late(
    qp: &mut Qp,
    report: &mut Report,
    packet: &Packet<'_>,
    (place, skip): (RemoteRange, u64),
    arrival: Option<Observation>,
) -> bool {
    if !qp.service.is_reliable() || !qp.attrs.unordered {
        return false;
    }
    let Some(due) = report.draw_unordered(qp.qpn) else { return false };
    let payload = packet.payload.into();
    qp.resp.faults.late.push(LatePayload { due, psn: packet.bth.psn, place, skip, payload, arrival });
    report.wakeups.push((due, qp.qpn));
    true
}

/// Lands the late payloads that are due, or all without a time. A payload that is refused comes with its packet number.
pub(super) fn land(
    qp: &mut Qp,
    mkeys: &Mkeys,
    dma: &mut Dma,
    report: &mut Report,
    now: Option<Instant>,
) -> Result<(), (Psn, RemoteError)> {
    let late = std::mem::take(&mut qp.resp.faults.late);
    let (landing, later) = late.into_iter().partition(|write| now.is_none_or(|now| write.due <= now));
    qp.resp.faults.late = later;
    let landing: Vec<LatePayload> = landing;
    for LatePayload { psn, place, skip, payload, arrival, .. } in landing {
        let span = target::writable(qp, mkeys, place).map_err(|refusal| (psn, refusal))?;
        if let Some(span) = span {
            let part = span.part(skip, payload.len() as u64);
            dma.write(&part, &payload).map_err(|error| (psn, RemoteError::Failed(error)))?;
        }
        if let Some(arrival) = arrival {
            report.lookout.note_landing(dma.has_landed(), || arrival);
        }
    }
    Ok(())
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
pub(super) fn run(core: &mut Core, qpn: u32) -> Turn {
    loop {
        let Core { qps, mkeys, dma, report, .. } = core;
        let Some(qp) = qps.get_mut(qpn) else { return Turn::Clear };
        if !qp.state.receives() {
            qp.resp.faults = ResponderFaults::default();
            return Turn::Clear;
        }
        if !qp.resp.faults.late.is_empty() {
            if let Err((psn, refusal)) = land(qp, mkeys, dma, report, Some(report.now)) {
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
            let moved = target::writable(qp, mkeys, split.place).and_then(|span| match span {
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
            responder::request(core, qpn, &packet);
        }
        if more && let Some(qp) = core.qps.get_mut(qpn) {
            qp.resp.faults.until = core.report.draw_stall(qpn);
        }
    }
}
