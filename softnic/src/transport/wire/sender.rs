//! Cuts send WQEs into packets.

use super::ahead::{self, Ahead, BURST};
use super::packet::{self, Destination, Parts};
use super::selective::{self, READ_CHUNK};
use super::start::{Start, start};
use crate::dma::User;
use crate::objects::Objects;
use crate::objects::qp::{Kind, Message, Requester};
use crate::roce::{Psn, Service};
use crate::route::Route;
use crate::transport::datapath::Datapath;
use std::time::Duration;

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
    let to = Destination::of(qp, peer);
    let req = &mut qp.req;
    let Some(message) = req.messages.get(req.next) else { return Step::Idle };
    if message.packets == 0 {
        (req.next, req.next_packet) = message.after((req.next, req.next_packet), 0);
        return Step::Sent;
    }
    let psn = message.first.plus(req.next_packet);
    if req.flight.has(psn) {
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
    if message.fetches() && req.reads.len() >= 1 << qp.attrs.log_sra_max {
        return Step::Idle;
    }
    let user = User { pd: qp.pd, qpn };
    let count = match message.kind {
        Kind::Read => match read_chunk(req, message, psn, room) {
            0 => return Step::Idle,
            count => count,
        },
        _ => 1,
    };
    let asks = room <= count || (req.next_packet + 1).is_multiple_of(ACK_EVERY) || req.flight.has_gap();
    let parts = Parts { mkeys, dma, fabric, ahead };
    let sent = packet::emit(message, req.next_packet, count, asks, &to, parts, user);
    let (op, bytes) = match sent {
        Ok(emitted) => emitted,
        Err(refused) => {
            // The key was valid when the WQE started and has been destroyed since.
            let fault = refused.syndrome();
            if let Some(message) = req.messages.get_mut(req.next) {
                message.fault = Some(fault);
                message.packets = req.next_packet;
            }
            req.broken = true;
            req.next += 1;
            return Step::Idle;
        }
    };
    let end = psn.plus(count);
    let is_retransmission = end.since(req.flight.highest()) <= 0;
    if is_retransmission {
        report.stats.retransmitted += 1;
    }
    report.note_sent(qpn, (psn, op), bytes, is_retransmission);
    let fetches = message.fetches();
    if fetches {
        req.reads.push_back(psn.plus(count - 1));
    }
    (req.next, req.next_packet) = message.after((req.next, req.next_packet), count);
    match qp.service {
        Service::Rc | Service::Dc | Service::Xrc => {
            req.sent((psn, count), fetches, report.now, config.retransmit)
        }
        // No acknowledgement will come.
        Service::Uc | Service::Ud => req.start(end),
    }
    Step::Sent
}

/// Returns the number of packets of the next READ request; 0 to wait for more room in the window.
fn read_chunk(req: &Requester, message: &Message, psn: Psn, room: u32) -> u32 {
    let rest = message.packets - req.next_packet;
    let worthwhile = READ_CHUNK.min(rest).min(req.window / 2).max(1);
    if room < worthwhile && room < req.window {
        return 0;
    }
    req.flight.gap(psn, READ_CHUNK.min(room).min(rest))
}
