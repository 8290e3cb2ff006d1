//! Injects faults by which WRITE payloads from packets are written late or in pieces.
//!
//! On an unordered QP, a payload may be written late and be overtaken by later WRITEs. Any other request writes it
//! first, and all responses wait for it.

use crate::dma::{Dma, Mkeys};
use crate::objects::access;
use crate::objects::qp::{LatePayload, Qp, Split};
use crate::report::{Observation, Report};
use crate::request::{RemoteError, RemoteRange};
use crate::roce::{Packet, Psn};
use std::time::Instant;

/// Decides whether to write the WRITE payload at offset `skip` of `place` in pieces. Returns whether it will be.
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

/// Decides whether to write the WRITE payload at offset `skip` of `place` late. Returns whether [`land`] will write it.
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

/// Writes the late payloads that are due at `now`, or all of them if it is `None`. An error comes with the PSN of the
/// payload's packet.
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
        // Checked again on landing, since the key may have been destroyed in the meantime.
        let span = access::writable(qp, mkeys, place).map_err(|refusal| (psn, refusal))?;
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
