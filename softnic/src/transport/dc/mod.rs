//! Dynamic connections: an initiator (DCI) executes WQEs in order, and each names its target (DCT).
//!
//! An initiator has one connection at a time. It ends all WQEs to one target before it connects to the next. At the target's
//! adapter, each connection is a QP of its own, which only receives. So both ends use the code of reliable connections, over
//! loopback and over packets: packet numbers, acknowledgements, resending, duplicates, responses.
//!
//! | file | does |
//! |---|---|
//! | `initiator` | connects an initiator to the target of its next WQE |
//! | `target` | checks connection requests, and keeps the connections of each target |
//!
//! # Packets
//!
//! Hardware uses packets that no document describes. These here are our own, in the manufacturer's range of opcodes. A
//! connection has the requests and responses of a reliable connection, with the opcode 0xe0 + *n* in the place of *n*. They
//! follow a handshake:
//!
//! | packet | opcode | to | headers behind the BTH |
//! |---|---|---|---|
//! | connect | 0xf7 | the target | 16 bytes: access key (8), code of the path MTU (1), number of the initiator (3), sequence number (4) |
//! | accept | 0xf8 | the initiator | AETH (4), sequence number (4), 0 (1), number of the connection (3) |
//! | disconnect | 0xf9 | the connection | sequence number (4) |
//!
//! - A connect has the packet number before the first request. An initiator repeats it until an accept or a NAK comes, and
//!   sends no request before. The target answers a repeated connect as the first one.
//! - Requests go to the number of the connection. An old packet of an earlier connection finds no QP, or one that expects
//!   other packet numbers.
//! - Sequence numbers rise at each initiating adapter. A connect of the same initiator ends its earlier connection, and a late
//!   one with a lower number is dropped.
//! - A wrong access key is a NAK (remote access error). A target that does not exist or drains does not answer, nor does a
//!   full one.
//! - A disconnect is not acknowledged. If it is lost, the connection stays until the same initiator connects again, or until
//!   the target needs room. Then the connection goes that has been silent longest, if that is [`FORGET`] or more.
//! - So an initiator connects again before it uses a connection that has been silent for [`RENEW`].

mod initiator;
mod target;
#[cfg(test)]
mod tests;

use crate::roce::{Bth, Ext};
pub(crate) use initiator::{disconnect, wants_turn};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::{Duration, Instant};

/// Silence after which a target may forget a connection.
const FORGET: Duration = Duration::from_secs(10);
/// Silence after which an initiator connects again.
const RENEW: Duration = Duration::from_secs(1);
/// Most connections of a target.
const CONNECTIONS: usize = 1 << 14;

/// What dynamic connections need besides the path.
#[derive(Default)]
pub(crate) struct Dynamic {
    /// Sequence number of the last connection of an initiator.
    pub(crate) sequence: u32,
    /// Answers to connects, which belong to no QP.
    pub(crate) answers: Vec<((u32, SocketAddrV4), Bth, Ext)>,
    /// Path MTUs to the peers of initiators, and when the system told them.
    path_mtus: BTreeMap<Ipv4Addr, (Instant, Option<u32>)>,
}
