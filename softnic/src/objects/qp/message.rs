//! Send WQEs that are being executed by exchanging packets with the peer.

use crate::roce::{Op, Psn, Service};
use crate::wqe;
use rushmem_mlx5::wqe::{Malformed, View};
use rushmem_mlx5::{Opcode, Segment, Syndrome};

/// A copy of a WQE, since the driver may overwrite its slot in the send queue before the last retransmission.
#[derive(Debug)]
enum WqeSegments {
    OneBlock([Segment; 4], u8),
    More(Box<[Segment]>),
}

/// The type of request packets that a WQE causes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Write,
    Send,
    Read,
    Atomic,
    /// A connect packet, which precedes the first WQE to a target. It belongs to no WQE, but if it fails, the first WQE
    /// fails with it.
    Connect,
    /// No request: the WQE sends no packets, and completes after all earlier ones.
    Local,
}

/// A send WQE that has been started and has not completed.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) index: u16,
    pub(crate) blocks: u8,
    pub(crate) opcode: Opcode,
    pub(crate) kind: Kind,
    pub(crate) len: u64,
    pub(crate) first: Psn,
    /// Number of PSNs that the WQE uses: one per packet, or one per response packet of a READ.
    pub(crate) packets: u32,
    /// Syndrome and vendor syndrome of the error with which the WQE completes, once all earlier ones have completed.
    pub(crate) fault: Option<(Syndrome, u8)>,
    /// Whether the WQE has still to change a memory key. Later ones, whose keys are checked when they start, wait for it.
    pub(crate) changes_key: bool,
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
            changes_key: view.opcode() == Opcode::UMR,
            service,
            segments_kept,
        }
    }

    /// Creates the message of a malformed WQE, which completes with the error `fault`.
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
            changes_key: false,
            service: Service::Rc,
            segments_kept: WqeSegments::OneBlock([Segment::ZERO; 4], 1),
        }
    }

    /// Creates the message for the connect packet to the target of the WQE at `index`.
    pub(crate) fn connect(index: u16, blocks: u8, opcode: Opcode, first: Psn) -> Message {
        let (kind, packets, fault) = (Kind::Connect, 1, None);
        let (service, segments_kept) = (Service::Dc, WqeSegments::OneBlock([Segment::ZERO; 4], 1));
        let changes_key = false;
        Message {
            index,
            blocks,
            opcode,
            kind,
            len: 0,
            first,
            packets,
            fault,
            changes_key,
            service,
            segments_kept,
        }
    }

    /// Parses the copy of the WQE.
    pub(crate) fn view(&self) -> Result<View<'_>, Malformed> {
        let segments = match &self.segments_kept {
            WqeSegments::OneBlock(block, segments) => &block[..usize::from(*segments)],
            WqeSegments::More(segments) => segments,
        };
        wqe::parse(self.service, segments)
    }

    /// Returns one past the last PSN that the WQE uses.
    pub(crate) fn end(&self) -> Psn {
        self.first.plus(self.packets)
    }

    /// Advances a send position by `count` packets of this message. A position is the index of a message and the index
    /// of a packet in it.
    pub(crate) fn after(&self, (number, packet): (usize, u32), count: u32) -> (usize, u32) {
        if packet + count < self.packets { (number, packet + count) } else { (number + 1, 0) }
    }

    /// Whether the WQE completes with response data, and not by an acknowledgement.
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
