//! The sending half of a connection: splits send WQEs into packets, within the congestion window.
//!
//! A QP sends in bursts of [`BURST`] packets, so QPs that share an adapter take turns. Missing packets go before new ones,
//! because the peer executes requests in order and drops or buffers whatever follows a gap.
//!
//! Sending stops when the window is full, when the link has no room, after the last started WQE if the next one has to
//! wait, and during the pause that a peer without receives asks for (RNR). An acknowledgement, a timer or a doorbell
//! schedules the QP again.

use super::ahead::{self, Ahead, BURST};
use super::packet::{self, Destination, Parts, Portion};
use super::selective::{self, READ_CHUNK};
use super::start::{Start, start};
use crate::dma::User;
use crate::objects::Objects;
use crate::objects::qp::{Kind, Message, Qp, Requester};
use crate::report::Report;
use crate::roce::{Psn, Service};
use crate::route::Route;
use crate::transport::datapath::Datapath;
use crate::umr::{self, Changer};
use crate::wqe::LocalError;
use std::time::{Duration, Instant};

/// Number of packets after which a long message requests an acknowledgement.
const ACK_EVERY: u32 = 16;
/// Interval at which a WAIT WQE checks its CQ.
const CQ_POLL_INTERVAL: Duration = Duration::from_micros(50);

/// Sends packets of a QP until the congestion window or the socket is full. Returns whether it can continue
/// immediately.
pub(super) fn run(path: &mut Datapath, qpn: u32) -> bool {
    // Retransmissions go first: the peer cannot execute new requests before the gap is closed.
    if selective::repair(path, qpn) {
        return true;
    }
    let mut ahead = ahead::payloads(path, qpn);
    for _ in 0..BURST {
        match step(path, qpn, &mut ahead) {
            Step::Sent => {}
            Step::Idle => return false,
            Step::Full => return true,
        }
    }
    true
}

enum Step {
    Sent,
    /// Nothing can be sent until a doorbell, a packet or a timer.
    Idle,
    /// The socket's send queue, or the ring to the peer, is full.
    Full,
}

fn step(path: &mut Datapath, qpn: u32, ahead: &mut Ahead) -> Step {
    let Datapath { objects, scratch, report, fabric, config, schedule, .. } = path;
    let Objects { qps, cqs, mkeys, dma, .. } = objects;
    let Some(qp) = qps.get_mut(qpn) else { return Step::Idle };
    let Route::Peer(peer) = qp.route else { return Step::Idle };
    // RNR: the peer has no receive posted. Nothing is sent until the pause is over.
    if qp.req.pause.is_some() {
        return Step::Idle;
    }
    // Every started WQE has been sent, so start the next one.
    if qp.req.next >= qp.req.messages.len() {
        match start(qp, cqs, mkeys, dma, report, scratch) {
            Start::Started => {}
            Start::Nothing => return Step::Idle,
            // No event reports that the CQ has reached the count, so poll it.
            Start::Poll => {
                schedule.arm(qp, report.now + CQ_POLL_INTERVAL);
                return Step::Idle;
            }
        }
    }
    let (to, user) = (Destination::of(qp, peer), User { pd: qp.pd, qpn });
    let req = &mut qp.req;
    let Some(message) = req.messages.get(req.next) else { return Step::Idle };
    if message.changes_key {
        change_key(objects, report, qpn);
        return Step::Sent;
    }
    // After a seek back, the position passes packets that have been received since. The peer needs only the others.
    let psn = message.first.plus(req.next_packet);
    if message.packets == 0 || req.flight.has(psn) {
        (req.next, req.next_packet) = message.after((req.next, req.next_packet), 1);
        return Step::Sent;
    }
    let room = req.room(psn);
    // An acknowledgement will open the window again.
    if room == 0 {
        return Step::Idle;
    }
    let Some(fabric) = fabric else { return Step::Idle };
    if fabric.room_to(peer) == 0 {
        return Step::Full;
    }
    let Some(portion) = next_portion(req, message, room, 1 << qp.attrs.log_sra_max) else {
        return Step::Idle;
    };
    match packet::emit(message, portion, &to, Parts { mkeys, dma, fabric, ahead }, user) {
        Ok((op, bytes)) => {
            // Every PSN below the highest one ever sent has been sent before.
            let is_retransmission = psn.plus(portion.count).since(req.flight.highest()) <= 0;
            report.stats.retransmitted += u64::from(is_retransmission);
            report.note_sent(qpn, (psn, op), bytes, is_retransmission);
            advance(qp, psn, portion.count, report.now, config.retransmit);
            Step::Sent
        }
        Err(error) => {
            fail(req, error);
            Step::Idle
        }
    }
}

/// Returns which part of `message` its next request packet covers, with room for `room` packets in the window.
///
/// Returns `None` if the packet has to wait, either because `max_reads` READs and atomics are outstanding or because
/// the window has too little room.
#[inline]
fn next_portion(req: &Requester, message: &Message, room: u32, max_reads: usize) -> Option<Portion> {
    if message.fetches() && req.reads.len() >= max_reads {
        return None;
    }
    let packet = req.next_packet;
    // A READ request consumes a PSN for each response packet, so the window limits the responses too.
    let count = match message.kind {
        Kind::Read => read_chunk(req, message, room)?,
        _ => 1,
    };
    // The last packet that the window admits must ask, or nothing would ever open it again. After a loss, every packet
    // asks: the sooner the peer answers, the sooner the gap is known.
    let asks = room <= count || (packet + 1).is_multiple_of(ACK_EVERY) || req.flight.has_gap();
    Some(Portion { packet, count, asks })
}

/// Returns the number of response packets to request with the next READ, or `None` to wait for more room in the window.
fn read_chunk(req: &Requester, message: &Message, room: u32) -> Option<u32> {
    let rest = message.packets - req.next_packet;
    // Waits until a full chunk fits, or half the window if that is less. Otherwise each acknowledgement would trigger a
    // READ of a few packets. With nothing in flight, no acknowledgement will come, so any room has to do.
    let worthwhile = READ_CHUNK.min(rest).min(req.window / 2).max(1);
    if room < worthwhile && room < req.window {
        return None;
    }
    let psn = message.first.plus(req.next_packet);
    // Stops at the first packet whose data is already here.
    Some(req.flight.gap(psn, READ_CHUNK.min(room).min(rest))).filter(|count| *count != 0)
}

/// Advances the send position past the `count` packets from `psn` on, which have just been sent.
#[inline]
fn advance(qp: &mut Qp, psn: Psn, count: u32, now: Instant, retransmit: Duration) {
    let req = &mut qp.req;
    let Some(message) = req.messages.get(req.next) else { return };
    let fetches = message.fetches();
    (req.next, req.next_packet) = message.after((req.next, req.next_packet), count);
    if fetches {
        // The response is complete when its last PSN is, which frees a slot for another READ or atomic.
        req.reads.push_back(psn.plus(count - 1));
    }
    match qp.service {
        Service::Rc | Service::Dc | Service::Xrc => req.sent((psn, count), fetches, now, retransmit),
        // No acknowledgement will come, so the packets are done once they are sent.
        Service::Uc | Service::Ud | Service::Raw => req.start(psn.plus(count)),
    }
}

/// Executes the last WQE that has been started, which changes a memory key.
#[cold]
fn change_key(objects: &mut Objects, report: &mut Report, qpn: u32) {
    let Some(qp) = objects.qps.get_mut(qpn) else { return };
    let by = Changer { owner: qp.owner, user: User { pd: qp.pd, qpn }, is_umr_qp: false };
    let Some(mut message) = qp.req.messages.pop_back() else { return };
    let changed = match message.view() {
        Ok(view) => umr::execute(&view, by, objects, report),
        Err(_) => Err(LocalError::Operation),
    };
    if let Some(qp) = objects.qps.get_mut(qpn) {
        message.changes_key = false;
        message.fault = changed.err().map(LocalError::syndrome);
        qp.req.broken |= message.fault.is_some();
        qp.req.messages.push_back(message);
    }
}

/// Fails the current message before its next packet, because its memory key was valid when the WQE started and has been
/// destroyed since.
#[cold]
fn fail(req: &mut Requester, error: LocalError) {
    if let Some(message) = req.messages.get_mut(req.next) {
        // The packets already sent must be acknowledged before the error completes, since completions are in order.
        (message.fault, message.packets) = (Some(error.syndrome()), req.next_packet);
    }
    req.broken = true;
    req.next += 1;
}
