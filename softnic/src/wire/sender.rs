//! Cuts send WQEs into packets.

use super::ahead::{self, Ahead};
use super::message::{Kind, Message};
use super::selective;
use crate::core::{Core, MAX_SEGMENTS};
use crate::cq::Cq;
use crate::dc::Dci;
use crate::dma::{Dma, Mkeys, Rights, User};
use crate::link::Fabric;
use crate::loopback::{check_dump, cq_reached};
use crate::qp::Qp;
use crate::report::Report;
use crate::report::observe::Observation;
use crate::report::violation::Rule;
use crate::roce::{Bth, Connect, Ext, Op, Psn, Reth, Service};
use crate::route::Route;
use crate::sq;
use crate::table::Table;
use crate::wire::Requester;
use crate::wqe::{self, LocalError, Piece, for_each_piece, waits_for_all, waits_for_reads};
use rushmem_mlx5::wqe::{Atomic, View};
use rushmem_mlx5::{AtomicOp, Opcode, Segment, Syndrome};
use std::net::SocketAddrV4;
use std::time::Duration;

/// Packets sent in one visit.
pub(super) const BURST: usize = 64;
/// Maximum number of response packets of one READ request. Long READs become several requests, so the window limits
/// the response traffic.
pub(super) const READ_CHUNK: u32 = 32;
/// Interval of acknowledgement requests within a long message, in packets.
const ACK_EVERY: u32 = 16;
/// Poll interval of a WQE that waits for a CQ.
const POLL_CQ: Duration = Duration::from_micros(50);
/// Maximum number of WQEs in flight.
const MESSAGES: usize = 1024;

/// Sends packets of a QP as far as window and socket allow. Returns whether it can continue at once.
pub(crate) fn run(core: &mut Core, qpn: u32) -> bool {
    if selective::repair(core, qpn) {
        return true;
    }
    let mut ahead = ahead::payloads(core, qpn);
    for _ in 0..BURST {
        match step(core, qpn, &mut ahead) {
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

fn step(core: &mut Core, qpn: u32, ahead: &mut Ahead) -> Step {
    let Core { qps, cqs, mkeys, dma, scratch, report, fabric, now, config, .. } = core;
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
                let at = *now + POLL_CQ;
                core.arm(qpn, at);
                return Step::Idle;
            }
        }
    }
    let to = Destination::of(qp, peer);
    let req = &mut qp.req;
    let Some(message) = req.messages.get(req.next) else { return Step::Idle };
    if message.packets == 0 {
        (req.next, req.next_packet) = after((req.next, req.next_packet), 0, message);
        return Step::Sent;
    }
    let psn = message.first.plus(req.next_packet);
    if req.flight.has(psn) {
        (req.next, req.next_packet) = after((req.next, req.next_packet), 1, message);
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
    let sent = emit(message, req.next_packet, count, asks, &to, parts, user);
    let emitted = match sent {
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
    report.lookout.note(|| {
        let (op, bytes) = emitted;
        Observation::PacketSent { qpn, psn: psn.get(), opcode: op.name(), bytes, is_retransmission }
    });
    let fetches = message.fetches();
    if fetches {
        req.reads.push_back(psn.plus(count - 1));
    }
    (req.next, req.next_packet) = after((req.next, req.next_packet), count, message);
    match qp.service {
        Service::Rc | Service::Dc | Service::Xrc => req.sent((psn, count), fetches, *now, config.retransmit),
        // No acknowledgement will come.
        Service::Uc | Service::Ud => req.start(end),
    }
    Step::Sent
}

/// Returns the place `count` packets behind a packet of `message`: a number of a message, and of a packet in it.
pub(super) fn after((number, packet): (usize, u32), count: u32, message: &Message) -> (usize, u32) {
    if packet + count < message.packets { (number, packet + count) } else { (number + 1, 0) }
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

pub(super) enum Start {
    Started,
    Nothing,
    /// Waits for a condition that no doorbell or packet announces.
    Poll,
}

/// Starts the next WQE of the send queue.
pub(super) fn start(
    qp: &mut Qp,
    cqs: &Table<Cq>,
    mkeys: &Mkeys,
    dma: &mut Dma,
    report: &mut Report,
    scratch: &mut [Segment; MAX_SEGMENTS],
) -> Start {
    let Some(sq) = qp.sq.as_ref() else { return Start::Nothing };
    if qp.req.messages.is_empty() {
        qp.req.started = sq.consumer;
    }
    if qp.dci.as_deref().is_some_and(Dci::is_connecting) {
        return Start::Nothing;
    }
    let index = qp.req.started;
    if qp.req.broken || index == sq.producer || qp.req.messages.len() >= MESSAGES {
        return Start::Nothing;
    }
    let psn = qp.send_psn;
    let view = match sq::fetch(sq, (qp.service, qp.qpn), index, scratch, report) {
        Ok(view) => view,
        Err(bad) => {
            report.violations.record(Rule::Wqe, qp.qpn, bad.detail);
            let blocks = bad.blocks.min(u16::from(u8::MAX)) as u8;
            let fault = (Syndrome::LOCAL_QP_OP_ERR, 0);
            qp.req.messages.push_back(Message::broken(index, blocks, bad.opcode, psn, fault));
            qp.req.broken = true;
            return Start::Started;
        }
    };
    if qp.dci.as_mut().is_some_and(|dci| !dci.serves(&view)) {
        return Start::Nothing;
    }
    let unanswered = |message: &Message| message.fetches() && message.end().since(qp.req.acked()) > 0;
    if waits_for_reads(view.flags()) && qp.req.messages.iter().any(unanswered) {
        return Start::Nothing;
    }
    if waits_for_all(view.flags()) && !qp.req.messages.is_empty() {
        return Start::Nothing;
    }
    let reached = cq_reached(&view, cqs).map_err(LocalError::syndrome);
    if reached == Ok(false) {
        return Start::Poll;
    }
    let user = User { pd: qp.pd, qpn: qp.qpn };
    let kind = match (view.opcode(), view.atomic()) {
        (_, Some(_)) => Kind::Atomic,
        (Opcode::RDMA_READ, _) => Kind::Read,
        (Opcode::RDMA_WRITE | Opcode::RDMA_WRITE_IMM, _) => Kind::Write,
        (Opcode::SEND | Opcode::SEND_IMM | Opcode::SEND_INVAL, _) => Kind::Send,
        _ => Kind::Local,
    };
    let packets = match kind {
        Kind::Local => 0,
        Kind::Atomic => 1,
        _ => qp.attrs.packets(view.data_len()),
    };
    let mut message = Message::new(&view, qp.service, kind, psn, packets);
    if let Route::Peer(peer) = qp.route {
        report.lookout.note(|| wqe::begins(qp.qpn, &view, Some(peer)));
    }
    let checked = reached.and_then(|_| check(&view, kind, mkeys, user, qp));
    let checked = checked.and_then(|()| match view.opcode() {
        // The completion of a DUMP means that earlier writes are visible.
        Opcode::DUMP => dma.flush().map_err(|_| (Syndrome::LOCAL_PROT_ERR, 0)),
        _ => Ok(()),
    });
    if let Err(fault) = checked {
        (message.fault, message.packets) = (Some(fault), 0);
        qp.req.broken = true;
    }
    qp.req.started = index.wrapping_add(u16::from(message.blocks));
    qp.send_psn = psn.plus(message.packets);
    qp.req.messages.push_back(message);
    Start::Started
}

/// Makes all checks of the requester.
fn check(view: &View<'_>, kind: Kind, mkeys: &Mkeys, user: User, qp: &Qp) -> Result<(), (Syndrome, u8)> {
    let len = view.data_len();
    if !qp.service.is_reliable() && matches!(kind, Kind::Read | Kind::Atomic) {
        return Err(LocalError::Operation.syndrome());
    }
    if view.opcode() == Opcode::SEND_INVAL {
        return Err((Syndrome::REMOTE_INVAL_REQ_ERR, 0));
    }
    if len > 1 << qp.attrs.log_msg_max {
        return Err(LocalError::Length.syndrome());
    }
    let checked = match kind {
        Kind::Local | Kind::Connect => check_dump(view, user, mkeys),
        Kind::Write | Kind::Send => check_keys(view, user, mkeys, Rights::LOCAL_READ, len),
        Kind::Read => check_keys(view, user, mkeys, Rights::LOCAL_WRITE, len),
        Kind::Atomic => {
            let size = view.atomic().map_or(0, |atomic| u64::from(atomic.size()));
            if len < size {
                Err(LocalError::Length)
            } else {
                check_keys(view, user, mkeys, Rights::LOCAL_WRITE, len)
            }
        }
    };
    checked.map_err(LocalError::syndrome)
}

/// Checks the keys of all data without moving it.
fn check_keys(view: &View<'_>, user: User, mkeys: &Mkeys, need: Rights, len: u64) -> Result<(), LocalError> {
    for_each_piece(view, mkeys, user, need, 0, len, |_, _| Ok(()))
}

/// The destination of packets.
pub(super) struct Destination {
    service: Service,
    peer: SocketAddrV4,
    qpn: u32,
    pkey: u16,
    mtu_shift: u32,
    /// The target of dynamic connections, and the request for one.
    dct: Option<(u32, Connect)>,
}

impl Destination {
    /// Returns the destination of a connected QP.
    pub(super) fn of(qp: &Qp, peer: SocketAddrV4) -> Destination {
        let (qpn, pkey, mtu_shift) = (qp.attrs.remote_qpn, qp.attrs.pkey, qp.attrs.mtu_shift());
        let dct = qp.dci.as_ref().and_then(|dci| dci.request(qp.qpn, qp.attrs.mtu));
        Destination { service: qp.service, peer, qpn, pkey, mtu_shift, dct }
    }
}

pub(super) struct Parts<'c> {
    pub(super) mkeys: &'c Mkeys,
    pub(super) dma: &'c mut Dma,
    pub(super) fabric: &'c mut Fabric,
    /// Payloads that are read already.
    pub(super) ahead: &'c mut Ahead,
}

/// Builds packet number `packet` of a message, or a READ request for `count` packets from there. Returns the packet's
/// operation, and the bytes of its payload.
pub(super) fn emit(
    message: &Message,
    packet: u32,
    count: u32,
    ask: bool,
    to: &Destination,
    parts: Parts<'_>,
    user: User,
) -> Result<(Op, u64), LocalError> {
    let Parts { mkeys, dma, fabric, ahead } = parts;
    let way = (user.qpn, to.peer);
    if message.kind == Kind::Connect {
        let Some((dctn, connect)) = to.dct else { return Err(LocalError::Operation) };
        let (service, op, pkey, psn) = (to.service, Op::Connect, to.pkey, message.first);
        let bth = Bth { service, op, solicited: false, pkey, ack_req: true, dest_qpn: dctn, psn, srqn: None };
        fabric.send_empty(way, &bth, &Ext::Connect(connect));
        return Ok((op, 0));
    }
    let Ok(view) = message.view() else { return Err(LocalError::Memory) };
    let skip = u64::from(packet) << to.mtu_shift;
    let remote = view.remote();
    let (addr, rkey) = remote.map_or((0, 0), |at| (at.addr.get(), at.rkey.get()));
    let last = packet + count == message.packets;
    let mut bth = Bth {
        service: to.service,
        op: Op::ReadRequest,
        solicited: last && view.flags().is_solicited(),
        pkey: to.pkey,
        ack_req: to.service.is_reliable() && (last || ask),
        dest_qpn: to.qpn,
        psn: message.first.plus(packet),
        srqn: view.xrc_srqn(),
    };
    match message.kind {
        Kind::Local | Kind::Connect => {}
        Kind::Read => {
            let len = (u64::from(count) << to.mtu_shift).min(message.len - skip);
            let reth = Reth { addr: addr.wrapping_add(skip), rkey, len: len as u32 };
            fabric.send_empty(way, &bth, &Ext::Reth(reth));
        }
        Kind::Atomic => {
            let Some(atomic) = view.atomic() else { return Err(LocalError::Memory) };
            let (op, ext) = atomic_request(atomic, addr, rkey);
            bth.op = op;
            fabric.send_empty(way, &bth, &ext);
        }
        Kind::Write | Kind::Send => {
            bth.op = message.packet_op(packet);
            let imm = view.imm().unwrap_or(0);
            let reth = Reth { addr, rkey, len: message.len as u32 };
            let ext = match bth.op {
                Op::WriteFirst | Op::WriteOnly => Ext::Reth(reth),
                Op::WriteOnlyImm => Ext::RethImm(reth, imm),
                Op::WriteLastImm | Op::SendLastImm | Op::SendOnlyImm => Ext::Imm(imm),
                _ => Ext::None,
            };
            let len = (message.len - skip.min(message.len)).min(1 << to.mtu_shift);
            fabric.send(way, &bth, &ext, len as usize, |payload| {
                if let Some(bytes) = ahead.take(bth.psn) {
                    payload.copy_from_slice(bytes);
                    return Ok(());
                }
                for_each_piece(&view, mkeys, user, Rights::LOCAL_READ, skip, len, |piece, at| {
                    let at = at as usize;
                    match piece {
                        Piece::Inline(bytes) => payload[at..at + bytes.len()].copy_from_slice(bytes),
                        Piece::Memory(from) => {
                            let part = &mut payload[at..at + from.len as usize];
                            dma.read(&from, part).map_err(|_| LocalError::Memory)?;
                        }
                    }
                    Ok(())
                })
            })?;
            return Ok((bth.op, len));
        }
    }
    Ok((bth.op, 0))
}

/// Returns the packet of an atomic: InfiniBand's own if there is one.
fn atomic_request(atomic: Atomic, addr: u64, rkey: u32) -> (Op, Ext) {
    match atomic {
        Atomic::FetchAdd { add } => (Op::FetchAdd, Ext::Atomic { addr, rkey, swap_add: add, compare: 0 }),
        Atomic::CompareSwap { compare, swap } => {
            (Op::CompareSwap, Ext::Atomic { addr, rkey, swap_add: swap, compare })
        }
        masked => {
            let (op, width, _) = wqe::atomic(masked);
            let (code, operands) = match op {
                AtomicOp::Add { add, boundary } => (Op::MaskedFetchAdd, [add, boundary, 0, 0]),
                AtomicOp::CompareSwap { compare, swap, compare_mask, swap_mask } => {
                    (Op::MaskedCompareSwap, [compare, swap, compare_mask, swap_mask])
                }
            };
            (code, Ext::Masked { addr, rkey, width: width.bytes() as u32, operands })
        }
    }
}

/// Sets all packet numbers of the requester when a connection begins.
pub(crate) fn begin(qp: &mut Qp, psn: Psn) {
    qp.send_psn = psn;
    qp.req.start(psn);
    if let Some(sq) = &qp.sq {
        qp.req.started = sq.consumer;
    }
}
