//! The requester: processes acknowledgements, responses and timeouts, and completes WQEs.
//!
//! WQEs complete in order. If the timer expires, the requester resends everything that is not acknowledged, or, to a peer
//! that keeps packets, a probe; the wait then doubles. A QP fails once nothing has been acknowledged for its whole retry
//! time.

use crate::dma::{Dma, Mkeys, Rights, User};
use crate::memory::MemoryError;
use crate::objects::Objects;
use crate::objects::qp::{Dci, Kind, Message, Qp, State, rnr_time};
use crate::queues::{complete, fail};
use crate::report::{Observation, Report};
use crate::roce::{Aeth, AethSyndrome, Ext, Nak, Op, Packet, Psn};
use crate::transport::datapath::Datapath;
use crate::wqe::{self, Done, LocalError, Piece, for_each_piece};
use rushmem_mlx5::{Syndrome, Width};
use std::time::{Duration, Instant};

/// Vendor syndrome of a completion with `TRANSPORT_RETRY_EXC_ERR` if its packets were too long for the link.
pub const PACKET_TOO_LONG: u8 = 0x61;

/// Handles the QP's expired timers: retransmits, sends a probe or fails. Returns whether there is something to send.
pub(super) fn timers(path: &mut Datapath, qpn: u32) -> bool {
    let Datapath { objects: Objects { qps, .. }, config, report, .. } = path;
    let now = report.now;
    let Some(qp) = qps.get_mut(qpn) else { return false };
    // The RNR pause is over, so sending resumes where the peer refused.
    if qp.req.pause.is_some_and(|pause| pause <= now) {
        qp.req.pause = None;
        qp.req.resend = None;
        qp.req.rearm(now, config.retransmit);
    }
    if qp.req.pause.is_some() || qp.req.resend.is_none_or(|at| at > now) {
        return false;
    }
    // A wait shorter than the configured one is a probe of an adaptive timer, not an ACK timeout.
    let is_early = qp.req.backoff < config.retransmit;
    if !is_early {
        report.counters.count(&qp.context, |counts| &mut counts.local_ack_timeout_err);
    }
    let waited = qp.req.progress.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
    // No progress for the whole retry time: give up.
    if qp.attrs.retry_timeout().is_some_and(|patience| waited >= patience) {
        let vendor = if qp.req.too_long { PACKET_TOO_LONG } else { 0 };
        fail_at(qp, Syndrome::TRANSPORT_RETRY_EXC_ERR, vendor);
        return true;
    }
    // A peer that keeps packets can report what is missing, so a probe is enough. Any other gets everything again.
    if !(is_early && qp.req.probe(qp.send_psn)) {
        qp.req.go_back();
    }
    let longest = qp.attrs.ack_wait().unwrap_or(Duration::from_secs(1)).max(config.retransmit);
    qp.req.backoff = (qp.req.backoff * 2).min(longest);
    // Capped, to not delay the final timeout.
    let left = qp.attrs.retry_timeout().map_or(qp.req.backoff, |patience| patience.saturating_sub(waited));
    qp.req.resend = Some(now + qp.req.backoff.min(left));
    true
}

/// Processes an acknowledgement or a response.
pub(super) fn response(path: &mut Datapath, qpn: u32, packet: &Packet<'_>) {
    let Datapath { objects: Objects { qps, mkeys, dma, .. }, config, report, .. } = path;
    let now = report.now;
    let Some(qp) = qps.get_mut(qpn).filter(|qp| qp.state == State::Rts) else { return };
    let psn = packet.bth.psn;
    // Stale, or for a PSN that was never sent.
    if psn.since(qp.req.flight.highest()) >= 0 || psn.plus(1).since(qp.req.acked()) < 0 {
        report.stats.stale += 1;
        return;
    }
    let is_refusal = matches!(packet.ext, Ext::Aeth(aeth) if aeth.syndrome.refusal().is_some());
    if packet.bth.op == Op::Accept {
        // Several connect packets may have been sent; only the answer to the last one counts.
        if !qp.accept(packet) {
            report.stats.stale += 1;
            return;
        }
    // The connection is not established, so this can only be left over from the previous one.
    } else if qp.dci.as_deref().is_some_and(Dci::is_connecting) && !is_refusal {
        report.stats.stale += 1;
        return;
    }
    // `settle` compares with this to find out what the response changed.
    let before = (qp.req.acked(), qp.req.flight.received());
    if let Ext::Aeth(Aeth { syndrome, .. }) = packet.ext
        && let Some(reason) = syndrome.refusal()
    {
        report.lookout.note(|| Observation::Nak { qpn, psn: psn.get(), reason });
    }
    match (packet.bth.op, packet.ext) {
        (Op::Ack, Ext::Aeth(aeth)) if aeth.syndrome == AethSyndrome::Nak(Nak::Sequence) => {
            report.counters.count(&qp.context, |counts| &mut counts.packet_seq_err);
            acknowledged(qp, psn, aeth, now);
        }
        (Op::Ack, Ext::Aeth(aeth)) => acknowledged(qp, psn, aeth, now),
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
    qp.req.settle(before, qp.send_psn, now, config.window);
    let acked = qp.req.acked();
    if acked != before.0 {
        // Any progress restarts the RNR count.
        qp.rnr_tries = 0;
        // A late acknowledgement of the first transmission may cover packets that are queued for retransmission.
        if qp.req.position(qp.send_psn).since(acked) < 0 {
            qp.req.seek(acked);
        }
    }
    qp.req.rearm(now, config.retransmit);
    complete_front(path, qpn);
}

/// Applies an ACK or NAK, which also acknowledges all packets before it.
fn acknowledged(qp: &mut Qp, psn: Psn, aeth: Aeth, now: Instant) {
    // A stale NAK: its packet has been acknowledged since.
    if aeth.syndrome != AethSyndrome::Ack && psn.since(qp.req.acked()) < 0 {
        return;
    }
    match aeth.syndrome {
        AethSyndrome::Ack => qp.req.flight.acknowledge(psn),
        AethSyndrome::Rnr(code) => {
            qp.req.flight.confirm(psn);
            // A retry count of 7 means no limit.
            if qp.attrs.rnr_retry != 7 && qp.rnr_tries >= qp.attrs.rnr_retry {
                fail_at(qp, Syndrome::RNR_RETRY_EXC_ERR, 0);
                return;
            }
            qp.rnr_tries = qp.rnr_tries.saturating_add(1);
            // The peer is alive, so the pause does not count towards the retry timeout.
            qp.req.progress = Some(now);
            qp.req.pause = Some(now + rnr_time(code));
            qp.req.resume();
        }
        AethSyndrome::Nak(Nak::Sequence) => {
            qp.req.flight.confirm(psn);
            // The report that preceded this NAK names the missing packets. Without reports, go back to the first of
            // them.
            if qp.req.flight.peer_keeps {
                qp.req.flight.lack(psn);
            } else {
                qp.req.note_loss();
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

enum ResponseData<'a> {
    Read(&'a [u8]),
    Atomic(u64),
}

/// Processes response data, which may arrive in any order.
fn take_response_data(qp: &mut Qp, mkeys: &Mkeys, dma: &mut Dma, psn: Psn, bytes: &ResponseData<'_>) {
    if qp.req.flight.is_done(psn) {
        return;
    }
    // Messages are in PSN order, so this finds the one that contains `psn`.
    let at = qp.req.messages.partition_point(|message| message.end().since(psn) <= 0);
    let message = qp.req.messages.get_mut(at).filter(|message| psn.since(message.first) >= 0);
    let Some(message) = message.filter(|message| message.fetches() && message.fault.is_none()) else {
        return;
    };
    let user = User { pd: qp.pd, qpn: qp.qpn };
    let skip = u64::from(psn.since(message.first) as u32) << qp.attrs.mtu_shift();
    let fault = match scatter(message, mkeys, dma, user, skip, qp.attrs.mtu_shift(), bytes) {
        Ok(true) => return qp.req.flight.take_data(psn),
        // The response does not match the request.
        Ok(false) => (Syndrome::BAD_RESP_ERR, 0),
        Err(refused) => refused.syndrome(),
    };
    message.fault = Some(fault);
    qp.req.broken = true;
    // Everything before the bad response has been executed.
    qp.req.flight.confirm(psn);
}

/// Writes response data to local memory. Returns `false` if it does not match the request.
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

/// Fails the WQE with the oldest unacknowledged packet, once all earlier ones have completed.
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

/// Completes the oldest WQEs of a QP, up to the first that is not acknowledged.
pub(super) fn complete_front(path: &mut Datapath, qpn: u32) {
    let Datapath { objects: Objects { qps, cqs, dma, .. }, report, schedule, .. } = path;
    let Some(qp) = qps.get_mut(qpn).filter(|qp| qp.state == State::Rts) else { return };
    while let Some(message) = qp.req.messages.front() {
        let done = Done { index: message.index, opcode: message.opcode, byte_cnt: 0 };
        // Completing with an error moves the QP to the error state, so this is the last completion here.
        if let Some((syndrome, vendor)) = message.fault {
            retire_front(qp, report);
            fail(qp, cqs, report, done, syndrome, vendor);
            break;
        }
        // The WQE at the send position has not been sent. Without packets, it would count as acknowledged.
        if message.end().since(qp.req.acked()) > 0 || qp.req.next == 0 {
            break;
        }
        // The connect packet is not a WQE and has no completion.
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
            // READ data and atomic results must be visible before the CQE.
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
        schedule.arm(qp, at);
    }
}

/// Removes the oldest WQE in flight, and advances the send queue past it.
fn retire_front(qp: &mut Qp, report: &mut Report) {
    if let Some(message) = qp.req.retire_front() {
        report.stats.wqes += 1;
        if let Some(sq) = &mut qp.sq {
            sq.consumer = message.index.wrapping_add(u16::from(message.blocks));
        }
    }
}
