//! Builds and sends the request packets of a WQE.

use super::ahead::Ahead;
use crate::dma::{Dma, Mkeys, User};
use crate::link::Fabric;
use crate::objects::qp::{Kind, Message, Qp};
use crate::roce::{Bth, Connect, Ext, Op, Psn, Reth, Service};
use crate::wqe::{self, LocalError};
use rushmem_mlx5::AtomicOp;
use rushmem_mlx5::wqe::{Atomic, View};
use std::net::SocketAddrV4;

pub(super) struct Destination {
    service: Service,
    peer: SocketAddrV4,
    qpn: u32,
    pkey: u16,
    mtu_shift: u32,
    /// DCTN of the target and contents of the connect packet, if the QP is a DC initiator.
    dct: Option<(u32, Connect)>,
}

impl Destination {
    pub(super) fn of(qp: &Qp, peer: SocketAddrV4) -> Destination {
        let (qpn, pkey, mtu_shift) = (qp.attrs.remote_qpn, qp.attrs.pkey, qp.attrs.mtu_shift());
        let dct = qp.dci.as_ref().and_then(|dci| dci.request(qp.qpn, qp.attrs.mtu));
        Destination { service: qp.service, peer, qpn, pkey, mtu_shift, dct }
    }

    /// Returns the headers of the packet that connects to a DCT, or `None` if the QP is not a DC initiator.
    fn connect_request(&self, psn: Psn) -> Option<(Bth, Ext)> {
        let (dest_qpn, connect) = self.dct?;
        let bth = Bth {
            service: self.service,
            op: Op::Connect,
            solicited: false,
            pkey: self.pkey,
            ack_req: true,
            dest_qpn,
            psn,
            srqn: None,
        };
        Some((bth, Ext::Connect(connect)))
    }
}

pub(super) struct Parts<'c> {
    pub(super) mkeys: &'c Mkeys,
    pub(super) dma: &'c mut Dma,
    pub(super) fabric: &'c mut Fabric,
    /// Prefetched payloads of the next packets.
    pub(super) ahead: &'c mut Ahead,
}

/// The part of a message that one request packet covers.
#[derive(Clone, Copy)]
pub(super) struct Portion {
    /// Index of the first packet within the message.
    pub(super) packet: u32,
    /// Number of PSNs that the packet uses: one, or the number of response packets of a READ.
    pub(super) count: u32,
    /// Whether to request an acknowledgement even if this is not the last packet.
    pub(super) asks: bool,
}

/// Builds and sends one request packet of a message. Returns its opcode and its payload length in bytes.
pub(super) fn emit(
    message: &Message,
    portion: Portion,
    to: &Destination,
    parts: Parts<'_>,
    user: User,
) -> Result<(Op, u64), LocalError> {
    let Parts { mkeys, dma, fabric, ahead } = parts;
    let way = (user.qpn, to.peer);
    if message.kind == Kind::Connect {
        let (bth, ext) = to.connect_request(message.first).ok_or(LocalError::Operation)?;
        fabric.send_empty(way, &bth, &ext);
        return Ok((bth.op, 0));
    }
    let Ok(view) = message.view() else { return Err(LocalError::Memory) };
    let skip = u64::from(portion.packet) << to.mtu_shift;
    let (op, ext, len) = request(message, &view, portion, to)?;
    // Only the packet that completes the message may raise a solicited event, and it always requests an
    // acknowledgement.
    let is_last = portion.packet + portion.count == message.packets;
    // On a READ, where InfiniBand gives the bit no meaning, it says that another part of the message follows.
    let solicited = match message.kind {
        Kind::Read => !is_last,
        _ => is_last && view.flags().is_solicited(),
    };
    let bth = Bth {
        service: to.service,
        op,
        solicited,
        pkey: to.pkey,
        ack_req: to.service.is_reliable() && (is_last || portion.asks),
        dest_qpn: to.qpn,
        psn: message.first.plus(portion.packet),
        srqn: view.xrc_srqn(),
    };
    // The payload is written straight into the send buffer.
    fabric.send(way, &bth, &ext, len as usize, |payload| match ahead.take(bth.psn) {
        Some(bytes) => {
            payload.copy_from_slice(bytes);
            Ok(())
        }
        None => wqe::read_data(&view, mkeys, dma, user, skip, payload),
    })?;
    Ok((op, len))
}

/// Returns the opcode of a request packet, its extended header, and its payload length in bytes.
#[inline]
fn request(
    message: &Message,
    view: &View<'_>,
    portion: Portion,
    to: &Destination,
) -> Result<(Op, Ext, u64), LocalError> {
    let (addr, rkey) = view.remote().map_or((0, 0), |at| (at.addr.get(), at.rkey.get()));
    let skip = u64::from(portion.packet) << to.mtu_shift;
    match message.kind {
        // Local WQEs send no packets, and connect packets are not built from a WQE.
        Kind::Local | Kind::Connect => Err(LocalError::Operation),
        Kind::Read => {
            let len = (u64::from(portion.count) << to.mtu_shift).min(message.len - skip);
            // A READ that continues or repeats part of a message starts at the first missing packet.
            let reth = Reth { addr: addr.wrapping_add(skip), rkey, len: len as u32 };
            Ok((Op::ReadRequest, Ext::Reth(reth), 0))
        }
        Kind::Atomic => {
            let atomic = view.atomic().ok_or(LocalError::Memory)?;
            let (op, ext) = atomic_request(atomic, addr, rkey);
            Ok((op, ext, 0))
        }
        Kind::Write | Kind::Send => {
            let op = message.packet_op(portion.packet);
            let imm = view.imm().unwrap_or(0);
            // The header of a WRITE describes the whole message, and only its first packet carries it.
            let reth = Reth { addr, rkey, len: message.len as u32 };
            let ext = match op {
                Op::WriteFirst | Op::WriteOnly => Ext::Reth(reth),
                Op::WriteOnlyImm => Ext::RethImm(reth, imm),
                Op::WriteLastImm | Op::SendLastImm | Op::SendOnlyImm => Ext::Imm(imm),
                _ => Ext::None,
            };
            let len = message.len.saturating_sub(skip).min(1 << to.mtu_shift);
            Ok((op, ext, len))
        }
    }
}

/// Encodes an atomic: as a standard InfiniBand request where one exists, as a masked one otherwise.
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
