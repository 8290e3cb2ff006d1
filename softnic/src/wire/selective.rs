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
//! and asks early after silence. READs and atomics still make it go back: their answers come in order.

use super::requester::Requester;
use super::responder;
use super::responses::Response;
use super::sender::{self, Destination, Parts};
use crate::core::Core;
use crate::dma::User;
use crate::observe::Observation;
use crate::qp::Qp;
use crate::roce::{self, Packet, Psn};
use crate::route::Route;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Packets behind a gap that the responder keeps.
const KEPT: usize = 256;
/// Bytes of the bits for these packets.
pub(super) const BITS: usize = KEPT / 8;
/// Time after which the responder reports a gap again.
const AGAIN: Duration = Duration::from_micros(300);
/// Reports of a gap without progress. The requester's timer covers the rest.
const REPORTS: u32 = 8;
/// Time after which the requester repairs a hole again that is still reported.
const REPAIR: Duration = Duration::from_micros(500);
/// First time of silence after which the requester sends the oldest packet again.
pub(super) const PROBE: Duration = Duration::from_millis(1);

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
        report(qp);
        qp.resp.early.reports = 0;
    }
    responder::request(core, qpn, packet);
    loop {
        let Some(qp) = core.qps.get_mut(qpn).filter(|qp| !qp.resp.early.packets.is_empty()) else { return };
        let (expected, early) = (qp.recv_psn, &mut qp.resp.early);
        let Some(bytes) = early.packets.remove(&expected.get()) else {
            if ahead == 0 {
                // A gap is left, or all that was kept is old by now.
                early.packets.retain(|psn, _| Psn::new(*psn).since(expected) > 0);
                early.reports = 0;
            }
            let due = (!early.packets.is_empty()).then(|| core.out.now + AGAIN);
            qp.resp.early.due = due;
            core.out.wakeups.extend(due.map(|due| (due, qpn)));
            return;
        };
        if let Ok(packet) = roce::parse(&bytes) {
            responder::request(core, qpn, &packet);
        }
    }
}

/// Reports a gap again that nobody has closed in time.
pub(super) fn remind(core: &mut Core, qpn: u32) {
    let now = core.out.now;
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
        core.out.wakeups.push((due, qpn));
        report(qp);
    }
}

/// Queues a report, unless one waits already. It says what has arrived when it is sent.
fn report(qp: &mut Qp) {
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

/// The requester's knowledge of the packets that its peer lacks.
#[derive(Debug, Default)]
pub(super) struct Holes {
    /// Set once the peer has shown that it keeps packets.
    pub(super) peer_keeps: bool,
    /// Missing packets, and when they were sent again.
    missing: Vec<(Psn, Option<Instant>)>,
    /// End of the packets for which the window has already shrunk.
    episode: Option<Psn>,
}

#[cfg(test)]
impl Holes {
    pub(super) fn numbers(&self) -> impl Iterator<Item = Psn> {
        self.missing.iter().map(|(psn, _)| *psn)
    }
}

impl Requester {
    /// Returns the first time of silence that starts a resend.
    pub(super) fn first_wait(&self, configured: Duration) -> Duration {
        if self.holes.peer_keeps { configured.min(PROBE) } else { configured }
    }

    /// Returns whether holes can be repaired: no message in flight waits for an answer with data.
    fn repairs(&self) -> bool {
        self.holes.peer_keeps && !self.messages.iter().any(super::message::Message::fetches)
    }

    /// Marks the oldest packet as missing. Returns whether that is enough, so that the requester need not go back.
    pub(super) fn probe(&mut self) -> bool {
        let oldest = self.acked;
        if !self.repairs() || self.highest.since(oldest) <= 0 {
            return false;
        }
        self.holes.missing.retain(|(psn, _)| *psn != oldest);
        self.holes.missing.insert(0, (oldest, None));
        true
    }

    /// Takes a report: `first` is missing, and `bits` tell which of the packets behind it have arrived. Everything before
    /// `first` is acknowledged already. Returns whether the requester need not go back.
    pub(super) fn take_report(&mut self, first: Psn, bits: &[u8]) -> bool {
        self.holes.peer_keeps = true;
        if !self.repairs() || self.acked != first {
            return false;
        }
        let arrived = |i: u32| bits.get(i as usize / 8).is_some_and(|byte| byte >> (i % 8) & 1 != 0);
        let behind = (8 * bits.len().min(BITS)) as u32;
        let last = (0..behind).rev().find(|i| arrived(*i)).unwrap_or(0);
        let before = std::mem::take(&mut self.holes.missing);
        let numbers = (0..=last).filter(|i| *i == 0 || !arrived(*i - 1)).map(|i| first.plus(i));
        let numbers = numbers.filter(|psn| psn.since(self.highest) < 0);
        let sent = |psn: Psn| before.iter().find(|(other, _)| *other == psn).and_then(|(_, at)| *at);
        self.holes.missing = numbers.map(|psn| (psn, sent(psn))).collect();
        if self.holes.episode.is_none_or(|end| first.since(end) >= 0) {
            self.holes.episode = Some(self.highest);
            self.shrink();
        }
        true
    }
}

/// Sends missing packets again. Returns whether the socket or the ring is full.
pub(super) fn repair(core: &mut Core, qpn: u32) -> bool {
    let Core { qps, mkeys, dma, out, fabric: Some(fabric), now, .. } = core else { return false };
    let Some(qp) = qps.get_mut(qpn) else { return false };
    let Route::Peer(peer) = qp.route else { return false };
    if qp.req.holes.missing.is_empty() || qp.req.pause.is_some() {
        return false;
    }
    let acked = qp.req.acked;
    qp.req.holes.missing.retain(|(psn, _)| psn.since(acked) >= 0);
    let to = Destination::of(qp, peer);
    let user = User { pd: qp.pd, qpn };
    let Requester { messages, holes, .. } = &mut qp.req;
    for (psn, sent) in &mut holes.missing {
        if sent.is_some_and(|sent| now.saturating_duration_since(sent) < REPAIR) {
            continue;
        }
        if fabric.room_to(peer) == 0 {
            return true;
        }
        let holds = |message: &&super::message::Message| {
            psn.since(message.first) >= 0 && message.end().since(*psn) > 0 && message.fault.is_none()
        };
        let Some(message) = messages.iter().find(holds) else { continue };
        let packet = psn.since(message.first) as u32;
        // A refusal is found again when the requester goes back.
        let Ok((op, bytes)) = sender::emit(message, packet, 1, true, &to, Parts { mkeys, dma, fabric }, user)
        else {
            continue;
        };
        *sent = Some(*now);
        out.stats.retransmitted += 1;
        let (psn, opcode) = (psn.get(), op.name());
        out.lookout.note(|| Observation::PacketSent { qpn, psn, opcode, bytes, is_retransmission: true });
    }
    false
}
