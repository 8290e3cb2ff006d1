//! Faults of execution at the responder: what hardware may do with the requests of one connection.
//!
//! Faults are drawn for each request when its turn comes: does the QP stand still first, is what a WRITE brings moved in
//! pieces. Requests behind one that waits wait too, and so do all responses. (Whether an answer is late is cast when it is queued.)

use super::responder;
use crate::core::{Core, Output};
use crate::qp::Qp;
use crate::roce::{self, Packet, Psn, Service};
use crate::target::{self, RemoteRange};
use std::collections::VecDeque;
use std::ops::Range;
use std::time::Instant;

/// Requests of a QP that wait, at most. What comes then is lost, and comes again.
const WAITING: usize = 1 << 10;

/// What faults do to one responder.
#[derive(Debug, Default)]
pub(super) struct ResponderFaults {
    /// The QP stands still until then.
    until: Option<Instant>,
    /// A packet's payload of which a part has been moved.
    split: Option<Split>,
    /// Packets that have come meanwhile.
    waiting: VecDeque<Box<[u8]>>,
}

/// A WRITE's payload on its way.
#[derive(Debug)]
struct Split {
    psn: Psn,
    /// Where the whole message goes, and how far into it this packet's part is.
    place: RemoteRange,
    skip: u64,
    payload: Box<[u8]>,
    /// What is still to be moved; the last one goes next.
    pieces: Vec<Range<u64>>,
}

/// Takes a request, `bytes` of the fabric: at once, or when its turn comes.
pub(super) fn request(core: &mut Core, qpn: u32, packet: &Packet<'_>, bytes: &[u8]) {
    let Core { qps, out, .. } = core;
    let Some(qp) = qps.get_mut(qpn) else { return };
    let state = &mut qp.resp.faults;
    if state.until.is_none() && state.split.is_none() && state.waiting.is_empty() {
        state.until = out.draw_stall();
        if state.until.is_none() {
            return responder::request(core, qpn, packet);
        }
    }
    if state.waiting.len() < WAITING {
        state.waiting.push_back(bytes.into());
    } else {
        out.stats.dropped += 1;
    }
}

/// Whether a WRITE's payload, which goes `skip` bytes behind the beginning of `place`, is moved in pieces: then [`run`] does it.
pub(super) fn start_split(
    qp: &mut Qp,
    out: &mut Output,
    packet: &Packet<'_>,
    place: RemoteRange,
    skip: u64,
) -> bool {
    if qp.service != Service::Rc {
        return false;
    }
    let pieces = out.draw_split(place.addr.wrapping_add(skip), packet.payload.len() as u64);
    if pieces.is_empty() {
        return false;
    }
    let payload = packet.payload.into();
    qp.resp.faults.split = Some(Split { psn: packet.bth.psn, place, skip, payload, pieces });
    true
}

/// What is to be done at a QP.
pub(super) enum Turn {
    /// Nothing waits.
    Clear,
    /// Its requests wait for a time.
    Waits,
    /// There is more to move, when others have had their turn.
    More,
}

/// Moves what waits at a QP on.
pub(super) fn run(core: &mut Core, qpn: u32) -> Turn {
    loop {
        let Core { qps, mkeys, dma, out, .. } = core;
        let Some(qp) = qps.get_mut(qpn) else { return Turn::Clear };
        if !qp.state.receives() {
            qp.resp.faults = ResponderFaults::default();
            return Turn::Clear;
        }
        let state = &mut qp.resp.faults;
        if let Some(until) = state.until {
            if until > out.now {
                out.wakeups.push((until, qpn));
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
                    dma.write(&span.part(split.skip + piece.start, len), from)
                        .map_err(target::RemoteError::Failed)
                }
                None => Ok(()),
            });
            if let Err(refusal) = moved {
                responder::refuse(qp, out, split.psn, refusal);
            } else if !split.pieces.is_empty() {
                qp.resp.faults.until = out.draw_stall();
                qp.resp.faults.split = Some(split);
                return Turn::More;
            }
            continue;
        }
        let Some(bytes) = state.waiting.pop_front() else { return Turn::Clear };
        let more = !state.waiting.is_empty();
        if let Ok(packet) = roce::parse(&bytes) {
            responder::request(core, qpn, &packet);
        }
        if more && let Some(qp) = core.qps.get_mut(qpn) {
            qp.resp.faults.until = core.out.draw_stall();
        }
    }
}
