//! The responder's side of every operation: rights, keys, atomics and receives. Loopback and packets share it.

use crate::core::push;
use crate::cq::Cq;
use crate::dma::{Dma, KeyFault, Mkeys, Rights, Span, User, resolve};
use crate::flush::next_receive;
use crate::memory::MemoryError;
use crate::qp::Qp;
use crate::report::Report;
use crate::report::event::Event;
use crate::roce::Nak;
use crate::table::Table;
use rushmem_mlx5::cqe::{Failure, Reception};
use rushmem_mlx5::seg::DataSeg;
use rushmem_mlx5::wqe::scatter;
use rushmem_mlx5::{AtomicOp, Cqe, CqeOpcode, Opcode, Segment, Syndrome, Width};

/// The reason why a responder refuses a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RemoteError {
    /// The QP does not serve this operation, or it is malformed.
    Invalid,
    /// The key does not allow it.
    Access(KeyFault),
    /// The memory failed.
    Failed(MemoryError),
}

impl RemoteError {
    /// Returns the syndrome of the requester's completion.
    pub(crate) fn syndrome(self) -> (Syndrome, u8) {
        match self {
            RemoteError::Invalid => (Syndrome::REMOTE_INVAL_REQ_ERR, 0),
            RemoteError::Access(fault) => (Syndrome::REMOTE_ACCESS_ERR, fault.vendor()),
            RemoteError::Failed(_) => (Syndrome::REMOTE_OP_ERR, 0),
        }
    }

    /// Returns the NAK code.
    pub(crate) fn nak(self) -> Nak {
        match self {
            RemoteError::Invalid => Nak::InvalidRequest,
            RemoteError::Access(_) => Nak::RemoteAccess,
            RemoteError::Failed(_) => Nak::RemoteOperational,
        }
    }
}

/// The remote range of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RemoteRange {
    /// Protection domain of its key.
    pub(crate) pd: u32,
    pub(crate) addr: u64,
    pub(crate) rkey: u32,
    pub(crate) len: u64,
}

fn user(qp: &Qp) -> User {
    User { pd: qp.pd, qpn: qp.number() }
}

/// Returns the memory of an RDMA WRITE. `None` means no bytes, for which no key is checked.
#[inline]
pub(crate) fn writable<'a>(
    qp: &Qp,
    mkeys: &'a Mkeys,
    at: RemoteRange,
) -> Result<Option<Span<'a>>, RemoteError> {
    remote(qp, mkeys, at, qp.attrs.remote_write, Rights::REMOTE_WRITE)
}

/// Returns the memory of an RDMA READ; `None` means no bytes.
#[inline]
pub(crate) fn readable<'a>(
    qp: &Qp,
    mkeys: &'a Mkeys,
    at: RemoteRange,
) -> Result<Option<Span<'a>>, RemoteError> {
    remote(qp, mkeys, at, qp.attrs.remote_read, Rights::REMOTE_READ)
}

#[inline]
fn remote<'a>(
    qp: &Qp,
    mkeys: &'a Mkeys,
    at: RemoteRange,
    enabled: bool,
    need: Rights,
) -> Result<Option<Span<'a>>, RemoteError> {
    if !enabled {
        return Err(RemoteError::Invalid);
    }
    if at.len == 0 {
        return Ok(None);
    }
    let user = User { pd: at.pd, qpn: qp.number() };
    resolve(mkeys, user, at.rkey, at.addr, at.len, need).map(Some).map_err(RemoteError::Access)
}

/// An atomic request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AtomicRequest {
    pub(crate) addr: u64,
    pub(crate) rkey: u32,
    pub(crate) width: Width,
    /// Masked, or not of 8 bytes.
    pub(crate) extended: bool,
    pub(crate) op: AtomicOp,
}

/// Executes an atomic and returns the old value.
pub(crate) fn atomic(
    qp: &Qp,
    mkeys: &Mkeys,
    dma: &mut Dma,
    request: &AtomicRequest,
) -> Result<u64, RemoteError> {
    let span = atomic_word(qp, mkeys, request)?;
    dma.atomic(&span, request.width, request.op).map_err(atomic_error)
}

/// Checks an atomic and returns its word.
pub(crate) fn atomic_word<'a>(
    qp: &Qp,
    mkeys: &'a Mkeys,
    request: &AtomicRequest,
) -> Result<Span<'a>, RemoteError> {
    let bytes = request.width.bytes();
    if !qp.attrs.allows_atomic(bytes, request.extended) || !request.addr.is_multiple_of(bytes) {
        return Err(RemoteError::Invalid);
    }
    resolve(mkeys, user(qp), request.rkey, request.addr, bytes, Rights::REMOTE_ATOMIC)
        .map_err(RemoteError::Access)
}

/// Returns the answer to an atomic that memory refused.
pub(crate) fn atomic_error(error: MemoryError) -> RemoteError {
    match error {
        MemoryError::Misaligned { .. } => RemoteError::Invalid,
        error => RemoteError::Failed(error),
    }
}

/// A receive that a message fills.
#[derive(Debug)]
pub(crate) struct Receive {
    pub(crate) index: u16,
    list: Vec<DataSeg>,
    room: u64,
    /// Protection domain of the queue.
    pd: u32,
}

/// The reason why a receive cannot take a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BadReceive {
    TooShort,
    Key(KeyFault),
    Memory(MemoryError),
}

impl BadReceive {
    /// Returns the syndrome of the receive's completion.
    fn syndrome(self) -> (Syndrome, u8) {
        match self {
            BadReceive::TooShort => (Syndrome::LOCAL_LENGTH_ERR, 0),
            BadReceive::Key(fault) => (Syndrome::LOCAL_PROT_ERR, fault.vendor()),
            BadReceive::Memory(_) => (Syndrome::LOCAL_PROT_ERR, 0),
        }
    }

    /// Returns the error for the sender.
    pub(crate) fn refusal(self) -> RemoteError {
        match self {
            BadReceive::TooShort => RemoteError::Invalid,
            BadReceive::Key(_) => RemoteError::Failed(MemoryError::Device(0)),
            BadReceive::Memory(error) => RemoteError::Failed(error),
        }
    }
}

/// Takes the next posted receive; `None` means receiver not ready.
pub(crate) fn take_receive(qp: &mut Qp, report: &mut Report) -> Option<Receive> {
    if let Some(srq) = &qp.srq {
        let mut srq = srq.get();
        let (index, segments) = srq.take()?;
        if srq.falls_below_limit() {
            report.events.push(Event::SrqLimit { srqn: srq.srqn });
        }
        return Some(Receive::new(index, &segments, srq.pd));
    }
    let index = next_receive(qp)?;
    let rq = qp.rq.as_ref()?;
    let slot = usize::from(index) & ((1 << rq.log_size) - 1);
    let mut segments = vec![Segment::ZERO; rq.stride / 16];
    rq.ring.load_segments(slot * rq.stride, &mut segments);
    Some(Receive::new(index, &segments, qp.pd))
}

impl Receive {
    fn new(index: u16, segments: &[Segment], pd: u32) -> Receive {
        let list: Vec<DataSeg> = scatter(segments).collect();
        let room = list.iter().map(|segment| u64::from(segment.len.get() & 0x7fff_ffff)).sum();
        Receive { index, list, room, pd }
    }

    /// Checks that a message of `len` bytes fits.
    pub(crate) fn fits(&self, len: u64) -> Result<(), BadReceive> {
        if len <= self.room { Ok(()) } else { Err(BadReceive::TooShort) }
    }

    /// Calls `put` with each piece of memory behind bytes `at..at + len` of the message, and its offset in them.
    pub(crate) fn spread<'a>(
        &self,
        mkeys: &'a Mkeys,
        qp: &Qp,
        at: u64,
        len: u64,
        mut put: impl FnMut(Span<'a>, u64) -> Result<(), MemoryError>,
    ) -> Result<(), BadReceive> {
        let (mut base, end) = (0, at + len);
        self.fits(end)?;
        for segment in &self.list {
            let size = u64::from(segment.len.get() & 0x7fff_ffff);
            let (from, to) = (at.max(base), end.min(base + size));
            if from < to {
                let addr = segment.addr.get().wrapping_add(from - base);
                let key = segment.lkey.get();
                let user = User { pd: self.pd, qpn: qp.number() };
                let span = resolve(mkeys, user, key, addr, to - from, Rights::LOCAL_WRITE)
                    .map_err(BadReceive::Key)?;
                put(span, from - at).map_err(BadReceive::Memory)?;
            }
            base += size;
        }
        Ok(())
    }
}

/// The sender of a datagram; zero on a connection, where the peer is known.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Origin {
    pub(crate) qpn: u32,
    pub(crate) lid: u16,
    /// Set if the receive buffer begins with the datagram's IPv4 header.
    pub(crate) grh: bool,
    /// The service level, or on Ethernet the type of the packet.
    pub(crate) sl: u8,
}

/// A message that consumed a receive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReceivedMessage {
    pub(crate) kind: CqeOpcode,
    pub(crate) index: u16,
    pub(crate) byte_cnt: u32,
    pub(crate) imm: u32,
    pub(crate) solicited: bool,
    pub(crate) origin: Origin,
}

/// Completes a receive.
pub(crate) fn complete_receive(
    qp: &mut Qp,
    cqs: &mut Table<Cq>,
    report: &mut Report,
    message: ReceivedMessage,
) {
    let reception = Reception {
        kind: message.kind,
        qpn: qp.number(),
        wqe_counter: message.index,
        srqn_uidx: qp.user_index,
        remote_qpn: message.origin.qpn,
        slid: message.origin.lid,
        grh: message.origin.grh,
        sl: message.origin.sl,
        imm: message.imm,
        byte_cnt: message.byte_cnt,
        timestamp: report.timestamp(),
        solicited: message.solicited,
    };
    push(qp, qp.cq_recv, cqs, report, |owner| Cqe::responder(&reception, owner));
}

/// Completes a receive in error. The caller puts the QP into error.
pub(crate) fn fail_receive(
    qp: &mut Qp,
    cqs: &mut Table<Cq>,
    report: &mut Report,
    index: u16,
    bad: BadReceive,
) {
    let (syndrome, vendor_syndrome) = bad.syndrome();
    let failure = Failure {
        kind: CqeOpcode::RESP_ERR,
        opcode: Opcode(0),
        qpn: qp.number(),
        wqe_counter: index,
        srqn_uidx: qp.user_index,
        syndrome,
        vendor_syndrome,
    };
    report.stats.error_cqes += 1;
    push(qp, qp.cq_recv, cqs, report, |owner| Cqe::error(&failure, owner));
}
