//! The responder: executes the peer's requests in PSN order.
//!
//! The first packet past a gap is answered by a NAK. The others are dropped, unless [selective
//! retransmission](super::selective) buffers them. A duplicate is answered again: a READ reads memory again, an atomic
//! returns the stored result, and anything else is only acknowledged, since a repeated WRITE could overwrite newer data.

use super::late;
use crate::dma::{Dma, Mkeys};
use crate::objects::qp::{ExecutedRead, PartialMessage, Qp, Response, State, xrc};
use crate::objects::{Cq, Objects, SharedSrq, access};
use crate::queues::{Origin, ReceivedMessage, complete_receive, fail_receive, take_receive};
use crate::report::{Observation, RemoteAddress, Report};
use crate::request::{AtomicRequest, RemoteError, RemoteRange};
use crate::roce::{AethSyndrome, Bth, Ext, Nak, Op, Packet, Psn, Reth};
use crate::table::Table;
use crate::transport::datapath::Datapath;
use rushmem_mlx5::{AtomicOp, CqeOpcode, Opcode, Width};
use std::time::Instant;

/// Number of atomic results kept for duplicate requests, which exceeds the number of atomics that a peer may have
/// outstanding.
const MAX_REPLAYS: usize = 256;

enum RequestError {
    LocalError(RemoteError),
    /// A receive of this QP failed, and has already been completed in error.
    Receive(RemoteError),
    /// No receive is posted, so the requester must try again later (RNR).
    NotReady,
}

impl From<RemoteError> for RequestError {
    fn from(refusal: RemoteError) -> RequestError {
        RequestError::LocalError(refusal)
    }
}

/// Handles a request of a reliable or dynamic connection.
pub(super) fn request(path: &mut Datapath, qpn: u32, packet: &Packet<'_>) {
    let Datapath { objects: Objects { qps, cqs, srqs, mkeys, dma, .. }, report, .. } = path;
    let Some(qp) = qps.get_mut(qpn) else { return };
    if qp.state == State::Error {
        // The first NAK may have been lost. Repeating it stops the peer from retransmitting until its retries are
        // exhausted.
        if let Some((psn, syndrome)) = qp.resp.final_nak {
            qp.push_response(Response::Ack { psn, syndrome });
        }
        return;
    }
    if !qp.state.receives() {
        report.stats.dropped += 1;
        return;
    }
    let ahead = packet.bth.psn.since(qp.recv_psn);
    // A gap. InfiniBand allows one NAK per gap: the packets already in flight would only repeat it.
    if ahead > 0 {
        report.stats.out_of_order += 1;
        report.counters.count(&qp.context, |counts| &mut counts.out_of_sequence);
        if !std::mem::replace(&mut qp.resp.gap, true) {
            qp.push_response(Response::Ack { psn: qp.recv_psn, syndrome: AethSyndrome::Nak(Nak::Sequence) });
        }
        return;
    }
    if ahead < 0 {
        // Already executed. The response may have been lost, so it is sent again, but the request must not be executed
        // twice.
        report.stats.duplicates += 1;
        report.counters.count(&qp.context, |counts| &mut counts.duplicate_request);
        if !is_fetch(packet.bth.op) || has_response_room(qp) {
            answer_duplicate(qp, srqs, mkeys, report, packet);
        }
        return;
    }
    // Dropped without advancing `recv_psn`, the request is as if lost. The requester's timer resends it.
    if is_fetch(packet.bth.op) && !has_response_room(qp) {
        report.stats.dropped += 1;
        return;
    }
    qp.resp.gap = false;
    if let Err(refusal) = xrc::aim_at_packet(qp, srqs, &packet.bth) {
        return refuse(qp, report, packet.bth.psn, refusal);
    }
    match execute(qp, cqs, mkeys, dma, report, packet) {
        Ok(()) => report.note_change(qp.owner),
        // `recv_psn` has not advanced, so the same PSN is expected again after the pause.
        Err(RequestError::NotReady) => {
            let syndrome = AethSyndrome::Rnr(qp.attrs.min_rnr_nak);
            qp.push_response(Response::Ack { psn: packet.bth.psn, syndrome });
        }
        Err(RequestError::LocalError(refusal) | RequestError::Receive(refusal)) => {
            refuse(qp, report, packet.bth.psn, refusal)
        }
    }
}

/// Refuses the request at `psn` by a NAK, and closes the connection.
pub(super) fn refuse(qp: &mut Qp, report: &mut Report, psn: Psn, refusal: RemoteError) {
    let syndrome = AethSyndrome::Nak(refusal.nak());
    tracing::debug!(qpn = qp.qpn, ?refusal, "request refused");
    qp.resp.final_nak = Some((psn, syndrome));
    // Another QP can use the receive. Without a shared queue, it is flushed with the others.
    if qp.srq.is_some() {
        qp.drop_partial_message();
    }
    qp.resp.message = None;
    // The acknowledgement of a split WRITE is queued before all its bytes are written. A NAK must not follow one that
    // covers the same PSN.
    qp.resp.responses.retain(|answer| answer.psn().since(psn) < 0);
    // The NAK queues after earlier responses, which may carry an injected delay.
    qp.resp.responses.iter_mut().for_each(Response::clear_delay);
    qp.push_response(Response::Ack { psn, syndrome });
    qp.enter_error(report, refusal.syndrome().0);
}

/// Handles a packet of an unreliable connection.
///
/// Nothing is answered. A message with a missing packet or an error is dropped, and reception resumes with the next
/// one.
pub(super) fn unreliable(path: &mut Datapath, qpn: u32, packet: &Packet<'_>) {
    let Datapath { objects: Objects { qps, cqs, mkeys, dma, .. }, report, .. } = path;
    let Some(qp) = qps.get_mut(qpn).filter(|qp| qp.state.receives()) else { return };
    let Bth { op, psn, .. } = packet.bth;
    let begins = op.begins();
    if psn != qp.recv_psn {
        report.stats.out_of_order += 1;
    }
    // A new message cuts off an unfinished one, and a gap makes the rest of it useless.
    if begins || psn != qp.recv_psn {
        report.stats.lost += u64::from(qp.drop_partial_message());
    }
    qp.recv_psn = psn.plus(1);
    if !begins && qp.resp.message.is_none() {
        // This packet belongs to a dropped message.
        return;
    }
    match execute(qp, cqs, mkeys, dma, report, packet) {
        Ok(()) => return report.note_change(qp.owner),
        // The receive has been completed in error, so the QP cannot continue.
        Err(RequestError::Receive(refusal)) => qp.enter_error(report, refusal.syndrome().0),
        Err(RequestError::LocalError(_) | RequestError::NotReady) => {
            qp.drop_partial_message();
        }
    }
    report.stats.lost += 1;
}

/// Answers a duplicate of a request that has been executed before.
fn answer_duplicate(
    qp: &mut Qp,
    srqs: &Table<SharedSrq>,
    mkeys: &Mkeys,
    report: &mut Report,
    packet: &Packet<'_>,
) {
    let psn = packet.bth.psn;
    match (packet.bth.op, packet.ext) {
        // A READ is repeatable, so a duplicate reads memory again. The key is checked again too: it may have been
        // destroyed.
        (Op::ReadRequest, Ext::Reth(reth)) => {
            // The requester may split a repeated READ differently, so this one can reach past the PSNs seen so far. In
            // that case the requests that followed were lost, and their PSNs now belong to this READ. Only the most
            // recent READ may grow: after any other request, advancing `recv_psn` would skip requests that were never
            // executed.
            let end = psn.plus(qp.attrs.packets(u64::from(reth.len)));
            let grows = end.since(qp.recv_psn) > 0;
            let shift = qp.attrs.mtu_shift();
            let of_last = || qp.resp.read.is_some_and(|read| read.includes(psn, &reth, shift));
            let pd = xrc::pd_of(qp, srqs, &packet.bth);
            let at = pd.map(|pd| RemoteRange { pd, addr: reth.addr, rkey: reth.rkey, len: reth.len.into() });
            let readable = at.and_then(|at| access::readable(qp, mkeys, at).map(|_| at));
            let fits = u64::from(reth.len) <= max_message_len(qp) && (!grows || of_last());
            let Some(RemoteRange { pd, .. }) = readable.ok().filter(|_| fits) else {
                report.stats.dropped += 1;
                return;
            };
            if grows {
                qp.recv_psn = end;
            }
            // Responses stay in request order. A queued READ that this one covers completely need not be sent as well.
            let count = |reth: &Reth| qp.attrs.packets(reth.len.into());
            let packets = count(&reth);
            qp.resp.responses.retain(|answer| match answer {
                Response::Read { psn: first, reth: old, .. } => {
                    first.since(psn) < 0 || first.plus(count(old)).since(psn.plus(packets)) > 0
                }
                _ => true,
            });
            qp.push_response(Response::Read { psn, pd, reth, sent: 0, due: None });
        }
        (Op::CompareSwap | Op::FetchAdd | Op::MaskedCompareSwap | Op::MaskedFetchAdd, _) => {
            // An atomic must not run twice, so the saved result answers. If it was evicted, the duplicate goes
            // unanswered.
            if let Some((_, old)) = qp.resp.replays.iter().find(|(at, _)| *at == psn) {
                let old = *old;
                qp.push_response(Response::Atomic { psn, old, due: None });
            }
        }
        _ => acknowledge(qp),
    }
}

/// Queues an ACK of all requests executed so far, which also answers any older duplicate.
pub(super) fn acknowledge(qp: &mut Qp) {
    let last = qp.recv_psn.plus(u32::MAX);
    qp.push_response(Response::Ack { psn: last, syndrome: AethSyndrome::Ack });
}

/// Executes the request with the expected PSN, and advances `recv_psn` if it succeeds.
fn execute(
    qp: &mut Qp,
    cqs: &mut Table<Cq>,
    mkeys: &Mkeys,
    dma: &mut Dma,
    report: &mut Report,
    packet: &Packet<'_>,
) -> Result<(), RequestError> {
    check_sequence(qp, packet)?;
    let psn = packet.bth.psn;
    let write_only =
        matches!(packet.bth.op, Op::WriteFirst | Op::WriteMiddle | Op::WriteLast | Op::WriteOnly);
    // Only WRITEs may be overtaken. Any other request is ordered after them, so their late payloads land first.
    if report.injects_faults && !write_only {
        late::land(qp, mkeys, dma, report, None).map_err(|(_, refusal)| refusal)?;
    }
    let mut numbers = 1;
    let mut read = None;
    match (packet.bth.op, packet.ext) {
        (Op::WriteFirst | Op::WriteOnly, Ext::Reth(reth)) => {
            write(qp, cqs, mkeys, dma, report, packet, Some(reth))?
        }
        (Op::WriteOnlyImm, Ext::RethImm(reth, _)) => write(qp, cqs, mkeys, dma, report, packet, Some(reth))?,
        (Op::WriteMiddle | Op::WriteLast | Op::WriteLastImm, _) => {
            write(qp, cqs, mkeys, dma, report, packet, None)?;
        }
        (
            Op::SendFirst | Op::SendMiddle | Op::SendLast | Op::SendLastImm | Op::SendOnly | Op::SendOnlyImm,
            _,
        ) => send(qp, cqs, mkeys, dma, report, packet)?,
        (Op::ReadRequest, Ext::Reth(reth)) => {
            read = Some(execute_read(qp, mkeys, report, packet, reth)?);
            // A READ consumes the PSNs of its response packets.
            numbers = qp.attrs.packets(reth.len.into());
        }
        (op, ext) => {
            let request = atomic_request(op, ext).ok_or(RemoteError::Invalid)?;
            execute_atomic(qp, mkeys, dma, report, packet, &request)?;
        }
    }
    // Past this point the request counts as executed, and a repetition is a duplicate.
    qp.recv_psn = psn.plus(numbers);
    qp.resp.read = read;
    // The response to a READ or an atomic acknowledges it, and everything before it.
    let answered = matches!(qp.resp.responses.back(), Some(Response::Read { .. } | Response::Atomic { .. }));
    let asked = packet.bth.ack_req && qp.service.is_reliable();
    if asked && !(answered && is_fetch(packet.bth.op)) {
        qp.push_response(Response::Ack { psn, syndrome: AethSyndrome::Ack });
    }
    Ok(())
}

/// Checks a READ and queues its response.
fn execute_read(
    qp: &mut Qp,
    mkeys: &Mkeys,
    report: &mut Report,
    packet: &Packet<'_>,
    reth: Reth,
) -> Result<ExecutedRead, RemoteError> {
    let (psn, pd) = (packet.bth.psn, qp.pd);
    let at = RemoteRange { pd, addr: reth.addr, rkey: reth.rkey, len: reth.len.into() };
    access::readable(qp, mkeys, at)?;
    if !packet.payload.is_empty() || at.len > max_message_len(qp) {
        return Err(RemoteError::Invalid);
    }
    // A software ConnectX reads a long message in parts, which count as one.
    let has_more = packet.bth.solicited;
    qp.msn = qp.msn.wrapping_add(u32::from(!has_more));
    qp.push_response(Response::Read { psn, pd, reth, sent: 0, due: report.draw_late_answer(qp.qpn) });
    let shift = qp.attrs.mtu_shift();
    let continued = qp.resp.read.filter(|read| read.includes(psn, &reth, shift));
    Ok(continued.unwrap_or(ExecutedRead { first: psn, addr: reth.addr, rkey: reth.rkey }))
}

/// Executes an atomic, queues its old value as the response, and saves the value for duplicates of the request.
fn execute_atomic(
    qp: &mut Qp,
    mkeys: &Mkeys,
    dma: &mut Dma,
    report: &mut Report,
    packet: &Packet<'_>,
    request: &AtomicRequest,
) -> Result<(), RemoteError> {
    let psn = packet.bth.psn;
    let since = report.lookout.time();
    let old = access::atomic(qp, mkeys, dma, request)?;
    if let Some(since) = since {
        let remote = Some(RemoteAddress { addr: request.addr, rkey: request.rkey });
        let (qpn, opcode, bytes) = (qp.number(), opcode_of(packet), request.width.bytes());
        report.lookout.note(|| Observation::Arrival { qpn, opcode, remote, bytes, since });
    }
    if qp.resp.replays.len() >= MAX_REPLAYS {
        qp.resp.replays.pop_front();
    }
    qp.resp.replays.push_back((psn, old));
    qp.msn = qp.msn.wrapping_add(1);
    qp.push_response(Response::Atomic { psn, old, due: report.draw_late_answer(qp.qpn) });
    Ok(())
}

/// Returns the maximum length of a message, in bytes. Longer ones would use so many PSNs that a duplicate could not be
/// told from a new request.
fn max_message_len(qp: &Qp) -> u64 {
    1 << qp.attrs.log_msg_max
}

/// Returns whether one more response may be queued.
///
/// A peer that respects `log_rra_max` needs that many slots, and as many again for each repetition. The limit leaves
/// room for several; a request beyond it is treated as lost.
fn has_response_room(qp: &Qp) -> bool {
    qp.resp.responses.len() < 8 << qp.attrs.log_rra_max
}

fn is_fetch(op: Op) -> bool {
    matches!(
        op,
        Op::ReadRequest | Op::CompareSwap | Op::FetchAdd | Op::MaskedCompareSwap | Op::MaskedFetchAdd
    )
}

/// Checks that the packet continues the partly received message, or starts a new one, with the right opcode and length.
fn check_sequence(qp: &Qp, packet: &Packet<'_>) -> Result<(), RemoteError> {
    let op = packet.bth.op;
    let continues_write = matches!(op, Op::WriteMiddle | Op::WriteLast | Op::WriteLastImm);
    let continues_send = matches!(op, Op::SendMiddle | Op::SendLast | Op::SendLastImm);
    let fits = match &qp.resp.message {
        None => !continues_write && !continues_send,
        Some(PartialMessage::Write { .. }) => continues_write,
        Some(PartialMessage::Send { .. }) => continues_send,
    };
    let mtu = 1usize << qp.attrs.mtu_shift();
    // Every packet but the last is a full MTU.
    let more = matches!(op, Op::WriteFirst | Op::WriteMiddle | Op::SendFirst | Op::SendMiddle);
    let len = packet.payload.len();
    if fits && len <= mtu && (!more || len == mtu) { Ok(()) } else { Err(RemoteError::Invalid) }
}

fn write(
    qp: &mut Qp,
    cqs: &mut Table<Cq>,
    mkeys: &Mkeys,
    dma: &mut Dma,
    report: &mut Report,
    packet: &Packet<'_>,
    begin: Option<Reth>,
) -> Result<(), RequestError> {
    let imm = immediate_of(packet);
    // Check first: a request that draws an RNR NAK must leave memory untouched.
    if imm.is_some() && !qp.has_receive() {
        return Err(no_receive(qp));
    }
    let part = WritePart::new(qp, report, packet, begin)?;
    land_write(qp, mkeys, dma, report, packet, &part)?;
    let WritePart { reth, end, since, is_last, .. } = part;
    if !is_last {
        qp.resp.message = Some(PartialMessage::Write { reth, done: end, since });
        return Ok(());
    }
    qp.resp.message = None;
    qp.msn = qp.msn.wrapping_add(1);
    if let Some(imm) = imm
        && let Some(receive) = take_receive(qp, report)
    {
        // The completion announces the data, so the data must be visible first.
        dma.flush().map_err(RemoteError::Failed)?;
        let kind = CqeOpcode::RESP_WR_IMM;
        let solicited = packet.bth.solicited;
        let (index, byte_cnt, origin) = (receive.index, reth.len, Origin::default());
        let message = ReceivedMessage { kind, index, byte_cnt, imm, solicited, origin };
        complete_receive(qp, cqs, report, message);
    }
    Ok(())
}

/// The place of a packet's payload within its WRITE message.
struct WritePart {
    /// Remote range of the whole message.
    reth: Reth,
    /// Offset of the payload's first byte in the message.
    start: u64,
    end: u64,
    /// When the message's first packet arrived, if an observer is attached.
    since: Option<Instant>,
    is_last: bool,
}

impl WritePart {
    /// Locates a WRITE packet in its message, and checks its length. `begin` is the header of a packet that starts a
    /// message.
    #[inline]
    fn new(
        qp: &Qp,
        report: &Report,
        packet: &Packet<'_>,
        begin: Option<Reth>,
    ) -> Result<WritePart, RemoteError> {
        let (reth, start, since) = match (begin, &qp.resp.message) {
            (Some(reth), _) => (reth, 0, report.lookout.time()),
            (None, Some(PartialMessage::Write { reth, done, since })) => (*reth, *done, *since),
            _ => return Err(RemoteError::Invalid),
        };
        let (len, end) = (u64::from(reth.len), start + packet.payload.len() as u64);
        let is_last = !matches!(packet.bth.op, Op::WriteFirst | Op::WriteMiddle);
        // The last packet must complete the message exactly, and no earlier one may.
        if (is_last && end != len) || (!is_last && end >= len) || len > max_message_len(qp) {
            return Err(RemoteError::Invalid);
        }
        Ok(WritePart { reth, start, end, since, is_last })
    }
}

/// Writes the payload of a WRITE packet to memory, or hands it to an injected fault that writes it later.
#[inline]
fn land_write(
    qp: &mut Qp,
    mkeys: &Mkeys,
    dma: &mut Dma,
    report: &mut Report,
    packet: &Packet<'_>,
    part: &WritePart,
) -> Result<(), RemoteError> {
    let &WritePart { reth, start, end, since, is_last } = part;
    // Checks the range of the whole message, so an out-of-range WRITE fails before its first byte is written.
    let place = RemoteRange { pd: qp.pd, addr: reth.addr, rkey: reth.rkey, len: reth.len.into() };
    let span = access::writable(qp, mkeys, place)?;
    let arrival = since.filter(|_| is_last).map(|since| Observation::Arrival {
        qpn: qp.number(),
        opcode: opcode_of(packet),
        remote: Some(RemoteAddress { addr: reth.addr, rkey: reth.rkey }),
        bytes: place.len,
        since,
    });
    if let Some(span) = span {
        // An immediate value announces its data, which must therefore land immediately and in order.
        let may_be_late = immediate_of(packet).is_none();
        if report.injects_faults
            && may_be_late
            && (late::start_late(qp, report, packet, (place, start), arrival)
                || late::start_split(qp, report, packet, (place, start), arrival))
        {
            return Ok(());
        }
        let at = span.part(start, end - start);
        let due = if may_be_late && qp.service.is_reliable() { report.draw_posted(qp.qpn) } else { None };
        match due {
            Some(due) => dma.post(&at, packet.payload.into(), due, qp.owner),
            None => dma.write_packet(&at, packet.payload, is_last).map_err(RemoteError::Failed)?,
        }
    }
    if let Some(arrival) = arrival {
        report.lookout.note_landing(dma.has_landed(), || arrival);
    }
    Ok(())
}

/// Returns the error of a request that consumes a receive when none is posted.
fn no_receive(qp: &Qp) -> RequestError {
    if qp.has_receive_queue() { RequestError::NotReady } else { RemoteError::Invalid.into() }
}

fn immediate_of(packet: &Packet<'_>) -> Option<u32> {
    match packet.ext {
        Ext::Imm(imm) | Ext::RethImm(_, imm) => Some(imm),
        _ => None,
    }
}

fn send(
    qp: &mut Qp,
    cqs: &mut Table<Cq>,
    mkeys: &Mkeys,
    dma: &mut Dma,
    report: &mut Report,
    packet: &Packet<'_>,
) -> Result<(), RequestError> {
    let op = packet.bth.op;
    let last = !matches!(op, Op::SendFirst | Op::SendMiddle);
    // Taken rather than borrowed: after an error, the message is over.
    let (receive, done, since) = match qp.resp.message.take() {
        Some(PartialMessage::Send { receive, done, since }) => (receive, done, since),
        Some(PartialMessage::Write { .. }) => return Err(RemoteError::Invalid.into()),
        // The first packet consumes the receive.
        None => match take_receive(qp, report) {
            Some(receive) => (receive, 0, report.lookout.time()),
            None => return Err(no_receive(qp)),
        },
    };
    let len = packet.payload.len() as u64;
    let spread = receive.spread(mkeys, qp.number(), done, len, |to, at| {
        let at = at as usize;
        dma.write(&to, &packet.payload[at..at + to.len as usize])
    });
    if let Err(bad) = spread {
        // The message does not fit, or a key of the receive is invalid. Both sides see the error.
        fail_receive(qp, cqs, report, receive.index, bad);
        return Err(RequestError::Receive(bad.refusal()));
    }
    let end = done + len;
    if !last {
        qp.resp.message = Some(PartialMessage::Send { receive, done: end, since });
        return Ok(());
    }
    // The completion announces the data, so the data must be visible first.
    dma.flush().map_err(RemoteError::Failed)?;
    if let Some(since) = since {
        let (qpn, opcode) = (qp.number(), opcode_of(packet));
        report.lookout.note(|| Observation::Arrival { qpn, opcode, remote: None, bytes: end, since });
    }
    qp.msn = qp.msn.wrapping_add(1);
    let (kind, imm) = match immediate_of(packet) {
        Some(imm) => (CqeOpcode::RESP_SEND_IMM, imm),
        None => (CqeOpcode::RESP_SEND, 0),
    };
    let solicited = packet.bth.solicited;
    let (index, byte_cnt, origin) = (receive.index, end as u32, Origin::default());
    let message = ReceivedMessage { kind, index, byte_cnt, imm, solicited, origin };
    complete_receive(qp, cqs, report, message);
    Ok(())
}

/// Returns the opcode of the WQE that a message's last or only packet belongs to.
fn opcode_of(packet: &Packet<'_>) -> Opcode {
    match packet.bth.op {
        Op::WriteLastImm | Op::WriteOnlyImm => Opcode::RDMA_WRITE_IMM,
        Op::SendLast | Op::SendOnly => Opcode::SEND,
        Op::SendLastImm | Op::SendOnlyImm => Opcode::SEND_IMM,
        Op::CompareSwap => Opcode::ATOMIC_CS,
        Op::FetchAdd => Opcode::ATOMIC_FA,
        Op::MaskedCompareSwap => Opcode::ATOMIC_MASKED_CS,
        Op::MaskedFetchAdd => Opcode::ATOMIC_MASKED_FA,
        _ => Opcode::RDMA_WRITE,
    }
}

/// Decodes the atomic operation in a packet, or returns `None` if it has no valid one.
fn atomic_request(op: Op, ext: Ext) -> Option<AtomicRequest> {
    let all = u64::MAX;
    let (addr, rkey, width, extended, op) = match (op, ext) {
        (Op::FetchAdd, Ext::Atomic { addr, rkey, swap_add, .. }) => {
            (addr, rkey, Width::Eight, false, AtomicOp::Add { add: swap_add, boundary: 0 })
        }
        (Op::CompareSwap, Ext::Atomic { addr, rkey, swap_add, compare }) => {
            let op = AtomicOp::CompareSwap { compare, swap: swap_add, compare_mask: all, swap_mask: all };
            (addr, rkey, Width::Eight, false, op)
        }
        (op, Ext::Masked { addr, rkey, width, operands: [a, b, c, d] }) => {
            let width = match width {
                4 => Width::Four,
                8 => Width::Eight,
                _ => return None,
            };
            let op = match op {
                Op::MaskedFetchAdd => AtomicOp::Add { add: a, boundary: b },
                _ => AtomicOp::CompareSwap { compare: a, swap: b, compare_mask: c, swap_mask: d },
            };
            (addr, rkey, width, true, op)
        }
        _ => return None,
    };
    Some(AtomicRequest { addr, rkey, width, extended, op })
}
