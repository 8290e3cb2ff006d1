//! Cuts send WQEs into packets.

use super::ahead::{self, Ahead, BURST};
use super::packet::{self, Destination, Parts, Portion};
use super::selective::{self, READ_CHUNK};
use super::start::{Start, start};
use crate::dma::User;
use crate::objects::Objects;
use crate::objects::qp::{Kind, Message, Qp, Requester};
use crate::roce::{Psn, Service};
use crate::route::Route;
use crate::transport::datapath::Datapath;
use crate::wqe::LocalError;
use std::time::{Duration, Instant};

/// Interval of acknowledgement requests within a long message, in packets.
const ACK_EVERY: u32 = 16;
/// Poll interval of a WQE that waits for a CQ.
const POLL_CQ: Duration = Duration::from_micros(50);

/// Sends packets of a QP as far as window and socket allow. Returns whether it can continue immediately.
pub(super) fn run(path: &mut Datapath, qpn: u32) -> bool {
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
    /// Nothing to do until a doorbell, a packet or a timer.
    Idle,
    /// The socket's queue is full.
    Full,
}

fn step(path: &mut Datapath, qpn: u32, ahead: &mut Ahead) -> Step {
    let Datapath { objects, scratch, report, fabric, config, schedule, .. } = path;
    let Objects { qps, cqs, mkeys, dma, .. } = objects;
    let Some(qp) = qps.get_mut(qpn) else { return Step::Idle };
    let Route::Peer(peer) = qp.route else { return Step::Idle };
    if qp.req.pause.is_some() {
        return Step::Idle;
    }
    if qp.req.next >= qp.req.messages.len() {
        match start(qp, cqs, mkeys, dma, report, scratch) {
            Start::Started => {}
            Start::Nothing => return Step::Idle,
            Start::Poll => {
                schedule.arm(qp, report.now + POLL_CQ);
                return Step::Idle;
            }
        }
    }
    let (to, user) = (Destination::of(qp, peer), User { pd: qp.pd, qpn });
    let req = &mut qp.req;
    let Some(message) = req.messages.get(req.next) else { return Step::Idle };
    let psn = message.first.plus(req.next_packet);
    if message.packets == 0 || req.flight.has(psn) {
        (req.next, req.next_packet) = message.after((req.next, req.next_packet), 1);
        return Step::Sent;
    }
    let room = req.room(psn);
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

/// Returns the part of `message` that its next request packet stands for, with `room` packets left in the window. `None`
/// means to wait, for answers to some of the `max_reads` requests that may be unanswered, or for more room.
#[inline]
fn next_portion(req: &Requester, message: &Message, room: u32, max_reads: usize) -> Option<Portion> {
    if message.fetches() && req.reads.len() >= max_reads {
        return None;
    }
    let packet = req.next_packet;
    let count = match message.kind {
        Kind::Read => read_chunk(req, message, room)?,
        _ => 1,
    };
    let asks = room <= count || (packet + 1).is_multiple_of(ACK_EVERY) || req.flight.has_gap();
    Some(Portion { packet, count, asks })
}

/// Returns the number of packets of the next READ request, or `None` to wait for more room in the window.
fn read_chunk(req: &Requester, message: &Message, room: u32) -> Option<u32> {
    let rest = message.packets - req.next_packet;
    let worthwhile = READ_CHUNK.min(rest).min(req.window / 2).max(1);
    if room < worthwhile && room < req.window {
        return None;
    }
    let psn = message.first.plus(req.next_packet);
    Some(req.flight.gap(psn, READ_CHUNK.min(room).min(rest))).filter(|count| *count != 0)
}

/// Advances the send position past `count` packets from `psn` on, which have been sent.
#[inline]
fn advance(qp: &mut Qp, psn: Psn, count: u32, now: Instant, retransmit: Duration) {
    let req = &mut qp.req;
    let Some(message) = req.messages.get(req.next) else { return };
    let fetches = message.fetches();
    (req.next, req.next_packet) = message.after((req.next, req.next_packet), count);
    if fetches {
        req.reads.push_back(psn.plus(count - 1));
    }
    match qp.service {
        Service::Rc | Service::Dc | Service::Xrc => req.sent((psn, count), fetches, now, retransmit),
        // No acknowledgement will come.
        Service::Uc | Service::Ud => req.start(psn.plus(count)),
    }
}

/// Cuts the current message before its next packet, and fails it there: its key was valid when the WQE started, and has
/// been destroyed since.
#[cold]
fn fail(req: &mut Requester, error: LocalError) {
    if let Some(message) = req.messages.get_mut(req.next) {
        (message.fault, message.packets) = (Some(error.syndrome()), req.next_packet);
    }
    req.broken = true;
    req.next += 1;
}
