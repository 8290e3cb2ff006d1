//! Selective repetition: after a loss, only the missing packets are sent again.
//!
//! InfiniBand knows one answer to a gap, the NAK with the first missing packet, and the requester sends everything from there
//! again. The responder here keeps packets behind a gap. In front of that NAK it sends a packet of its own. The opcode is
//! in the manufacturer-specific range, so another NIC drops it:
//!
//! | bytes | field |
//! |---|---|
//! | BTH | opcode 0xd6, the number of the first missing packet |
//! | AETH | NAK, packet sequence error |
//! | 32 bytes | a bit for each of the 256 packets behind that one: 1 if it has arrived, lowest bits first |
//!
//! A requester that has seen one knows that its peer keeps packets. From then on it ignores the plain NAK, repairs holes,
//! and asks early after silence. It asks any peer again for just the missing response data of READs and atomics.

use super::ahead::Ahead;
use super::message::Kind;
use super::requester::Requester;
use super::responder;
use super::responses::Response;
use super::sender::{self, Destination, Parts, READ_CHUNK};
use crate::core::Core;
use crate::dma::User;
use crate::qp::Qp;
use crate::report::observe::Observation;
use crate::roce::{self, Packet, Psn};
use crate::route::Route;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Packets behind a gap that the responder keeps.
pub(super) const KEPT: usize = 256;
/// Bytes of the bits for these packets.
pub(super) const BITS: usize = KEPT / 8;
/// Time after which the responder reports a gap again.
const AGAIN: Duration = Duration::from_micros(300);
/// Reports of a gap without progress. The requester's timer covers the rest.
const REPORTS: u32 = 8;

/// The packets that a responder has received behind a gap.
#[derive(Debug, Default)]
pub(super) struct Early {
    packets: BTreeMap<u32, Box<[u8]>>,
    /// When to report the gap again, and how often that happened.
    due: Option<Instant>,
    reports: u32,
}

/// Handles a request, with packet bytes `bytes`: executes it and the kept ones that follow, or keeps it.
pub(super) fn request(core: &mut Core, qpn: u32, packet: &Packet<'_>, bytes: &[u8]) {
    let Some(qp) = core.qps.get_mut(qpn) else { return };
    let ahead = packet.bth.psn.since(qp.recv_psn);
    if ahead > 0 && qp.state.receives() {
        if ahead as usize <= KEPT {
            qp.resp.early.packets.entry(packet.bth.psn.get()).or_insert_with(|| bytes.into());
        }
        qp.resp.early.reports = 0;
        queue_report(qp);
    }
    let kept = qp.resp.early.packets.len();
    responder::request(core, qpn, packet);
    if kept == 0 {
        return;
    }
    let executes = ahead <= 0 && execute_kept(core, qpn);
    let Some(qp) = core.qps.get_mut(qpn).filter(|qp| qp.state.receives()) else { return };
    let early = &mut qp.resp.early;
    if early.packets.is_empty() {
        early.due = None;
        if executes {
            responder::acknowledge(qp);
        }
        return;
    }
    if ahead == 0 {
        early.reports = 0;
    }
    let due = core.report.now + AGAIN;
    early.due = Some(due);
    core.report.wakeups.push((due, qpn));
    queue_report(qp);
}

/// Executes the kept requests that follow without a gap. Returns whether there was one.
fn execute_kept(core: &mut Core, qpn: u32) -> bool {
    let mut executes = false;
    loop {
        let Some(qp) = core.qps.get_mut(qpn) else { return executes };
        let (expected, early) = (qp.recv_psn, &mut qp.resp.early);
        let Some(bytes) = early.packets.remove(&expected.get()) else {
            // Packets before the expected one are old by now.
            early.packets.retain(|psn, _| Psn::new(*psn).since(expected) > 0);
            return executes;
        };
        if let Ok(packet) = roce::parse(&bytes) {
            responder::request(core, qpn, &packet);
        }
        executes = true;
    }
}

/// Reports a gap again that nobody has closed in time.
pub(super) fn remind(core: &mut Core, qpn: u32) {
    let now = core.report.now;
    let Some(qp) = core.qps.get_mut(qpn) else { return };
    let early = &mut qp.resp.early;
    if early.due.is_none_or(|due| due > now) {
        return;
    }
    early.due = None;
    if !early.packets.is_empty() && early.reports < REPORTS {
        early.reports += 1;
        let due = now + AGAIN * (1 << early.reports);
        early.due = Some(due);
        core.report.wakeups.push((due, qpn));
        queue_report(qp);
    }
}

/// Queues a report, unless one waits already. It says what has arrived when it is sent.
fn queue_report(qp: &mut Qp) {
    let is_report = |answer: &Response| matches!(answer, Response::Selective { .. });
    if !qp.resp.responses.iter().any(is_report) {
        qp.resp.responses.push_back(Response::Selective { psn: qp.recv_psn });
    }
}

/// Returns the bits of the packets behind the first missing one.
pub(super) fn bits(qp: &Qp) -> [u8; BITS] {
    let mut bits = [0; BITS];
    for psn in qp.resp.early.packets.keys() {
        let behind = Psn::new(*psn).since(qp.recv_psn) - 1;
        if let Some(byte) = usize::try_from(behind).ok().and_then(|behind| bits.get_mut(behind / 8)) {
            *byte |= 1 << (behind % 8);
        }
    }
    bits
}

/// Sends missing packets again. Returns whether the socket or the ring is full.
pub(super) fn repair(core: &mut Core, qpn: u32) -> bool {
    let Core { qps, mkeys, dma, report, fabric: Some(fabric), .. } = core else { return false };
    let Some(qp) = qps.get_mut(qpn) else { return false };
    let Route::Peer(peer) = qp.route else { return false };
    if qp.req.flight.due() == 0 || qp.req.pause.is_some() {
        return false;
    }
    let to = Destination::of(qp, peer);
    let user = User { pd: qp.pd, qpn };
    let Requester { messages, flight, .. } = &mut qp.req;
    let mut from = flight.base();
    while let Some((psn, run)) = flight.next_due(from, READ_CHUNK) {
        from = psn.plus(1);
        if fabric.room_to(peer) == 0 {
            return true;
        }
        let at = messages.partition_point(|message| message.end().since(psn) <= 0);
        let message =
            messages.get(at).filter(|message| psn.since(message.first) >= 0 && message.fault.is_none());
        // A refusal is found again when the requester goes back.
        let Some(message) = message else {
            flight.drop_due(psn);
            continue;
        };
        let packet = psn.since(message.first) as u32;
        let count = if message.kind == Kind::Read { run.min(message.packets - packet) } else { 1 };
        let parts = Parts { mkeys, dma, fabric, ahead: &mut Ahead::default() };
        let Ok((op, bytes)) = sender::emit(message, packet, count, true, &to, parts, user) else {
            flight.drop_due(psn);
            continue;
        };
        from = psn.plus(count);
        flight.note_sent(psn, count, message.fetches());
        report.stats.retransmitted += 1;
        let (psn, opcode) = (psn.get(), op.name());
        report.lookout.note(|| Observation::PacketSent { qpn, psn, opcode, bytes, is_retransmission: true });
    }
    false
}
