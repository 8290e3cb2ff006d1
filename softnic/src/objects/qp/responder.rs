//! The responder of a packet connection: queued responses, the partly received message, and packets buffered after a
//! gap.

use super::Qp;
use super::faults::ResponderFaults;
use super::flight::BITS;
use crate::request::Receive;
use crate::roce::{AethSyndrome, Psn, Reth};
use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

#[derive(Debug, Default)]
pub(crate) struct Responder {
    pub(crate) responses: VecDeque<Response>,
    /// The message of which some packets have been received and others are still to come.
    pub(crate) message: Option<PartialMessage>,
    /// PSN and result of the last atomics, which are repeated for duplicate requests.
    pub(crate) replays: VecDeque<(Psn, u64)>,
    /// The last READ executed, if no other request followed it. A duplicate request may ask for a part of it.
    pub(crate) read: Option<ExecutedRead>,
    /// Set once a missing packet has been reported, so later packets do not report it again.
    pub(crate) gap: bool,
    pub(crate) early: Early,
    pub(crate) faults: ResponderFaults,
    /// The NAK that closed the connection, with its PSN. It is repeated for later requests.
    pub(crate) final_nak: Option<(Psn, AethSyndrome)>,
}

/// A partly received message: `done` is the number of bytes received, `since` when the first packet arrived, if an
/// observer is attached.
#[derive(Debug)]
pub(crate) enum PartialMessage {
    Write { reth: Reth, done: u64, since: Option<Instant> },
    Send { receive: Receive, done: u64, since: Option<Instant> },
}

/// An executed READ request. Its last PSN is the one before the next expected PSN.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExecutedRead {
    pub(crate) first: Psn,
    pub(crate) addr: u64,
    pub(crate) rkey: u32,
}

impl ExecutedRead {
    /// Whether a request at `psn` with header `reth` repeats this READ from that PSN on, at the same address and with
    /// the same key.
    pub(crate) fn includes(&self, psn: Psn, reth: &Reth, mtu_shift: u32) -> bool {
        let skip = u64::try_from(psn.since(self.first)).ok().map(|packets| packets << mtu_shift);
        let addr = skip.and_then(|skip| self.addr.checked_add(skip));
        addr == Some(reth.addr) && reth.rkey == self.rkey
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Response {
    /// Response packets of a READ, `sent` of which have been sent. Memory is read for each packet when it is sent.
    Read {
        psn: Psn,
        /// Protection domain of the request's rkey.
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
    /// A report of which packets have arrived after a missing one.
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

    /// Returns when to send the response, or `None` to send it immediately.
    pub(crate) fn due(&self) -> Option<Instant> {
        match *self {
            Response::Read { due, .. } | Response::Atomic { due, .. } => due,
            Response::Ack { .. } | Response::Selective { .. } => None,
        }
    }
}

/// Packets received after a missing one, by PSN.
#[derive(Debug, Default)]
pub(crate) struct Early {
    pub(crate) packets: BTreeMap<u32, Box<[u8]>>,
    /// When to report the missing packet again.
    pub(crate) due: Option<Instant>,
    pub(crate) reports: u32,
}

impl Early {
    /// Returns the bitmap of a report: which packets after `expected` have arrived. `expected` is the first missing
    /// one.
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
    /// Drops the partly received message, if any, and returns its receive to the queue. Returns whether there was a
    /// message.
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

    pub(crate) fn has_partial_message(&self) -> bool {
        self.resp.message.is_some()
    }

    /// Queues a response. An ACK is merged with an ACK at the back of the queue.
    pub(crate) fn push_response(&mut self, answer: Response) {
        let responses = &mut self.resp.responses;
        match (responses.back_mut(), answer) {
            (
                Some(Response::Ack { psn: last, syndrome: AethSyndrome::Ack }),
                Response::Ack { psn, syndrome: AethSyndrome::Ack },
            ) => {
                // An ACK covers all earlier PSNs, so the latest suffices. It may be older after a duplicate.
                if psn.since(*last) > 0 {
                    *last = psn;
                }
            }
            _ => responses.push_back(answer),
        }
    }
}
