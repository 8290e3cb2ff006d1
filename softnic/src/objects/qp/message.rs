//! Send WQEs in flight over packets.

use crate::roce::{Op, Psn, Service};
use crate::wqe;
use rushmem_mlx5::wqe::{Malformed, View};
use rushmem_mlx5::{Opcode, Segment, Syndrome};

/// A copy of the WQE. The driver may reuse the ring slot before the last retransmission.
#[derive(Debug)]
enum WqeSegments {
    OneBlock([Segment; 4], u8),
    More(Box<[Segment]>),
}

/// What kind of traffic a WQE causes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Write,
    Send,
    Read,
    Atomic,
    /// The connect packet that precedes the first WQE to a target. It is not a WQE itself, but if it fails, that WQE
    /// fails with it.
    Connect,
    /// Sends no packets. Completes after all earlier WQEs.
    Local,
}

/// A send WQE in flight.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) index: u16,
    pub(crate) blocks: u8,
    pub(crate) opcode: Opcode,
    pub(crate) kind: Kind,
    pub(crate) len: u64,
    pub(crate) first: Psn,
    /// Number of PSNs it uses: its packets, or the response packets of a READ.
    pub(crate) packets: u32,
    /// Error to complete with, once all earlier WQEs have completed.
    pub(crate) fault: Option<(Syndrome, u8)>,
    service: Service,
    segments_kept: WqeSegments,
}

impl Message {
    pub(crate) fn new(view: &View<'_>, service: Service, kind: Kind, first: Psn, packets: u32) -> Message {
        let segments = view.segments();
        let mut block = [Segment::ZERO; 4];
        let segments_kept = match block.get_mut(..segments.len()) {
            Some(part) => {
                part.copy_from_slice(segments);
                WqeSegments::OneBlock(block, segments.len() as u8)
            }
            None => WqeSegments::More(segments.into()),
        };
        Message {
            index: view.ctrl().index(),
            blocks: view.n_blocks().max(1),
            opcode: view.opcode(),
            kind,
            len: view.data_len(),
            first,
            packets,
            fault: None,
            service,
            segments_kept,
        }
    }

    /// Creates the message of a malformed WQE, which fails with `fault`.
    pub(crate) fn broken(
        index: u16,
        blocks: u8,
        opcode: Opcode,
        first: Psn,
        fault: (Syndrome, u8),
    ) -> Message {
        Message {
            index,
            blocks,
            opcode,
            kind: Kind::Local,
            len: 0,
            first,
            packets: 0,
            fault: Some(fault),
            service: Service::Rc,
            segments_kept: WqeSegments::OneBlock([Segment::ZERO; 4], 1),
        }
    }

    /// Creates the message that connects to the target of this WQE.
    pub(crate) fn connect(index: u16, blocks: u8, opcode: Opcode, first: Psn) -> Message {
        let (kind, packets, fault) = (Kind::Connect, 1, None);
        let (service, segments_kept) = (Service::Dc, WqeSegments::OneBlock([Segment::ZERO; 4], 1));
        Message { index, blocks, opcode, kind, len: 0, first, packets, fault, service, segments_kept }
    }

    /// Parses the kept copy of the WQE.
    pub(crate) fn view(&self) -> Result<View<'_>, Malformed> {
        let segments = match &self.segments_kept {
            WqeSegments::OneBlock(block, segments) => &block[..usize::from(*segments)],
            WqeSegments::More(segments) => segments,
        };
        wqe::parse(self.service, segments)
    }

    /// Returns one past its last PSN.
    pub(crate) fn end(&self) -> Psn {
        self.first.plus(self.packets)
    }

    /// Advances a position by `count` packets of this message. A position is the index of a message and of a packet in
    /// it.
    pub(crate) fn after(&self, (number, packet): (usize, u32), count: u32) -> (usize, u32) {
        if packet + count < self.packets { (number, packet + count) } else { (number + 1, 0) }
    }

    /// Whether it waits for response data.
    pub(crate) fn fetches(&self) -> bool {
        matches!(self.kind, Kind::Read | Kind::Atomic | Kind::Connect)
    }

    /// Returns the opcode of packet `packet` of a WRITE or SEND.
    pub(crate) fn packet_op(&self, packet: u32) -> Op {
        let (first, last) = (packet == 0, packet + 1 == self.packets);
        let imm = matches!(self.opcode, Opcode::RDMA_WRITE_IMM | Opcode::SEND_IMM);
        match (self.kind == Kind::Send, first, last, imm) {
            (true, true, true, false) => Op::SendOnly,
            (true, true, true, true) => Op::SendOnlyImm,
            (true, true, false, _) => Op::SendFirst,
            (true, false, false, _) => Op::SendMiddle,
            (true, false, true, false) => Op::SendLast,
            (true, false, true, true) => Op::SendLastImm,
            (false, true, true, false) => Op::WriteOnly,
            (false, true, true, true) => Op::WriteOnlyImm,
            (false, true, false, _) => Op::WriteFirst,
            (false, false, false, _) => Op::WriteMiddle,
            (false, false, true, false) => Op::WriteLast,
            (false, false, true, true) => Op::WriteLastImm,
        }
    }
}
