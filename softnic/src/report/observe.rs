//! Observation of the adapter: its doorbells, WQEs, messages and packets, with their times.
//!
//! [`Nic::observe`](crate::Nic::observe) sets the observer. Without one, each place costs a branch.

use rushmem_mlx5::seg::RaddrSeg;
use rushmem_mlx5::{Opcode, Syndrome};
use std::net::SocketAddrV4;
use std::sync::Arc;
use std::time::Instant;

/// An observer of an adapter.
pub trait Observer: Send + Sync {
    /// Takes an observation that was made at `at`.
    ///
    /// The engine thread calls this with no lock held, but all queues wait while it runs. The times never decrease.
    fn observe(&self, at: Instant, observation: Observation);
}

/// An address at the responder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteAddress {
    /// The address on the wire.
    pub addr: u64,
    /// The key of the responder.
    pub rkey: u32,
}

impl From<RaddrSeg> for RemoteAddress {
    fn from(at: RaddrSeg) -> RemoteAddress {
        RemoteAddress { addr: at.addr.get(), rkey: at.rkey.get() }
    }
}

/// Something that an adapter did. The index of a WQE is the index of its first basic block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Observation {
    /// A doorbell announced basic blocks of a send queue.
    Doorbell {
        /// The QP.
        qpn: u32,
        /// The index of the first block.
        index: u16,
        /// The number of blocks.
        blocks: u16,
    },
    /// The adapter began to execute a WQE.
    WqeBegins {
        /// The QP.
        qpn: u32,
        /// Its index.
        index: u16,
        /// Its operation.
        opcode: Opcode,
        /// The other adapter; `None` for a QP of this adapter, and for datagrams.
        peer: Option<SocketAddrV4>,
        /// The address at the responder, if the operation has one.
        remote: Option<RemoteAddress>,
        /// The bytes that it moves.
        bytes: u64,
    },
    /// A WQE completed, with or without a CQE. A flushed WQE may end without having begun.
    WqeEnds {
        /// The QP.
        qpn: u32,
        /// Its index.
        index: u16,
        /// Its operation.
        opcode: Opcode,
        /// The error, if it failed.
        syndrome: Option<Syndrome>,
    },
    /// The adapter wrote a CQE.
    Cqe {
        /// The CQ.
        cqn: u32,
        /// The QP.
        qpn: u32,
    },
    /// A WRITE, a SEND or an atomic of the peer has taken effect in memory.
    ///
    /// Data that a fault lets land after its acknowledgement may follow.
    Arrival {
        /// The QP that received it.
        qpn: u32,
        /// The operation of the peer.
        opcode: Opcode,
        /// Its address, if the operation has one.
        remote: Option<RemoteAddress>,
        /// The bytes.
        bytes: u64,
        /// The time at which the first of them was there, before memory changed.
        since: Instant,
    },
    /// A packet was handed to the fabric.
    PacketSent {
        /// The QP.
        qpn: u32,
        /// The packet sequence number.
        psn: u32,
        /// The operation of the packet.
        opcode: &'static str,
        /// The bytes of its payload.
        bytes: u64,
        /// Whether the packet, or the response that it requests, was sent before.
        is_retransmission: bool,
    },
    /// A packet of the QP's peer was received.
    PacketReceived {
        /// The QP.
        qpn: u32,
        /// The packet sequence number.
        psn: u32,
        /// The operation of the packet.
        opcode: &'static str,
        /// The bytes of its payload.
        bytes: u64,
    },
    /// The responder did not accept a request.
    Nak {
        /// The QP that sent the request.
        qpn: u32,
        /// The packet sequence number.
        psn: u32,
        /// The reason.
        reason: &'static str,
    },
    /// A fault was injected.
    Fault {
        /// The QP, if the fault concerns one and the adapter knows which.
        qpn: Option<u32>,
        /// The fault, as [`Faults`](crate::Faults) names it.
        kind: &'static str,
    },
}

/// The observations that wait for the end of a pass.
#[derive(Default)]
pub(crate) struct Lookout {
    observer: Option<Arc<dyn Observer>>,
    made: Vec<(Instant, Observation)>,
    /// Observations that wait until all copies have landed.
    landing: Vec<Observation>,
}

/// An observer and its observations.
pub(crate) type Observed = (Arc<dyn Observer>, Vec<(Instant, Observation)>);

impl Lookout {
    pub(crate) fn set(&mut self, observer: Arc<dyn Observer>) {
        self.observer = Some(observer);
    }

    /// Returns whether there is an observer.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.observer.is_some()
    }

    /// Returns the time, if there is an observer.
    #[inline]
    pub(crate) fn time(&self) -> Option<Instant> {
        self.is_on().then(Instant::now)
    }

    /// Notes an observation, which `make` builds, if there is an observer.
    #[inline]
    pub(crate) fn note(&mut self, make: impl FnOnce() -> Observation) {
        if self.is_on() {
            self.made.push((Instant::now(), make()));
        }
    }

    /// Notes an observation now, or once all copies have landed.
    #[inline]
    pub(crate) fn note_landing(&mut self, has_landed: bool, make: impl FnOnce() -> Observation) {
        if has_landed {
            self.note(make);
        } else if self.is_on() {
            self.landing.push(make());
        }
    }

    /// Notes the observations that waited for copies. All copies have landed.
    #[inline]
    pub(crate) fn landed(&mut self) {
        if !self.landing.is_empty() {
            let now = Instant::now();
            self.made.extend(self.landing.drain(..).map(|observation| (now, observation)));
        }
    }

    /// Takes the observations of a pass.
    pub(crate) fn take(&mut self) -> Option<Observed> {
        let observer = self.observer.as_ref().filter(|_| !self.made.is_empty())?;
        Some((Arc::clone(observer), std::mem::take(&mut self.made)))
    }
}
