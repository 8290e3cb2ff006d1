//! Selective retransmission: after a loss, only the missing packets are sent again.
//!
//! InfiniBand defines one answer to a gap, a NAK with the first missing PSN, and the requester resends everything from
//! there. This responder also buffers the packets that arrive after a gap, and sends a report before that NAK. The
//! report's opcode is in the manufacturer-specific range, so other NICs drop it:
//!
//! | bytes | field |
//! |---|---|
//! | BTH | opcode 0xd6, PSN of the first missing packet |
//! | AETH | NAK, packet sequence error |
//! | 32 bytes | a bit for each of the 256 packets after that one: 1 if it has arrived, least significant bit first |
//!
//! A requester that has received a report knows that its peer buffers packets. From then on it ignores the plain NAK,
//! resends only what is missing, and probes early when the peer falls silent. Missing response data of READs and
//! atomics is requested selectively from any peer.

use super::ahead::Ahead;
use super::packet::{self, Destination, Parts, Portion};
use super::responder;
use crate::dma::User;
use crate::objects::Objects;
use crate::objects::qp::{Kind, Qp, REORDER_WINDOW, Requester, Response};
use crate::roce::{self, Packet, Psn};
use crate::route::Route;
use crate::transport::datapath::Datapath;
use std::time::Duration;

/// Maximum number of response packets per READ request. Long READs are split, so the window limits the response
/// traffic.
pub(super) const READ_CHUNK: u32 = 32;
/// Time until the responder repeats its first report of a gap. Doubles with each report.
const REPORT_INTERVAL: Duration = Duration::from_micros(300);
/// Maximum number of repeated reports without progress. After that, the requester's timer recovers.
const MAX_REPORTS: u32 = 8;

/// Executes a request and any buffered ones that follow it, or buffers it if an earlier one is missing. `bytes` is the
/// packet as received.
pub(super) fn request(path: &mut Datapath, qpn: u32, packet: &Packet<'_>, bytes: &[u8]) {
    let Some(qp) = path.objects.qps.get_mut(qpn) else { return };
    let ahead = packet.bth.psn.since(qp.recv_psn);
    if ahead > 0 && qp.state.receives() {
        if ahead as usize <= REORDER_WINDOW {
            qp.resp.early.packets.entry(packet.bth.psn.get()).or_insert_with(|| bytes.into());
        }
        // A new arrival is progress, so the gap may be reported again.
        qp.resp.early.reports = 0;
        queue_report(qp);
    }
    let kept = qp.resp.early.packets.len();
    // Sends the NAK that InfiniBand requires, or executes the request.
    responder::request(path, qpn, packet);
    if kept == 0 {
        return;
    }
    // A request at or before the expected PSN may have closed the gap.
    let executes = ahead <= 0 && execute_kept(path, qpn);
    let Some(qp) = path.objects.qps.get_mut(qpn).filter(|qp| qp.state.receives()) else { return };
    let early = &mut qp.resp.early;
    if early.packets.is_empty() {
        early.due = None;
        // None of the buffered packets may have requested an acknowledgement, but the requester waits for one.
        if executes {
            responder::acknowledge(qp);
        }
        return;
    }
    // The first gap is closed, but another one follows.
    if ahead == 0 {
        early.reports = 0;
    }
    let due = path.report.now + REPORT_INTERVAL;
    early.due = Some(due);
    path.report.wakeups.push((due, qpn));
    queue_report(qp);
}

/// Executes the buffered requests that are next in PSN order. Returns whether there were any.
fn execute_kept(path: &mut Datapath, qpn: u32) -> bool {
    let mut executes = false;
    loop {
        let Some(qp) = path.objects.qps.get_mut(qpn) else { return executes };
        let (expected, early) = (qp.recv_psn, &mut qp.resp.early);
        let Some(bytes) = early.packets.remove(&expected.get()) else {
            // Late packets are useless by now: a READ or a resent packet has superseded them.
            early.packets.retain(|psn, _| Psn::new(*psn).since(expected) > 0);
            return executes;
        };
        if let Ok(packet) = roce::parse(&bytes) {
            responder::request(path, qpn, &packet);
        }
        executes = true;
    }
}

/// Reports a missing packet again if it has not arrived in time.
pub(super) fn remind(path: &mut Datapath, qpn: u32) {
    let now = path.report.now;
    let Some(qp) = path.objects.qps.get_mut(qpn) else { return };
    let early = &mut qp.resp.early;
    if early.due.is_none_or(|due| due > now) {
        return;
    }
    early.due = None;
    if !early.packets.is_empty() && early.reports < MAX_REPORTS {
        early.reports += 1;
        let due = now + REPORT_INTERVAL * (1 << early.reports);
        early.due = Some(due);
        path.report.wakeups.push((due, qpn));
        queue_report(qp);
    }
}

/// Queues a report of a missing packet, unless one is queued already. Its contents are determined when it is sent.
fn queue_report(qp: &mut Qp) {
    let is_report = |answer: &Response| matches!(answer, Response::Selective { .. });
    if !qp.resp.responses.iter().any(is_report) {
        qp.resp.responses.push_back(Response::Selective { psn: qp.recv_psn });
    }
}

/// Retransmits missing packets of a QP. Returns whether the socket or the ring to the peer is full.
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
        // The message is complete or has failed. If a packet is still needed, going back finds the error again.
        let Some(message) = message else {
            flight.drop_due(psn);
            continue;
        };
        let number = psn.since(message.first) as u32;
        // A missing run of READ data is one request, but a request cannot span two messages.
        let count = if message.kind == Kind::Read { run.min(message.packets - number) } else { 1 };
        let parts = Parts { mkeys, dma, fabric, ahead: &mut Ahead::default() };
        let portion = Portion { packet: number, count, asks: true };
        // The key may be gone. Going back would find that again, so give up on the packet.
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
