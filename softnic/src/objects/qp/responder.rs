//! The responder's half of a connection over packets: queued responses, a partial message, packets after a gap.

use super::Qp;
use super::faults::ResponderFaults;
use super::flight::BITS;
use crate::request::Receive;
use crate::roce::{AethSyndrome, Psn, Reth};
use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

/// The responder's half of a connection.
#[derive(Debug, Default)]
pub(crate) struct Responder {
    /// Queued responses, in order.
    pub(crate) responses: VecDeque<Response>,
    /// Message of several packets, partly received.
    pub(crate) message: Option<PartialMessage>,
    /// Results of the last atomics.
    pub(crate) replays: VecDeque<(Psn, u64)>,
    /// The READ executed last, if no other request followed it.
    pub(crate) read: Option<ExecutedRead>,
    /// Set once a gap has been reported. Later packets after the same gap do not report it again.
    pub(crate) gap: bool,
    /// Packets after a gap.
    pub(crate) early: Early,
    /// Faults injected into it.
    pub(crate) faults: ResponderFaults,
    /// NAK that closed the connection, repeated for later requests.
    pub(crate) final_nak: Option<(Psn, AethSyndrome)>,
}

/// A partly received message. `since` is the time of its first packet, if there is an observer.
#[derive(Debug)]
pub(crate) enum PartialMessage {
    Write { reth: Reth, done: u64, since: Option<Instant> },
    Send { receive: Receive, done: u64, since: Option<Instant> },
}

/// An executed READ whose last response precedes the next expected PSN.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExecutedRead {
    pub(crate) first: Psn,
    pub(crate) addr: u64,
    pub(crate) rkey: u32,
}

impl ExecutedRead {
    /// Returns whether a request at `psn` asks for the bytes that this READ has there.
    pub(crate) fn includes(&self, psn: Psn, reth: &Reth, mtu_shift: u32) -> bool {
        let skip = u64::try_from(psn.since(self.first)).ok().map(|packets| packets << mtu_shift);
        let addr = skip.and_then(|skip| self.addr.checked_add(skip));
        addr == Some(reth.addr) && reth.rkey == self.rkey
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Response {
    /// READ response packets, `sent` of them already sent. Each reads memory when it is sent.
    Read {
        psn: Psn,
        /// Protection domain of its key.
        pd: u32,
        reth: Reth,
        sent: u32,
        due: Option<Instant>,
    },
    Atomic {
        psn: Psn,
        old: u64,
        due: Option<Instant>,
    },
    Ack {
        psn: Psn,
        syndrome: AethSyndrome,
    },
    /// A report of what has arrived after the first missing packet.
    Selective {
        psn: Psn,
    },
}

impl Response {
    pub(crate) fn psn(&self) -> Psn {
        match *self {
            Response::Read { psn, .. }
            | Response::Atomic { psn, .. }
            | Response::Ack { psn, .. }
            | Response::Selective { psn } => psn,
        }
    }

    pub(crate) fn has_data(&self) -> bool {
        matches!(self, Response::Read { .. } | Response::Atomic { .. })
    }

    pub(crate) fn clear_delay(&mut self) {
        if let Response::Read { due, .. } | Response::Atomic { due, .. } = self {
            *due = None;
        }
    }

    /// Returns the time at which to send it, or `None` to send it immediately.
    pub(crate) fn due(&self) -> Option<Instant> {
        match *self {
            Response::Read { due, .. } | Response::Atomic { due, .. } => due,
            Response::Ack { .. } | Response::Selective { .. } => None,
        }
    }
}

/// The packets that a responder has received after a gap.
#[derive(Debug, Default)]
pub(crate) struct Early {
    pub(crate) packets: BTreeMap<u32, Box<[u8]>>,
    /// When to report the gap again, and how often that happened.
    pub(crate) due: Option<Instant>,
    pub(crate) reports: u32,
}

impl Early {
    /// Returns the bits of the packets after `expected`, the first missing one.
    pub(crate) fn bits(&self, expected: Psn) -> [u8; BITS] {
        let mut bits = [0; BITS];
        for psn in self.packets.keys() {
            let behind = Psn::new(*psn).since(expected) - 1;
            if let Some(byte) = usize::try_from(behind).ok().and_then(|behind| bits.get_mut(behind / 8)) {
                *byte |= 1 << (behind % 8);
            }
        }
        bits
    }
}

impl Qp {
    /// Drops a partly received message, and gives its receive to the next one. Returns whether there was one.
    pub(crate) fn drop_partial_message(&mut self) -> bool {
        let message = self.resp.message.take();
        if let Some(PartialMessage::Send { receive, .. }) = &message {
            match (&mut self.rq, &self.srq) {
                (Some(rq), _) => rq.consumer = receive.index,
                (None, Some(srq)) => srq.get().give_back(receive.index),
                (None, None) => {}
            }
        }
        message.is_some()
    }

    /// Returns whether a message is partly received.
    pub(crate) fn has_partial_message(&self) -> bool {
        self.resp.message.is_some()
    }

    /// Queues a response. Consecutive acknowledgements are merged.
    pub(crate) fn push_response(&mut self, answer: Response) {
        let responses = &mut self.resp.responses;
        match (responses.back_mut(), answer) {
            (
                Some(Response::Ack { psn: last, syndrome: AethSyndrome::Ack }),
                Response::Ack { psn, syndrome: AethSyndrome::Ack },
            ) => {
                if psn.since(*last) > 0 {
                    *last = psn;
                }
            }
            _ => responses.push_back(answer),
        }
    }
}
