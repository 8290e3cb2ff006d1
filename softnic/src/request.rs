//! The requests of a peer: what they access, why they are refused, and the receives that they consume.

use crate::dma::{KeyFault, Mkeys, Rights, Span, User, resolve};
use crate::memory::MemoryError;
use crate::roce::Nak;
use rushmem_mlx5::seg::DataSeg;
use rushmem_mlx5::wqe::scatter;
use rushmem_mlx5::{AtomicOp, Segment, Syndrome, Width};

/// Why a responder refuses a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RemoteError {
    /// The QP does not support the operation, or the request is malformed.
    Invalid,
    /// A memory key does not allow the access.
    Access(KeyFault),
    /// The access to the memory failed.
    Failed(MemoryError),
}

impl RemoteError {
    /// Returns syndrome and vendor syndrome of the requester's CQE.
    pub(crate) fn syndrome(self) -> (Syndrome, u8) {
        match self {
            RemoteError::Invalid => (Syndrome::REMOTE_INVAL_REQ_ERR, 0),
            RemoteError::Access(fault) => (Syndrome::REMOTE_ACCESS_ERR, fault.vendor()),
            RemoteError::Failed(_) => (Syndrome::REMOTE_OP_ERR, 0),
        }
    }

    pub(crate) fn nak(self) -> Nak {
        match self {
            RemoteError::Invalid => Nak::InvalidRequest,
            RemoteError::Access(_) => Nak::RemoteAccess,
            RemoteError::Failed(_) => Nak::RemoteOperational,
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct RemoteRange {
    /// Protection domain that the rkey must belong to.
    pub(crate) pd: u32,
    pub(crate) addr: u64,
    pub(crate) rkey: u32,
    pub(crate) len: u64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct AtomicRequest {
    pub(crate) addr: u64,
    pub(crate) rkey: u32,
    pub(crate) width: Width,
    /// Whether the atomic is extended: masked, or not of 8 bytes.
    pub(crate) extended: bool,
    pub(crate) op: AtomicOp,
}

/// A receive WQE that has been taken from its queue, to be filled by a message.
#[derive(Debug)]
pub(crate) struct Receive {
    pub(crate) index: u16,
    list: Vec<DataSeg>,
    room: u64,
    /// Protection domain of the receive queue.
    pd: u32,
}

/// Why a message cannot be stored in a receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BadReceive {
    TooShort,
    Key(KeyFault),
    Memory(MemoryError),
}

impl BadReceive {
    /// Returns syndrome and vendor syndrome of the CQE that completes the receive.
    pub(crate) fn syndrome(self) -> (Syndrome, u8) {
        match self {
            BadReceive::TooShort => (Syndrome::LOCAL_LENGTH_ERR, 0),
            BadReceive::Key(fault) => (Syndrome::LOCAL_PROT_ERR, fault.vendor()),
            BadReceive::Memory(_) => (Syndrome::LOCAL_PROT_ERR, 0),
        }
    }

    /// Returns the error by which the message is refused to its sender.
    pub(crate) fn refusal(self) -> RemoteError {
        match self {
            BadReceive::TooShort => RemoteError::Invalid,
            BadReceive::Key(_) => RemoteError::Failed(MemoryError::Device(0)),
            BadReceive::Memory(error) => RemoteError::Failed(error),
        }
    }
}

impl Receive {
    pub(crate) fn new(index: u16, segments: &[Segment], pd: u32) -> Receive {
        let list: Vec<DataSeg> = scatter(segments).collect();
        let room = list.iter().map(|segment| u64::from(segment.len.get() & 0x7fff_ffff)).sum();
        Receive { index, list, room, pd }
    }

    /// Checks that a message of `len` bytes fits into the receive.
    pub(crate) fn fits(&self, len: u64) -> Result<(), BadReceive> {
        if len <= self.room { Ok(()) } else { Err(BadReceive::TooShort) }
    }

    /// Calls `put` for each memory range to which bytes `at..at + len` of the message belong, with the range's offset
    /// in these bytes. `qpn` is the QPN of the receiver.
    pub(crate) fn spread<'a>(
        &self,
        mkeys: &'a Mkeys,
        qpn: u32,
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
                let user = User { pd: self.pd, qpn };
                let span = resolve(mkeys, user, key, addr, to - from, Rights::LOCAL_WRITE)
                    .map_err(BadReceive::Key)?;
                put(span, from - at).map_err(BadReceive::Memory)?;
            }
            base += size;
        }
        Ok(())
    }
}
