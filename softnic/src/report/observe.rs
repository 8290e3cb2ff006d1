//! Observation of the adapter: doorbells, WQEs, messages and packets, with their times.
//!
//! [`Nic::observe`](crate::Nic::observe) attaches the observer. Without one, each observation costs a branch.

use rushmem_mlx5::seg::RaddrSeg;
use rushmem_mlx5::{Opcode, Syndrome};
use std::net::SocketAddrV4;
use std::sync::Arc;
use std::time::Instant;

/// A callback that receives everything an adapter does: doorbells, WQEs, CQEs and packets.
pub trait Observer: Send + Sync {
    /// Called with an observation and the time at which it was made.
    ///
    /// The engine thread calls this without holding a lock, but no queue makes progress until it returns. Times never
    /// decrease.
    fn observe(&self, at: Instant, observation: Observation);
}

/// A remote address and the key that grants access to it, as a WQE names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteAddress {
    /// Virtual address in the request.
    pub addr: u64,
    /// The responder's memory key for the address.
    pub rkey: u32,
}

impl From<RaddrSeg> for RemoteAddress {
    fn from(at: RaddrSeg) -> RemoteAddress {
        RemoteAddress { addr: at.addr.get(), rkey: at.rkey.get() }
    }
}

/// Something that an adapter did. WQEs are identified by the index of their first basic block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Observation {
    /// A doorbell announced basic blocks of a send queue.
    Doorbell {
        /// QPN of the send queue's QP.
        qpn: u32,
        /// Index of the first announced block, modulo 2^16.
        index: u16,
        /// Number of basic blocks that the doorbell announced.
        blocks: u16,
    },
    /// The adapter started to execute a WQE.
    WqeBegins {
        /// QPN of the QP whose WQE was started.
        qpn: u32,
        /// Index of the WQE's first basic block, modulo 2^16.
        index: u16,
        /// Operation of the WQE.
        opcode: Opcode,
        /// Address of the peer's adapter. `None` if that is this adapter, and for datagrams.
        peer: Option<SocketAddrV4>,
        /// Address at the responder, if the operation has one.
        remote: Option<RemoteAddress>,
        /// Number of payload bytes that the WQE transfers.
        bytes: u64,
    },
    /// A WQE completed, with or without a CQE. A flushed WQE may complete without ever having started.
    WqeEnds {
        /// QPN of the QP whose WQE completed.
        qpn: u32,
        /// Index of the WQE's first basic block, modulo 2^16.
        index: u16,
        /// Operation of the WQE.
        opcode: Opcode,
        /// Syndrome of the error, if the WQE failed.
        syndrome: Option<Syndrome>,
    },
    /// The adapter wrote a CQE.
    Cqe {
        /// CQN of the CQ to which the CQE was written.
        cqn: u32,
        /// QPN in the CQE.
        qpn: u32,
    },
    /// A WRITE, SEND or atomic of the peer has taken effect in memory.
    ///
    /// If faults are injected, the data may reach memory only after this observation.
    Arrival {
        /// QPN of the receiver.
        qpn: u32,
        /// Operation that the peer requested.
        opcode: Opcode,
        /// Address that the peer's request names, if its operation has one.
        remote: Option<RemoteAddress>,
        /// Number of payload bytes received.
        bytes: u64,
        /// When the first byte arrived, before memory was changed.
        since: Instant,
    },
    /// A packet was handed to the fabric for transmission.
    PacketSent {
        /// QPN of the QP that sent the packet.
        qpn: u32,
        /// Packet sequence number (PSN), 24 bits.
        psn: u32,
        /// Opcode of the packet, as InfiniBand names it.
        opcode: &'static str,
        /// Length of the payload, in bytes.
        bytes: u64,
        /// Whether this packet, or the response that it requests, had been sent before.
        is_retransmission: bool,
    },
    /// A packet from the QP's peer was received.
    PacketReceived {
        /// QPN of the QP that received the packet.
        qpn: u32,
        /// Packet sequence number (PSN), 24 bits.
        psn: u32,
        /// Opcode of the packet, as InfiniBand names it.
        opcode: &'static str,
        /// Length of the payload, in bytes.
        bytes: u64,
    },
    /// The responder refused a request.
    Nak {
        /// QPN of the QP that sent the refused request.
        qpn: u32,
        /// PSN of the refused request.
        psn: u32,
        /// Why the responder refused the request.
        reason: &'static str,
    },
    /// A fault was injected.
    Fault {
        /// QPN of the affected QP, if the fault concerns a QP and the adapter knows which.
        qpn: Option<u32>,
        /// Name of the fault's setting in [`Faults`](crate::Faults).
        kind: &'static str,
    },
}

/// Collects the observations of the current pass for the observer, if one is attached.
#[derive(Default)]
pub(crate) struct Lookout {
    observer: Option<Arc<dyn Observer>>,
    made: Vec<(Instant, Observation)>,
    /// Observations that are made once all copies in flight are complete.
    landing: Vec<Observation>,
}

/// An observer, and the observations to deliver to it with their times.
pub(crate) type Observed = (Arc<dyn Observer>, Vec<(Instant, Observation)>);

impl Lookout {
    pub(crate) fn set(&mut self, observer: Arc<dyn Observer>) {
        self.observer = Some(observer);
    }

    /// Whether an observer is attached.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.observer.is_some()
    }

    /// Returns the current time, or `None` without an observer, for whom alone it is needed.
    #[inline]
    pub(crate) fn time(&self) -> Option<Instant> {
        self.is_on().then(Instant::now)
    }

    /// Records an observation built by `make`, if an observer is attached.
    #[inline]
    pub(crate) fn note(&mut self, make: impl FnOnce() -> Observation) {
        if self.is_on() {
            self.made.push((Instant::now(), make()));
        }
    }

    /// Records an observation now or, if copies are in flight, once all of them are complete.
    #[inline]
    pub(crate) fn note_landing(&mut self, has_landed: bool, make: impl FnOnce() -> Observation) {
        if has_landed {
            self.note(make);
        } else if self.is_on() {
            self.landing.push(make());
        }
    }

    /// Records the observations that were waiting for copies, all of which are complete.
    #[inline]
    pub(crate) fn landed(&mut self) {
        if !self.landing.is_empty() {
            let now = Instant::now();
            self.made.extend(self.landing.drain(..).map(|observation| (now, observation)));
        }
    }

    /// Removes and returns the observations of this pass and their observer, if there are any.
    pub(crate) fn take(&mut self) -> Option<Observed> {
        let observer = self.observer.as_ref().filter(|_| !self.made.is_empty())?;
        Some((Arc::clone(observer), std::mem::take(&mut self.made)))
    }
}
