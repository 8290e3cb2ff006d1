//! Interprets parsed send WQEs: finds their data, checks their keys, and decodes their operations.

use crate::dma::{Dma, KeyFault, Mkeys, Rights, Span, User, resolve};
use crate::report::{Observation, RemoteAddress};
use crate::roce::Service;
use rushmem_mlx5::wqe::{Atomic, Data, Malformed, View};
use rushmem_mlx5::{AtomicOp, Flags, Opcode, Segment, Syndrome, Width};
use std::net::SocketAddrV4;

/// The data of one data segment of a WQE: a range of memory, or inline data.
#[derive(Clone, Copy)]
pub(crate) enum Piece<'a> {
    Memory(Span<'a>),
    Inline(&'a [u8]),
}

/// Reason why a requester fails its own WQE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LocalError {
    Key(KeyFault),
    /// The message exceeds `log_msg_max`, or an atomic's result does not fit its scatter list.
    Length,
    Memory,
    /// The WQE names an object that does not exist, or the service does not support the operation.
    Operation,
    /// The WQE cannot change the memory key as it asks.
    Bind,
}

impl LocalError {
    pub(crate) fn syndrome(self) -> (Syndrome, u8) {
        match self {
            LocalError::Key(fault) => (Syndrome::LOCAL_PROT_ERR, fault.vendor()),
            LocalError::Length => (Syndrome::LOCAL_LENGTH_ERR, 0),
            LocalError::Memory => (Syndrome::LOCAL_PROT_ERR, 0),
            LocalError::Operation => (Syndrome::LOCAL_QP_OP_ERR, 0),
            LocalError::Bind => (Syndrome::MW_BIND_ERR, 0),
        }
    }
}

#[inline]
pub(crate) fn parse(service: Service, segments: &[Segment]) -> Result<View<'_>, Malformed> {
    match service {
        Service::Ud => View::parse_datagram(segments),
        Service::Dc => View::parse_dc(segments),
        Service::Xrc => View::parse_xrc(segments),
        // Entries of raw queues have their own parser.
        Service::Rc | Service::Uc | Service::Raw => View::parse(segments),
    }
}

/// Calls `each` with the pieces that make up bytes `at..at + len` of the WQE's data, and with each piece's offset in
/// those bytes. Every key is checked for its entire segment.
pub(crate) fn for_each_piece<'a, E: From<LocalError>>(
    view: &View<'a>,
    mkeys: &'a Mkeys,
    user: User,
    need: Rights,
    at: u64,
    len: u64,
    mut each: impl FnMut(Piece<'a>, u64) -> Result<(), E>,
) -> Result<(), E> {
    let (mut base, end) = (0, at + len);
    for data in view.data() {
        let size = match data {
            Data::Pointer(segment) => u64::from(segment.len.get()),
            Data::Inline(bytes) => bytes.len() as u64,
        };
        let (from, to) = (at.max(base), end.min(base + size));
        if from < to {
            let piece = match data {
                Data::Pointer(segment) => {
                    let span = resolve(mkeys, user, segment.lkey.get(), segment.addr.get(), size, need)
                        .map_err(LocalError::Key)?;
                    Piece::Memory(span.part(from - base, to - from))
                }
                Data::Inline(bytes) => Piece::Inline(&bytes[(from - base) as usize..(to - base) as usize]),
            };
            each(piece, from - at)?;
        }
        base += size;
        if base >= end {
            break;
        }
    }
    Ok(())
}

/// Fills `buf` with the WQE's data, starting at byte `at`.
pub(crate) fn read_data(
    view: &View<'_>,
    mkeys: &Mkeys,
    dma: &mut Dma,
    user: User,
    at: u64,
    buf: &mut [u8],
) -> Result<(), LocalError> {
    for_each_piece(view, mkeys, user, Rights::LOCAL_READ, at, buf.len() as u64, |piece, offset| {
        let rest = &mut buf[offset as usize..];
        match piece {
            Piece::Inline(bytes) => rest[..bytes.len()].copy_from_slice(bytes),
            Piece::Memory(from) => {
                dma.read(&from, &mut rest[..from.len as usize]).map_err(|_| LocalError::Memory)?;
            }
        }
        Ok(())
    })
}

/// Checks the memory keys of the first `len` bytes of the WQE's data.
pub(crate) fn check_keys(
    view: &View<'_>,
    mkeys: &Mkeys,
    user: User,
    need: Rights,
    len: u64,
) -> Result<(), LocalError> {
    for_each_piece(view, mkeys, user, need, 0, len, |_, _| Ok(()))
}

/// Returns the operation of an atomic WQE, its width, and whether it is an extended atomic.
pub(crate) fn atomic(atomic: Atomic) -> (AtomicOp, Width, bool) {
    match atomic {
        Atomic::FetchAdd { add } => (AtomicOp::Add { add, boundary: 0 }, Width::Eight, false),
        Atomic::CompareSwap { compare, swap } => {
            let op = AtomicOp::CompareSwap { compare, swap, compare_mask: u64::MAX, swap_mask: u64::MAX };
            (op, Width::Eight, false)
        }
        Atomic::MaskedFetchAdd32 { add, boundary } => {
            (AtomicOp::Add { add: add.into(), boundary: boundary.into() }, Width::Four, true)
        }
        Atomic::MaskedFetchAdd64 { add, boundary } => (AtomicOp::Add { add, boundary }, Width::Eight, true),
        Atomic::MaskedCompareSwap32 { compare, swap, compare_mask, swap_mask } => {
            let op = AtomicOp::CompareSwap {
                compare: compare.into(),
                swap: swap.into(),
                compare_mask: compare_mask.into(),
                swap_mask: swap_mask.into(),
            };
            (op, Width::Four, true)
        }
        Atomic::MaskedCompareSwap64 { compare, swap, compare_mask, swap_mask } => {
            (AtomicOp::CompareSwap { compare, swap, compare_mask, swap_mask }, Width::Eight, true)
        }
    }
}

/// Encodes the old value of an atomic for the requester's memory. Returns the bytes, and how many of them are valid.
///
/// An 8-byte result is in host order, since the adapter advertises 8-byte endianness mode 1. A 4-byte result is
/// big-endian.
pub(crate) fn atomic_result(old: u64, width: Width) -> ([u8; 8], usize) {
    match width {
        Width::Eight => (old.to_le_bytes(), 8),
        Width::Four => {
            let [a, b, c, d] = (old as u32).to_be_bytes();
            ([a, b, c, d, 0, 0, 0, 0], 4)
        }
    }
}

/// Returns the `byte_cnt` field for the WQE's CQE: the number of bytes that the peer has returned.
pub(crate) fn returned_bytes(view: &View<'_>) -> u32 {
    match (view.opcode(), view.atomic()) {
        (Opcode::RDMA_READ, _) => view.data_len() as u32,
        (_, Some(atomic)) => u32::from(atomic.size()),
        _ => 0,
    }
}

/// Builds the observation that a WQE of QP `qpn` has started.
pub(crate) fn begins(qpn: u32, view: &View<'_>, peer: Option<SocketAddrV4>) -> Observation {
    let (index, opcode, bytes) = (view.ctrl().index(), view.opcode(), view.data_len());
    let remote = view.remote().map(RemoteAddress::from);
    Observation::WqeBegins { qpn, index, opcode, peer, remote, bytes }
}

/// The fields of a send WQE that its CQE repeats, for a WQE that has been executed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Done {
    pub(crate) index: u16,
    pub(crate) opcode: Opcode,
    pub(crate) byte_cnt: u32,
}

/// Builds the observation that a WQE of QP `qpn` has completed.
pub(crate) fn ends(qpn: u32, done: Done, syndrome: Option<Syndrome>) -> Observation {
    let Done { index, opcode, .. } = done;
    Observation::WqeEnds { qpn, index, opcode, syndrome }
}

/// Whether the WQE changes the responder's memory or consumes a receive of the responder.
pub(crate) fn changes_memory(view: &View<'_>) -> bool {
    use Opcode as Op;
    let moves = [Op::RDMA_WRITE, Op::RDMA_WRITE_IMM, Op::SEND, Op::SEND_IMM].contains(&view.opcode());
    moves || view.atomic().is_some()
}

/// Whether the WQE must wait for earlier READs and atomics of its QP.
pub(crate) fn waits_for_reads(flags: Flags) -> bool {
    flags.fence_mode() >= 2
}

/// Whether the WQE must wait for all earlier WQEs of its QP.
pub(crate) fn waits_for_all(flags: Flags) -> bool {
    flags.fence_mode() == 3
}
