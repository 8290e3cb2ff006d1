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
use super::packet::{self, Destination, Parts, Portion};
use super::responder;
use crate::dma::User;
use crate::objects::Objects;
use crate::objects::qp::{KEPT, Kind, Qp, Requester, Response};
use crate::roce::{self, Packet, Psn};
use crate::route::Route;
use crate::transport::datapath::Datapath;
use std::time::Duration;

/// Maximum number of response packets of one READ request. Long READs become several requests, so the window limits
/// the response traffic.
pub(super) const READ_CHUNK: u32 = 32;
/// Time after which the responder reports a gap again.
const AGAIN: Duration = Duration::from_micros(300);
/// Reports of a gap without progress. The requester's timer covers the rest.
const REPORTS: u32 = 8;

/// Handles a request, with packet bytes `bytes`: executes it and the kept ones that follow, or keeps it.
pub(super) fn request(path: &mut Datapath, qpn: u32, packet: &Packet<'_>, bytes: &[u8]) {
    let Some(qp) = path.objects.qps.get_mut(qpn) else { return };
    let ahead = packet.bth.psn.since(qp.recv_psn);
    if ahead > 0 && qp.state.receives() {
        if ahead as usize <= KEPT {
            qp.resp.early.packets.entry(packet.bth.psn.get()).or_insert_with(|| bytes.into());
        }
        qp.resp.early.reports = 0;
        queue_report(qp);
    }
    let kept = qp.resp.early.packets.len();
    responder::request(path, qpn, packet);
    if kept == 0 {
        return;
    }
    let executes = ahead <= 0 && execute_kept(path, qpn);
    let Some(qp) = path.objects.qps.get_mut(qpn).filter(|qp| qp.state.receives()) else { return };
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
    let due = path.report.now + AGAIN;
    early.due = Some(due);
    path.report.wakeups.push((due, qpn));
    queue_report(qp);
}

/// Executes the kept requests that follow without a gap. Returns whether there was one.
fn execute_kept(path: &mut Datapath, qpn: u32) -> bool {
    let mut executes = false;
    loop {
        let Some(qp) = path.objects.qps.get_mut(qpn) else { return executes };
        let (expected, early) = (qp.recv_psn, &mut qp.resp.early);
        let Some(bytes) = early.packets.remove(&expected.get()) else {
            // Packets before the expected one are old by now.
            early.packets.retain(|psn, _| Psn::new(*psn).since(expected) > 0);
            return executes;
        };
        if let Ok(packet) = roce::parse(&bytes) {
            responder::request(path, qpn, &packet);
        }
        executes = true;
    }
}

/// Reports a gap again that nobody has closed in time.
pub(super) fn remind(path: &mut Datapath, qpn: u32) {
    let now = path.report.now;
    let Some(qp) = path.objects.qps.get_mut(qpn) else { return };
    let early = &mut qp.resp.early;
    if early.due.is_none_or(|due| due > now) {
        return;
    }
    early.due = None;
    if !early.packets.is_empty() && early.reports < REPORTS {
        early.reports += 1;
        let due = now + AGAIN * (1 << early.reports);
        early.due = Some(due);
        path.report.wakeups.push((due, qpn));
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

/// Sends missing packets again. Returns whether the socket or the ring is full.
pub(super) fn repair(path: &mut Datapath, qpn: u32) -> bool {
    let Datapath { objects: Objects { qps, mkeys, dma, .. }, report, fabric: Some(fabric), .. } = path else {
        return false;
    };
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
        let number = psn.since(message.first) as u32;
        let count = if message.kind == Kind::Read { run.min(message.packets - number) } else { 1 };
        let parts = Parts { mkeys, dma, fabric, ahead: &mut Ahead::default() };
        let portion = Portion { packet: number, count, asks: true };
        let Ok((op, bytes)) = packet::emit(message, portion, &to, parts, user) else {
            flight.drop_due(psn);
            continue;
        };
        from = psn.plus(count);
        flight.note_sent(psn, count, message.fetches());
        report.stats.retransmitted += 1;
        report.note_sent(qpn, (psn, op), bytes, true);
    }
    false
}
