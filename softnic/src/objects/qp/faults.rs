//! Faults injected into a QP: late answers of loopback WQEs, and held-back requests from packets.

use crate::report::Observation;
use crate::request::RemoteRange;
use crate::roce::Psn;
use crate::wqe::Done;
use rushmem_mlx5::{Opcode, Segment};
use std::collections::VecDeque;
use std::ops::Range;
use std::time::Instant;

/// Faults injected into the send queue of one QP.
#[derive(Default)]
pub(crate) struct LoopbackFaults {
    /// Index of the WQE for which faults have been drawn.
    pub(crate) cast: Option<u16>,
    /// When the stall of the QP is over.
    pub(crate) until: Option<Instant>,
    /// Remaining pieces of the message at the head of the queue, in reverse order.
    pub(crate) pieces: Vec<Range<u64>>,
    /// When the WQE at the head of the queue is answered.
    pub(crate) due: Option<Instant>,
    /// Old value of an atomic whose answer is late.
    pub(crate) old: u64,
    /// Executed WQEs, starting with one whose answer is late.
    pub(crate) unanswered: VecDeque<Unanswered>,
}

/// An executed WQE that has not completed.
pub(crate) struct Unanswered {
    pub(crate) done: Done,
    pub(crate) signaled: bool,
    pub(crate) due: Instant,
    /// The WQE, and the old value of an atomic, if the answer or the landing is late. Without one, it only waits for
    /// its predecessors.
    pub(crate) answer: Option<(Box<[Segment]>, u64)>,
}

impl Unanswered {
    /// Whether it is a READ or an atomic whose answer is outstanding.
    pub(crate) fn is_fetch(&self) -> bool {
        self.answer.is_some() && self.done.opcode != Opcode::RDMA_WRITE
    }

    /// Whether it is a WRITE that has not landed.
    pub(crate) fn is_write(&self) -> bool {
        self.answer.is_some() && self.done.opcode == Opcode::RDMA_WRITE
    }
}

impl LoopbackFaults {
    /// Returns the next piece of a split message.
    pub(crate) fn piece(&self) -> Option<Range<u64>> {
        self.pieces.last().cloned()
    }

    /// Whether the answer to the WQE at the head of the queue is late.
    pub(crate) fn is_late(&self) -> bool {
        self.due.is_some()
    }

    /// Whether executed WQEs have not completed.
    pub(crate) fn has_unanswered(&self) -> bool {
        !self.unanswered.is_empty()
    }

    /// Resets the state, and returns the executed WQEs that have not completed.
    pub(crate) fn take(&mut self) -> impl Iterator<Item = Done> + use<> {
        std::mem::take(self).unanswered.into_iter().map(|entry| entry.done)
    }
}

/// Faults injected into one responder.
#[derive(Debug, Default)]
pub(crate) struct ResponderFaults {
    /// When the stall of the QP is over.
    pub(crate) until: Option<Instant>,
    /// A payload that is being written in pieces.
    pub(crate) split: Option<Split>,
    /// Packets received since a fault first held one back.
    pub(crate) waiting: VecDeque<Box<[u8]>>,
    pub(crate) late: Vec<LatePayload>,
}

/// The payload of a WRITE packet that later WRITEs may overtake.
#[derive(Debug)]
pub(crate) struct LatePayload {
    pub(crate) due: Instant,
    pub(crate) psn: Psn,
    /// Remote range of the whole message, and the offset of this packet in it.
    pub(crate) place: RemoteRange,
    pub(crate) skip: u64,
    pub(crate) payload: Box<[u8]>,
    /// The observation to report on landing, if an observer is attached.
    pub(crate) arrival: Option<Observation>,
}

/// The payload of a WRITE packet that is written in pieces.
#[derive(Debug)]
pub(crate) struct Split {
    pub(crate) psn: Psn,
    /// Remote range of the whole message, and the offset of this packet in it.
    pub(crate) place: RemoteRange,
    pub(crate) skip: u64,
    pub(crate) payload: Box<[u8]>,
    /// Remaining pieces, in reverse order.
    pub(crate) pieces: Vec<Range<u64>>,
    /// The observation to report on landing, if an observer is attached.
    pub(crate) arrival: Option<Observation>,
}
