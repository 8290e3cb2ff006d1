//! The faults injected into a QP: WQEs over loopback with late answers, and requests from packets that wait.

use crate::report::Observation;
use crate::request::RemoteRange;
use crate::roce::Psn;
use crate::wqe::Done;
use rushmem_mlx5::{Opcode, Segment};
use std::collections::VecDeque;
use std::ops::Range;
use std::time::Instant;

/// State of the faults injected into one QP.
#[derive(Default)]
pub(crate) struct LoopbackFaults {
    /// Index of the WQE for which faults were drawn.
    pub(crate) cast: Option<u16>,
    /// End of the QP's stall.
    pub(crate) until: Option<Instant>,
    /// Remaining pieces of the message at the head of the queue; the last one is next.
    pub(crate) pieces: Vec<Range<u64>>,
    /// Time of the answer to the WQE at the head of the queue.
    pub(crate) due: Option<Instant>,
    /// Old value of an atomic with a late answer.
    pub(crate) old: u64,
    /// Executed WQEs, from the first one with a late answer.
    pub(crate) unanswered: VecDeque<Unanswered>,
}

/// An executed WQE without completion.
pub(crate) struct Unanswered {
    pub(crate) done: Done,
    pub(crate) signaled: bool,
    pub(crate) due: Instant,
    /// The WQE and an atomic's old value, for a late answer or landing. WQEs without one wait for their predecessors.
    pub(crate) answer: Option<(Box<[Segment]>, u64)>,
}

impl Unanswered {
    /// Returns whether a READ or an atomic awaits its answer.
    pub(crate) fn is_fetch(&self) -> bool {
        self.answer.is_some() && self.done.opcode != Opcode::RDMA_WRITE
    }

    /// Returns whether a WRITE has not landed.
    pub(crate) fn is_write(&self) -> bool {
        self.answer.is_some() && self.done.opcode == Opcode::RDMA_WRITE
    }
}

impl LoopbackFaults {
    /// Returns the next part of a split message.
    pub(crate) fn piece(&self) -> Option<Range<u64>> {
        self.pieces.last().cloned()
    }

    /// Returns whether the answer to the WQE at the head of the queue is late.
    pub(crate) fn is_late(&self) -> bool {
        self.due.is_some()
    }

    /// Returns whether executed WQEs wait for their completion.
    pub(crate) fn has_unanswered(&self) -> bool {
        !self.unanswered.is_empty()
    }

    /// Resets the state and returns the executed WQEs without completion.
    pub(crate) fn take(&mut self) -> impl Iterator<Item = Done> + use<> {
        std::mem::take(self).unanswered.into_iter().map(|entry| entry.done)
    }
}

/// State of the faults injected into one responder.
#[derive(Debug, Default)]
pub(crate) struct ResponderFaults {
    /// End of the QP's stall.
    pub(crate) until: Option<Instant>,
    /// Payload of a packet that is partly moved.
    pub(crate) split: Option<Split>,
    /// Packets received in the meantime.
    pub(crate) waiting: VecDeque<Box<[u8]>>,
    pub(crate) late: Vec<LatePayload>,
}

/// The payload of a WRITE packet that later WRITEs pass.
#[derive(Debug)]
pub(crate) struct LatePayload {
    pub(crate) due: Instant,
    pub(crate) psn: Psn,
    /// Destination of the whole message, and the offset of this packet in it.
    pub(crate) place: RemoteRange,
    pub(crate) skip: u64,
    pub(crate) payload: Box<[u8]>,
    /// The arrival that it completes, if there is an observer.
    pub(crate) arrival: Option<Observation>,
}

/// The payload of a WRITE packet that is moved in pieces.
#[derive(Debug)]
pub(crate) struct Split {
    pub(crate) psn: Psn,
    /// Destination of the whole message, and the offset of this packet in it.
    pub(crate) place: RemoteRange,
    pub(crate) skip: u64,
    pub(crate) payload: Box<[u8]>,
    /// Remaining pieces; the last one is next.
    pub(crate) pieces: Vec<Range<u64>>,
    /// The arrival that it completes, if there is an observer.
    pub(crate) arrival: Option<Observation>,
}
