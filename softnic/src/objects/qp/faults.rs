//! Faults injected into a QP: late answers to loopback WQEs, and delayed processing of request packets.

use crate::report::Observation;
use crate::request::RemoteRange;
use crate::roce::Psn;
use crate::wqe::Done;
use rushmem_mlx5::{Opcode, Segment};
use std::collections::VecDeque;
use std::ops::Range;
use std::time::Instant;

/// State of the faults injected into the loopback WQEs of one QP.
#[derive(Default)]
pub(crate) struct LoopbackFaults {
    /// Index of the WQE for which it has been decided at random which faults occur.
    pub(crate) cast: Option<u16>,
    /// When the QP's stall is over, if it is stalled.
    pub(crate) until: Option<Instant>,
    /// Remaining pieces of the message at the head of the queue, in reverse order.
    pub(crate) pieces: Vec<Range<u64>>,
    /// When the WQE at the head of the queue is answered, if its answer is late.
    pub(crate) due: Option<Instant>,
    /// Old value returned by the atomic at the head of the queue, whose answer is late.
    pub(crate) old: u64,
    /// Executed WQEs that have not completed, because the answer to the first one is late.
    pub(crate) unanswered: VecDeque<Unanswered>,
}

/// An executed WQE that has not completed.
pub(crate) struct Unanswered {
    pub(crate) done: Done,
    pub(crate) signaled: bool,
    pub(crate) due: Instant,
    /// The WQE's segments and, for an atomic, the old value, if its answer or its data is late. `None` if the WQE only
    /// waits for its predecessors.
    pub(crate) answer: Option<(Box<[Segment]>, u64)>,
}

impl Unanswered {
    /// Whether the WQE is a READ or an atomic whose answer is late.
    pub(crate) fn is_fetch(&self) -> bool {
        self.answer.is_some() && self.done.opcode != Opcode::RDMA_WRITE
    }

    /// Whether the WQE is a WRITE whose data has not been written.
    pub(crate) fn is_write(&self) -> bool {
        self.answer.is_some() && self.done.opcode == Opcode::RDMA_WRITE
    }
}

impl LoopbackFaults {
    /// Returns the next piece to move of a message that is moved in pieces.
    pub(crate) fn piece(&self) -> Option<Range<u64>> {
        self.pieces.last().cloned()
    }

    /// Whether the answer to the WQE at the head of the queue is late.
    pub(crate) fn is_late(&self) -> bool {
        self.due.is_some()
    }

    /// Whether any executed WQE has not completed.
    pub(crate) fn has_unanswered(&self) -> bool {
        !self.unanswered.is_empty()
    }

    /// Resets all fault state, and returns the executed WQEs that have not completed.
    pub(crate) fn take(&mut self) -> impl Iterator<Item = Done> + use<> {
        std::mem::take(self).unanswered.into_iter().map(|entry| entry.done)
    }
}

/// State of the faults injected into the request packets that a QP receives.
#[derive(Debug, Default)]
pub(crate) struct ResponderFaults {
    /// When the QP's stall is over, if it is stalled.
    pub(crate) until: Option<Instant>,
    /// A payload that is being written in pieces.
    pub(crate) split: Option<Split>,
    /// Packets that arrived after a fault delayed one. They are processed later, in order.
    pub(crate) waiting: VecDeque<Box<[u8]>>,
    pub(crate) late: Vec<LatePayload>,
}

/// The payload of a WRITE packet that is written late, so later WRITEs may overtake it.
#[derive(Debug)]
pub(crate) struct LatePayload {
    pub(crate) due: Instant,
    pub(crate) psn: Psn,
    /// Remote range of the whole message.
    pub(crate) place: RemoteRange,
    pub(crate) skip: u64,
    pub(crate) payload: Box<[u8]>,
    /// Reported to the observer when the payload is written. `None` without an observer.
    pub(crate) arrival: Option<Observation>,
}

/// The payload of a WRITE packet that is written in pieces.
#[derive(Debug)]
pub(crate) struct Split {
    pub(crate) psn: Psn,
    /// Remote range of the whole message.
    pub(crate) place: RemoteRange,
    pub(crate) skip: u64,
    pub(crate) payload: Box<[u8]>,
    /// Byte ranges of the payload that are not written yet, in reverse order.
    pub(crate) pieces: Vec<Range<u64>>,
    /// Reported to the observer when the last piece is written. `None` without an observer.
    pub(crate) arrival: Option<Observation>,
}
