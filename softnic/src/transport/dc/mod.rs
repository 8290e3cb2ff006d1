//! Dynamic connections: an initiator (DCI) executes WQEs in order, each of which names its target (DCT).
//!
//! An initiator has one connection at a time, and completes all WQEs to one target before it connects to the next. At
//! the target's adapter, each connection is a separate QP that only receives. Both sides therefore use the code of
//! reliable connections, over loopback and over packets: PSNs, acknowledgements, retransmission, duplicates, responses.
//!
//! | file | does |
//! |---|---|
//! | `initiator` | connects a DCI to the target of its next WQE |
//! | `target` | checks connect requests, and manages the connections of each DCT |
//!
//! # Packets
//!
//! The packets that hardware uses are not documented. The ones used here are our own, in the manufacturer-specific
//! opcode range. A connection uses the requests and responses of a reliable connection, with opcode 0xe0 + *n* instead
//! of *n*. They follow a handshake:
//!
//! | packet | opcode | to | headers after the BTH |
//! |---|---|---|---|
//! | connect | 0xf7 | the target | 16 bytes: access key (8), path MTU code (1), QPN of the initiator (3), sequence number (4) |
//! | accept | 0xf8 | the initiator | AETH (4), sequence number (4), 0 (1), QPN of the connection (3) |
//! | disconnect | 0xf9 | the connection | sequence number (4) |
//!
//! - A connect has the PSN before that of the first request. An initiator repeats it until an accept or a NAK arrives,
//!   and sends no requests until then. The target answers a repeated connect like the first one.
//! - Requests are sent to the QPN of the connection. A stale packet of an earlier connection finds no QP, or one that
//!   expects other PSNs.
//! - Sequence numbers increase at each initiating adapter. A connect from the same initiator replaces its earlier
//!   connection, and a late one with a lower number is dropped.
//! - A wrong access key is answered by a NAK (remote access error). A DCT that does not exist, is drained or is full
//!   does not answer.
//! - A disconnect is not acknowledged. If it is lost, the connection remains until the same initiator connects again,
//!   or until the target needs room. In that case the connection that has been silent longest is dropped, provided that
//!   its silence has lasted for at least [`EVICT_AFTER`].
//! - An initiator therefore reconnects before it uses a connection that has been silent for [`RENEW_AFTER`].

mod initiator;
mod target;
#[cfg(test)]
mod tests;

use crate::roce::{Bth, Ext};
pub(crate) use initiator::{disconnect, wants_turn};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::{Duration, Instant};

/// Time without packets after which a target may drop a connection to make room.
const EVICT_AFTER: Duration = Duration::from_secs(10);
/// Time without packets after which an initiator reconnects before it sends.
const RENEW_AFTER: Duration = Duration::from_secs(1);
/// Maximum number of connections per DCT.
const CONNECTIONS: usize = 1 << 14;

/// State of the dynamic connections that belongs to no single QP.
#[derive(Default)]
pub(crate) struct Dynamic {
    /// Sequence number of the latest connection that any initiator of this adapter has requested.
    pub(crate) sequence: u32,
    /// Answers to connect packets that are still to be sent, each with the QPN that sends it, the peer's address and
    /// its headers.
    pub(crate) answers: Vec<((u32, SocketAddrV4), Bth, Ext)>,
    /// Path MTU to each peer of an initiator, and when the system was asked for it.
    path_mtus: BTreeMap<Ipv4Addr, (Instant, Option<u32>)>,
}
