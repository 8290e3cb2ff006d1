//! The requester's state: messages in flight, acknowledged packets and timers.

use super::flight::Flight;
use super::message::{Kind, Message};
use super::pace::Pace;
use super::selective::KEPT;
use crate::core::{Core, complete, fail};
use crate::dc::{self, Dci};
use crate::dma::{Dma, Mkeys, Rights, User};
use crate::memory::MemoryError;
use crate::qp::{Qp, State, rnr_time};
use crate::report::Report;
use crate::report::observe::Observation;
use crate::roce::{Aeth, AethSyndrome, Ext, Nak, Op, Packet, Psn};
use crate::wqe::{self, Done, LocalError, Piece, for_each_piece};
use rushmem_mlx5::Syndrome;
use rushmem_mlx5::Width;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Initial maximum of packets in flight.
const INITIAL_WINDOW: u32 = 32;
/// Smallest maximum of packets in flight, after losses.
const MIN_WINDOW: u32 = 2;

/// Vendor syndrome of a completion with `TRANSPORT_RETRY_EXC_ERR` if packets were too long for the link.
pub const PACKET_TOO_LONG: u8 = 0x61;

/// The requester's half of a connection.
#[derive(Debug)]
pub(crate) struct Requester {
    /// WQEs started and not completed, oldest first.
    pub(crate) messages: VecDeque<Message>,
    /// Position of sending: a message, and a packet in it.
    pub(crate) next: usize,
    pub(crate) next_packet: u32,
    /// Blocks started. The consumer counter of the send queue is behind it.
    pub(crate) started: u16,
    /// Packets sent and not done.
    pub(super) flight: Flight,
    /// Last packet numbers of READ and atomic requests that are not answered.
    pub(crate) reads: VecDeque<Psn>,
    /// Set when a WQE failed locally; no later WQE starts.
    pub(crate) broken: bool,
    /// Maximum of packets in flight, and the credit towards a larger one.
    pub(crate) window: u32,
    credit: u32,
    /// Time of the last acknowledgement, or of sending the first unacknowledged packet.
    progress: Option<Instant>,
    /// Time of the next retransmission, and its timeout.
    resend: Option<Instant>,
    backoff: Duration,
    /// End of a pause after the peer was not ready to receive.
    pub(crate) pause: Option<Instant>,
    /// Packet number of a loss that is already handled.
    lost: Option<Psn>,
    /// The window has already shrunk for losses before this packet.
    episode: Option<Psn>,
    pace: Pace,
    /// Set if a packet was too long for the link, until the next acknowledgement.
    pub(crate) too_long: bool,
}

impl Default for Requester {
    fn default() -> Requester {
        Requester {
            messages: VecDeque::new(),
            next: 0,
            next_packet: 0,
            started: 0,
            flight: Flight::default(),
            reads: VecDeque::new(),
            broken: false,
            window: INITIAL_WINDOW,
            credit: 0,
            progress: None,
            resend: None,
            backoff: Duration::ZERO,
            pause: None,
            lost: None,
            episode: None,
            pace: Pace::default(),
            too_long: false,
        }
    }
}

impl Requester {
    /// Begins or continues at this packet number. Nothing before it is awaited.
    pub(crate) fn start(&mut self, psn: Psn) {
        self.flight = Flight::starting_at(psn);
        self.episode = None;
    }

    /// Returns the first packet number that is not acknowledged, or lacks its data.
    pub(crate) fn acked(&self) -> Psn {
        self.flight.base()
    }

    /// Returns the number of the next packet to send.
    pub(crate) fn position(&self, fresh: Psn) -> Psn {
        self.messages.get(self.next).map_or(fresh, |message| message.first.plus(self.next_packet))
    }

    /// Moves the send position to the packet with this number.
    pub(crate) fn seek(&mut self, psn: Psn) {
        let holds = |message: &Message| message.end().since(psn) > 0;
        self.next = self.messages.iter().position(holds).unwrap_or(self.messages.len());
        self.next_packet = match self.messages.get(self.next) {
            Some(message) => psn.since(message.first).max(0) as u32,
            None => 0,
        };
        while self.reads.back().is_some_and(|last| last.since(psn) >= 0) {
            self.reads.pop_back();
        }
    }

    /// Returns the time of the last acknowledgement, if any.
    pub(crate) fn silent_since(&self) -> Option<Instant> {
        self.progress
    }

    /// Returns the number of packets from `psn` on that may be sent now.
    pub(super) fn room(&self, psn: Psn) -> u32 {
        let (ahead, received) = (psn.since(self.acked()).max(0) as u32, self.flight.received());
        let room = self.window.saturating_sub(ahead.saturating_sub(received));
        // A peer with a gap keeps no more than this.
        if received == 0 { room } else { room.min((KEPT as u32).saturating_sub(ahead)) }
    }

    /// Records the transmission of a request that stands for `count` packets from `psn` on.
    pub(crate) fn sent(
        &mut self,
        (psn, count): (Psn, u32),
        fetches: bool,
        now: Instant,
        configured: Duration,
    ) {
        if psn == self.flight.highest() {
            self.pace.note_sent(psn.plus(count - 1), now);
        }
        self.flight.note_sent(psn, count, fetches);
        if self.resend.is_none() {
            self.progress = Some(now);
            self.rearm(now, configured);
        }
    }

    /// Handles a loss: resends from the oldest unacknowledged packet, with a smaller window.
    fn go_back(&mut self) {
        self.window = (self.window / 2).max(MIN_WINDOW);
        self.credit = 0;
        self.resume();
    }

    /// Moves the send position to the oldest unacknowledged packet.
    fn resume(&mut self) {
        self.flight.rewind();
        self.pace.forget();
        let psn = self.acked();
        self.seek(psn);
    }

    /// Asks the peer what it has, by sending two packets again. Returns whether that is enough, so that the requester need
    /// not go back. `fresh` is the number of the next new packet.
    fn probe(&mut self, fresh: Psn) -> bool {
        let suffices = self.flight.peer_keeps && self.position(fresh).since(self.flight.highest()) >= 0;
        if suffices {
            self.pace.forget();
            self.flight.doubt();
        }
        suffices
    }

    /// Returns the first time of silence that starts a resend.
    fn first_wait(&self, configured: Duration) -> Duration {
        if self.flight.peer_keeps { configured.min(self.pace.patience()) } else { configured }
    }

    /// Returns the time of the next timer.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        match self.pause {
            Some(pause) => Some(pause),
            None => self.resend,
        }
    }

    /// Draws the conclusions from a response after which `before` is the old state of the flight. `fresh` is the number of
    /// the next new packet.
    fn settle(&mut self, before: (Psn, u32), fresh: Psn, now: Instant, limit: u32) {
        let step = self.acked().since(before.0);
        if step > 0 {
            (self.lost, self.too_long) = (None, false);
            self.credit += step as u32;
            if self.credit >= self.window {
                self.credit = 0;
                self.window = (self.window + self.window / 4 + 1).min(limit);
            }
            self.progress = Some(now);
        }
        if before != (self.acked(), self.flight.received()) {
            self.resend = None;
            let flight = &self.flight;
            self.reads.retain(|last| !flight.is_done(*last));
            self.pace.note_news(now, |psn| flight.has(psn));
        }
        if let Some(first) = self.flight.find_missing(self.position(fresh)) {
            self.pace.forget();
            if self.episode.is_none_or(|end| first.since(end) >= 0) {
                self.episode = Some(self.flight.highest());
                self.window = (self.window - self.window / 8).max(MIN_WINDOW);
            }
        }
    }

    /// Removes the oldest message.
    fn retire_front(&mut self) -> Option<Message> {
        let message = self.messages.pop_front()?;
        if self.next == 0 {
            self.next_packet = 0;
        }
        self.next = self.next.saturating_sub(1);
        Some(message)
    }

    /// Restarts the timer if packets are unacknowledged.
    fn rearm(&mut self, now: Instant, configured: Duration) {
        if self.resend.is_none() && self.flight.highest().since(self.acked()) > 0 {
            let first_wait = self.first_wait(configured);
            self.backoff = first_wait;
            self.resend = Some(now + first_wait);
        }
    }
}

/// Retransmits or fails at a timeout. Returns whether there is something to send.
pub(crate) fn timers(core: &mut Core, qpn: u32) -> bool {
    let Core { qps, now, config, report, .. } = core;
    let Some(qp) = qps.get_mut(qpn) else { return false };
    if qp.req.pause.is_some_and(|pause| pause <= *now) {
        qp.req.pause = None;
        qp.req.resend = None;
        qp.req.rearm(*now, config.retransmit);
    }
    if qp.req.pause.is_some() || qp.req.resend.is_none_or(|at| at > *now) {
        return false;
    }
    let is_early = qp.req.backoff < config.retransmit;
    if !is_early {
        report.counters.count(&qp.context, |counts| &mut counts.local_ack_timeout_err);
    }
    let waited = qp.req.progress.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
    if qp.attrs.retry_timeout().is_some_and(|patience| waited >= patience) {
        let vendor = if qp.req.too_long { PACKET_TOO_LONG } else { 0 };
        fail_at(qp, Syndrome::TRANSPORT_RETRY_EXC_ERR, vendor);
        return true;
    }
    if !(is_early && qp.req.probe(qp.send_psn)) {
        qp.req.go_back();
    }
    let longest = qp.attrs.ack_wait().unwrap_or(Duration::from_secs(1)).max(config.retransmit);
    qp.req.backoff = (qp.req.backoff * 2).min(longest);
    // Never later than the final timeout.
    let left = qp.attrs.retry_timeout().map_or(qp.req.backoff, |patience| patience.saturating_sub(waited));
    qp.req.resend = Some(*now + qp.req.backoff.min(left));
    true
}

/// Handles an acknowledgement or a response.
pub(crate) fn response(core: &mut Core, qpn: u32, packet: &Packet<'_>) {
    let Core { qps, mkeys, dma, now, config, report, .. } = core;
    let Some(qp) = qps.get_mut(qpn).filter(|qp| qp.state == State::Rts) else { return };
    let psn = packet.bth.psn;
    // The response is stale, or was never requested.
    if psn.since(qp.req.flight.highest()) >= 0 || psn.plus(1).since(qp.req.acked()) < 0 {
        report.stats.stale += 1;
        return;
    }
    let is_refusal = matches!(packet.ext, Ext::Aeth(aeth) if aeth.syndrome.refusal().is_some());
    if packet.bth.op == Op::Accept {
        if !dc::accepted(qp, packet) {
            report.stats.stale += 1;
            return;
        }
    } else if qp.dci.as_deref().is_some_and(Dci::is_connecting) && !is_refusal {
        report.stats.stale += 1;
        return;
    }
    let before = (qp.req.acked(), qp.req.flight.received());
    if let Ext::Aeth(Aeth { syndrome, .. }) = packet.ext
        && let Some(reason) = syndrome.refusal()
    {
        report.lookout.note(|| Observation::Nak { qpn, psn: psn.get(), reason });
    }
    match (packet.bth.op, packet.ext) {
        (Op::Ack, Ext::Aeth(aeth)) if aeth.syndrome == AethSyndrome::Nak(Nak::Sequence) => {
            report.counters.count(&qp.context, |counts| &mut counts.packet_seq_err);
            acknowledged(qp, psn, aeth, *now);
        }
        (Op::Ack, Ext::Aeth(aeth)) => acknowledged(qp, psn, aeth, *now),
        (Op::SelectiveAck, _) => qp.req.flight.take_report(psn, packet.payload),
        (Op::Accept, _) => qp.req.flight.take_data(psn),
        (Op::AtomicAck, Ext::AtomicAck(_, old)) => {
            take_response_data(qp, mkeys, dma, psn, &ResponseData::Atomic(old));
        }
        (Op::ReadFirst | Op::ReadMiddle | Op::ReadLast | Op::ReadOnly, _) => {
            take_response_data(qp, mkeys, dma, psn, &ResponseData::Read(packet.payload));
        }
        _ => {}
    }
    qp.req.settle(before, qp.send_psn, *now, config.window);
    let acked = qp.req.acked();
    if acked != before.0 {
        qp.rnr_tries = 0;
        // Acknowledgements of a first transmission may overtake a resend of the same packets.
        if qp.req.position(qp.send_psn).since(acked) < 0 {
            qp.req.seek(acked);
        }
    }
    qp.req.rearm(*now, config.retransmit);
    complete_front(core, qpn);
}

fn acknowledged(qp: &mut Qp, psn: Psn, aeth: Aeth, now: Instant) {
    if aeth.syndrome != AethSyndrome::Ack && psn.since(qp.req.acked()) < 0 {
        return;
    }
    match aeth.syndrome {
        AethSyndrome::Ack => qp.req.flight.acknowledge(psn),
        AethSyndrome::Rnr(code) => {
            qp.req.flight.confirm(psn);
            if qp.attrs.rnr_retry != 7 && qp.rnr_tries >= qp.attrs.rnr_retry {
                fail_at(qp, Syndrome::RNR_RETRY_EXC_ERR, 0);
                return;
            }
            qp.rnr_tries = qp.rnr_tries.saturating_add(1);
            qp.req.progress = Some(now);
            qp.req.pause = Some(now + rnr_time(code));
            qp.req.resume();
        }
        AethSyndrome::Nak(Nak::Sequence) => {
            qp.req.flight.confirm(psn);
            if qp.req.flight.peer_keeps {
                qp.req.flight.lack(psn);
            } else {
                note_loss(&mut qp.req);
            }
        }
        AethSyndrome::Nak(nak) => {
            qp.req.flight.confirm(psn);
            let syndrome = match nak {
                Nak::RemoteAccess => Syndrome::REMOTE_ACCESS_ERR,
                Nak::RemoteOperational => Syndrome::REMOTE_OP_ERR,
                Nak::InvalidRequest | Nak::Sequence => Syndrome::REMOTE_INVAL_REQ_ERR,
            };
            fail_at(qp, syndrome, 0);
        }
        AethSyndrome::Unknown(_) => {}
    }
}

/// Handles the first notice of a loss. The timer covers later ones.
fn note_loss(req: &mut Requester) {
    if req.lost != Some(req.acked()) {
        req.lost = Some(req.acked());
        req.go_back();
    }
}

/// The data of a response.
enum ResponseData<'a> {
    Read(&'a [u8]),
    Atomic(u64),
}

/// Takes response data, in any order.
fn take_response_data(qp: &mut Qp, mkeys: &Mkeys, dma: &mut Dma, psn: Psn, bytes: &ResponseData<'_>) {
    if qp.req.flight.is_done(psn) {
        return;
    }
    let at = qp.req.messages.partition_point(|message| message.end().since(psn) <= 0);
    let message = qp.req.messages.get_mut(at).filter(|message| psn.since(message.first) >= 0);
    let Some(message) = message.filter(|message| message.fetches() && message.fault.is_none()) else {
        return;
    };
    let user = User { pd: qp.pd, qpn: qp.qpn };
    let skip = u64::from(psn.since(message.first) as u32) << qp.attrs.mtu_shift();
    let fault = match scatter(message, mkeys, dma, user, skip, qp.attrs.mtu_shift(), bytes) {
        Ok(true) => return qp.req.flight.take_data(psn),
        // The response does not fit the request.
        Ok(false) => (Syndrome::BAD_RESP_ERR, 0),
        Err(refused) => refused.syndrome(),
    };
    message.fault = Some(fault);
    qp.req.broken = true;
    qp.req.flight.confirm(psn);
}

/// Writes response data to local memory. Returns `false` if it does not fit the request.
fn scatter(
    message: &Message,
    mkeys: &Mkeys,
    dma: &mut Dma,
    user: User,
    skip: u64,
    mtu_shift: u32,
    bytes: &ResponseData<'_>,
) -> Result<bool, LocalError> {
    let Ok(view) = message.view() else { return Ok(false) };
    let (data, at, is_last, result);
    match (message.kind, bytes) {
        (Kind::Read, ResponseData::Read(payload)) => {
            if payload.len() as u64 != (message.len - skip.min(message.len)).min(1 << mtu_shift) {
                return Ok(false);
            }
            (data, at, is_last) = (*payload, skip, skip + payload.len() as u64 == message.len);
        }
        (Kind::Atomic, ResponseData::Atomic(old)) => {
            let Some(atomic) = view.atomic() else { return Ok(false) };
            let width = if atomic.size() == 4 { Width::Four } else { Width::Eight };
            let (bytes, len) = wqe::atomic_result(*old, width);
            result = bytes;
            (data, at, is_last) = (&result[..len], 0, true);
        }
        _ => return Ok(false),
    }
    for_each_piece(&view, mkeys, user, Rights::LOCAL_WRITE, at, data.len() as u64, |piece, from| {
        let Piece::Memory(to) = piece else { return Ok(()) };
        let from = from as usize;
        let part = &data[from..from + to.len as usize];
        dma.write_packet(&to, part, is_last).map_err(|_: MemoryError| LocalError::Memory)
    })?;
    Ok(true)
}

/// Makes the WQE with the oldest unacknowledged packet fail after all earlier ones complete.
fn fail_at(qp: &mut Qp, syndrome: Syndrome, vendor: u8) {
    let acked = qp.req.acked();
    let unfinished = |message: &&mut Message| message.packets != 0 && message.end().since(acked) > 0;
    if let Some(message) = qp.req.messages.iter_mut().find(unfinished) {
        message.fault.get_or_insert((syndrome, vendor));
        qp.req.broken = true;
    } else {
        // No WQE is in flight, but the connection has failed.
        tracing::debug!(qpn = qp.qpn, ?syndrome, "error without an entry in flight");
        qp.state = State::Error;
    }
}

/// Completes acknowledged WQEs, oldest first.
pub(crate) fn complete_front(core: &mut Core, qpn: u32) {
    let Core { qps, cqs, dma, report, .. } = core;
    let Some(qp) = qps.get_mut(qpn).filter(|qp| qp.state == State::Rts) else { return };
    while let Some(message) = qp.req.messages.front() {
        let done = Done { index: message.index, opcode: message.opcode, byte_cnt: 0 };
        if let Some((syndrome, vendor)) = message.fault {
            retire_front(qp, report);
            fail(qp, cqs, report, done, syndrome, vendor);
            break;
        }
        // A message completes only after it was sent, even one without packets.
        if message.end().since(qp.req.acked()) > 0 || qp.req.next == 0 {
            break;
        }
        if message.kind == Kind::Connect {
            qp.req.retire_front();
            continue;
        }
        let Ok(view) = message.view() else { break };
        let signaled = view.flags().is_signaled();
        let byte_cnt = wqe::returned_bytes(&view);
        report.stats.bytes += message.len;
        retire_front(qp, report);
        if signaled {
            if dma.flush().is_err() {
                fail(qp, cqs, report, done, Syndrome::LOCAL_PROT_ERR, 0);
                break;
            }
            complete(qp, cqs, report, Done { byte_cnt, ..done });
        } else {
            report.lookout.note(|| wqe::ends(qpn, done, None));
        }
        if qp.state != State::Rts {
            break;
        }
    }
    if qp.state == State::Rts
        && let Some(at) = qp.req.deadline()
    {
        core.arm(qpn, at);
    }
}

/// Removes the oldest WQE from the messages in flight.
fn retire_front(qp: &mut Qp, report: &mut Report) {
    if let Some(message) = qp.req.retire_front() {
        report.stats.wqes += 1;
        if let Some(sq) = &mut qp.sq {
            sq.consumer = message.index.wrapping_add(u16::from(message.blocks));
        }
    }
}
