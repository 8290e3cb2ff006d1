//! Builds the request packets of a WQE.

use super::ahead::Ahead;
use crate::dma::{Dma, Mkeys, Rights, User};
use crate::link::Fabric;
use crate::objects::qp::{Kind, Message, Qp};
use crate::roce::{Bth, Connect, Ext, Op, Reth, Service};
use crate::wqe::{self, LocalError, Piece, for_each_piece};
use rushmem_mlx5::AtomicOp;
use rushmem_mlx5::wqe::Atomic;
use std::net::SocketAddrV4;

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
