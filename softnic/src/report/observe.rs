//! Observation of the adapter: doorbells, WQEs, messages and packets, with their times.
//!
//! [`Nic::observe`](crate::Nic::observe) attaches the observer. Without one, each observation costs a branch.

use rushmem_mlx5::seg::RaddrSeg;
use rushmem_mlx5::{Opcode, Syndrome};
use std::net::SocketAddrV4;
use std::sync::Arc;
use std::time::Instant;

/// Receives everything that an adapter does.
pub trait Observer: Send + Sync {
    /// Called with an observation and the time at which it was made.
    ///
    /// The engine thread calls this without holding a lock, but no queue makes progress until it returns. Times never
    /// decrease.
    fn observe(&self, at: Instant, observation: Observation);
}

/// A remote address, as a WQE names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteAddress {
    /// The virtual address on the wire.
    pub addr: u64,
    /// The responder's key for it.
    pub rkey: u32,
}

impl From<RaddrSeg> for RemoteAddress {
    fn from(at: RaddrSeg) -> RemoteAddress {
        RemoteAddress { addr: at.addr.get(), rkey: at.rkey.get() }
    }
}

/// Something that an adapter did. A WQE is identified by the index of its first basic block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Observation {
    /// A doorbell announced basic blocks of a send queue.
    Doorbell {
        /// The QP's number.
        qpn: u32,
        /// Index of the first block.
        index: u16,
        /// Number of blocks announced.
        blocks: u16,
    },
    /// The adapter started to execute a WQE.
    WqeBegins {
        /// The QP's number.
        qpn: u32,
        /// Index of the WQE.
        index: u16,
        /// Operation of the WQE.
        opcode: Opcode,
        /// The adapter of the peer. `None` for a QP of this adapter, and for datagrams.
        peer: Option<SocketAddrV4>,
        /// Its address at the responder, if the operation has one.
        remote: Option<RemoteAddress>,
        /// Number of bytes that it transfers.
        bytes: u64,
    },
    /// A WQE completed, with or without a CQE. A flushed WQE may complete without ever having started.
    WqeEnds {
        /// The QP's number.
        qpn: u32,
        /// Index of the WQE.
        index: u16,
        /// Operation of the WQE.
        opcode: Opcode,
        /// The error, if it failed.
        syndrome: Option<Syndrome>,
    },
    /// The adapter wrote a CQE.
    Cqe {
        /// The CQ's number.
        cqn: u32,
        /// QPN of the completed work.
        qpn: u32,
    },
    /// A WRITE, SEND or atomic of the peer has taken effect in memory.
    ///
    /// Injected faults may land the data only after this observation.
    Arrival {
        /// QPN of the receiver.
        qpn: u32,
        /// Operation that the peer requested.
        opcode: Opcode,
        /// Its remote address, if the operation has one.
        remote: Option<RemoteAddress>,
        /// Number of bytes received.
        bytes: u64,
        /// When the first of them arrived, before memory was changed.
        since: Instant,
    },
    /// A packet was handed to the fabric.
    PacketSent {
        /// The QP's number.
        qpn: u32,
        /// Packet sequence number.
        psn: u32,
        /// Opcode of the packet, as InfiniBand names it.
        opcode: &'static str,
        /// Payload length in bytes.
        bytes: u64,
        /// Whether the packet, or the response that it requests, had been sent before.
        is_retransmission: bool,
    },
    /// A packet of the QP's peer was received.
    PacketReceived {
        /// The QP's number.
        qpn: u32,
        /// Packet sequence number.
        psn: u32,
        /// Opcode of the packet, as InfiniBand names it.
        opcode: &'static str,
        /// Payload length in bytes.
        bytes: u64,
    },
    /// The responder refused a request.
    Nak {
        /// QPN of the requester.
        qpn: u32,
        /// PSN of the request.
        psn: u32,
        /// Why it was refused.
        reason: &'static str,
    },
    /// A fault was injected.
    Fault {
        /// QPN, if the fault concerns a QP and the adapter knows which.
        qpn: Option<u32>,
        /// Name of the fault's setting in [`Faults`](crate::Faults).
        kind: &'static str,
    },
}

/// The observations of the current pass.
#[derive(Default)]
pub(crate) struct Lookout {
    observer: Option<Arc<dyn Observer>>,
    made: Vec<(Instant, Observation)>,
    /// Observations to be made once all copies have landed.
    landing: Vec<Observation>,
}

/// An observer, with the observations for it.
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

    /// Returns the time if an observer is attached.
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

    /// Records an observation now or, if copies are in flight, once all have landed.
    #[inline]
    pub(crate) fn note_landing(&mut self, has_landed: bool, make: impl FnOnce() -> Observation) {
        if has_landed {
            self.note(make);
        } else if self.is_on() {
            self.landing.push(make());
        }
    }

    /// Records the observations that were waiting for copies, which have all landed.
    #[inline]
    pub(crate) fn landed(&mut self) {
        if !self.landing.is_empty() {
            let now = Instant::now();
            self.made.extend(self.landing.drain(..).map(|observation| (now, observation)));
        }
    }

    /// Returns the observations of this pass.
    pub(crate) fn take(&mut self) -> Option<Observed> {
        let observer = self.observer.as_ref().filter(|_| !self.made.is_empty())?;
        Some((Arc::clone(observer), std::mem::take(&mut self.made)))
    }
}
