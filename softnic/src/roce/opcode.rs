//! BTH opcodes, each of which combines an operation and the service it belongs to.
//!
//! All services use the same code for an operation, and bits 7:5 of the opcode identify the service. An unreliable
//! connection has SEND and WRITE, datagrams have SENDs of a single packet.
//!
//! InfiniBand defines no packets for masked or 32-bit atomics. Software adapters use two opcodes of the
//! manufacturer-specific range (0xc0 to 0xff), followed by a 48-byte header:
//!
//! | bytes | field |
//! |---|---|
//! | 0..8 | virtual address |
//! | 8..12 | rkey |
//! | 12..16 | operand width in bytes, 4 or 8 |
//! | 16..48 | four 64-bit operands. Compare and swap: compare, swap, compare mask, swap mask. Fetch and add: add, boundary, 0, 0 |
//!
//! A third opcode, 0xd6, reports what has arrived after a gap on a reliable connection: see `crate::transport::wire`.
//!
//! All fields are big-endian. An atomic is answered by a standard ATOMIC ACKNOWLEDGE.
//!
//! On an extended connection, masked atomics and the report use opcodes 0xd7 to 0xd9.
//!
//! An Ethernet frame is the payload of opcode 0xdf: see `crate::transport::ethernet`.
//!
//! Dynamic connections use manufacturer-specific opcodes from 0xe0: see `crate::transport::dc`. Their masked atomics
//! are 0xf5 and 0xf6, and the report is 0xfa.

use super::ExtKind;

/// Transport service: bits 7:5 of an opcode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Service {
    /// Reliable connection.
    Rc = 0x00,
    /// Unreliable connection.
    Uc = 0x20,
    /// Unreliable datagram.
    Ud = 0x60,
    /// Extended reliable connection: see [`crate::objects::qp::xrc`].
    Xrc = 0xa0,
    /// Whole Ethernet frames, in packets of this project's own.
    Raw = 0xc0,
    /// Dynamic connection: both DCIs and the connections of DCTs.
    Dc = 0xe0,
}

impl Service {
    /// Whether messages are acknowledged, and delivered once and in order.
    pub(crate) fn is_reliable(self) -> bool {
        matches!(self, Service::Rc | Service::Xrc | Service::Dc)
    }
}

/// An operation that this adapter supports, with its opcode on a reliable connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Op {
    SendFirst = 0x00,
    SendMiddle = 0x01,
    SendLast = 0x02,
    SendLastImm = 0x03,
    SendOnly = 0x04,
    SendOnlyImm = 0x05,
    WriteFirst = 0x06,
    WriteMiddle = 0x07,
    WriteLast = 0x08,
    WriteLastImm = 0x09,
    WriteOnly = 0x0a,
    WriteOnlyImm = 0x0b,
    ReadRequest = 0x0c,
    ReadFirst = 0x0d,
    ReadMiddle = 0x0e,
    ReadLast = 0x0f,
    ReadOnly = 0x10,
    Ack = 0x11,
    AtomicAck = 0x12,
    CompareSwap = 0x13,
    FetchAdd = 0x14,
    MaskedCompareSwap = 0xd4,
    MaskedFetchAdd = 0xd5,
    SelectiveAck = 0xd6,
    Frame = 0xdf,
    Connect = 0xf7,
    Accept = 0xf8,
    Disconnect = 0xf9,
}

/// The operations of a reliable connection.
const ALL: [Op; 24] = [
    Op::SendFirst,
    Op::SendMiddle,
    Op::SendLast,
    Op::SendLastImm,
    Op::SendOnly,
    Op::SendOnlyImm,
    Op::WriteFirst,
    Op::WriteMiddle,
    Op::WriteLast,
    Op::WriteLastImm,
    Op::WriteOnly,
    Op::WriteOnlyImm,
    Op::ReadRequest,
    Op::ReadFirst,
    Op::ReadMiddle,
    Op::ReadLast,
    Op::ReadOnly,
    Op::Ack,
    Op::AtomicAck,
    Op::CompareSwap,
    Op::FetchAdd,
    Op::MaskedCompareSwap,
    Op::MaskedFetchAdd,
    Op::SelectiveAck,
];

impl Op {
    /// Returns the opcode of the operation on a service that supports it.
    pub(crate) fn to_byte(self, service: Service) -> u8 {
        match (service, self) {
            // On XRC, these codes belong to standard atomics.
            (Service::Xrc, Op::MaskedCompareSwap) => 0xd7,
            (Service::Xrc, Op::MaskedFetchAdd) => 0xd8,
            (Service::Xrc, Op::SelectiveAck) => 0xd9,
            (Service::Dc, Op::MaskedCompareSwap) => 0xf5,
            (Service::Dc, Op::MaskedFetchAdd) => 0xf6,
            (Service::Dc, Op::SelectiveAck) => 0xfa,
            _ => self as u8 | service as u8,
        }
    }

    pub(crate) fn from_byte(byte: u8) -> Option<(Service, Op)> {
        let op = |index: u8| ALL.get(usize::from(index)).copied();
        match byte {
            0x00..=0x14 => Some((Service::Rc, op(byte)?)),
            0x20..=0x2b => Some((Service::Uc, op(byte - 0x20)?)),
            0x64..=0x65 => Some((Service::Ud, op(byte - 0x60)?)),
            0xa0..=0xb4 => Some((Service::Xrc, op(byte - 0xa0)?)),
            0xd4 => Some((Service::Rc, Op::MaskedCompareSwap)),
            0xd5 => Some((Service::Rc, Op::MaskedFetchAdd)),
            0xd6 => Some((Service::Rc, Op::SelectiveAck)),
            0xd7 => Some((Service::Xrc, Op::MaskedCompareSwap)),
            0xd8 => Some((Service::Xrc, Op::MaskedFetchAdd)),
            0xd9 => Some((Service::Xrc, Op::SelectiveAck)),
            0xdf => Some((Service::Raw, Op::Frame)),
            0xe0..=0xf4 => Some((Service::Dc, op(byte - 0xe0)?)),
            0xf5 => Some((Service::Dc, Op::MaskedCompareSwap)),
            0xf6 => Some((Service::Dc, Op::MaskedFetchAdd)),
            0xf7 => Some((Service::Dc, Op::Connect)),
            0xf8 => Some((Service::Dc, Op::Accept)),
            0xf9 => Some((Service::Dc, Op::Disconnect)),
            0xfa => Some((Service::Dc, Op::SelectiveAck)),
            _ => None,
        }
    }

    /// Returns the operation's name in the InfiniBand specification, without the service.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Op::SendFirst => "SEND_FIRST",
            Op::SendMiddle => "SEND_MIDDLE",
            Op::SendLast => "SEND_LAST",
            Op::SendLastImm => "SEND_LAST_WITH_IMMEDIATE",
            Op::SendOnly => "SEND_ONLY",
            Op::SendOnlyImm => "SEND_ONLY_WITH_IMMEDIATE",
            Op::WriteFirst => "RDMA_WRITE_FIRST",
            Op::WriteMiddle => "RDMA_WRITE_MIDDLE",
            Op::WriteLast => "RDMA_WRITE_LAST",
            Op::WriteLastImm => "RDMA_WRITE_LAST_WITH_IMMEDIATE",
            Op::WriteOnly => "RDMA_WRITE_ONLY",
            Op::WriteOnlyImm => "RDMA_WRITE_ONLY_WITH_IMMEDIATE",
            Op::ReadRequest => "RDMA_READ_REQUEST",
            Op::ReadFirst => "RDMA_READ_RESPONSE_FIRST",
            Op::ReadMiddle => "RDMA_READ_RESPONSE_MIDDLE",
            Op::ReadLast => "RDMA_READ_RESPONSE_LAST",
            Op::ReadOnly => "RDMA_READ_RESPONSE_ONLY",
            Op::Ack => "ACKNOWLEDGE",
            Op::AtomicAck => "ATOMIC_ACKNOWLEDGE",
            Op::CompareSwap => "CMP_SWAP",
            Op::FetchAdd => "FETCH_ADD",
            Op::MaskedCompareSwap => "MASKED_CMP_SWAP",
            Op::MaskedFetchAdd => "MASKED_FETCH_ADD",
            Op::SelectiveAck => "SELECTIVE_ACKNOWLEDGE",
            Op::Frame => "FRAME",
            Op::Connect => "DC_CONNECT",
            Op::Accept => "DC_ACCEPT",
            Op::Disconnect => "DC_DISCONNECT",
        }
    }

    /// Whether a packet with this opcode is the first or only one of a message.
    pub(crate) fn begins(self) -> bool {
        use Op::{SendFirst, SendOnly, SendOnlyImm, WriteFirst, WriteOnly, WriteOnlyImm};
        matches!(self, SendFirst | SendOnly | SendOnlyImm | WriteFirst | WriteOnly | WriteOnlyImm)
    }

    pub(crate) fn is_response(self) -> bool {
        use Op::{Accept, Ack, AtomicAck, ReadFirst, ReadLast, ReadMiddle, ReadOnly, SelectiveAck};
        let is_answer = matches!(self, Ack | AtomicAck | SelectiveAck | Accept);
        is_answer || matches!(self, ReadFirst | ReadMiddle | ReadLast | ReadOnly)
    }

    pub(super) fn ext_kind(self, service: Service) -> ExtKind {
        match self {
            Op::SendOnly if service == Service::Ud => ExtKind::Deth,
            Op::SendOnlyImm if service == Service::Ud => ExtKind::DethImm,
            Op::SendFirst | Op::SendMiddle | Op::SendLast | Op::SendOnly => ExtKind::None,
            Op::WriteMiddle | Op::WriteLast | Op::ReadMiddle => ExtKind::None,
            Op::SendLastImm | Op::SendOnlyImm | Op::WriteLastImm => ExtKind::Imm,
            Op::WriteFirst | Op::WriteOnly | Op::ReadRequest => ExtKind::Reth,
            Op::WriteOnlyImm => ExtKind::RethImm,
            Op::ReadFirst | Op::ReadLast | Op::ReadOnly | Op::Ack | Op::SelectiveAck => ExtKind::Aeth,
            Op::AtomicAck => ExtKind::AtomicAck,
            Op::CompareSwap | Op::FetchAdd => ExtKind::Atomic,
            Op::MaskedCompareSwap | Op::MaskedFetchAdd => ExtKind::Masked,
            Op::Frame => ExtKind::None,
            Op::Connect => ExtKind::Connect,
            Op::Accept => ExtKind::Accept,
            Op::Disconnect => ExtKind::Disconnect,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opcodes_round_trip_through_bytes() {
        let known: Vec<(Service, Op)> = (0..=255).filter_map(Op::from_byte).collect();
        for (service, op) in &known {
            assert_eq!(Op::from_byte(op.to_byte(*service)), Some((*service, *op)));
        }
        let of = |wanted: Service| known.iter().filter(|(service, _)| *service == wanted).count();
        assert_eq!((of(Service::Rc), of(Service::Uc), of(Service::Ud)), (ALL.len(), 12, 2));
        assert_eq!((of(Service::Xrc), of(Service::Dc)), (ALL.len(), ALL.len() + 3));
    }
}
