//! The QPs of a PE: their memory, registrations and connections, and their description for kernels.
//!
//! ```text
//! Rail::new     registers heap and queue memory, allocates PD, key, UARs   (once per NIC)
//! probe         checks that the NIC moves bytes for its own PE             (once per NIC)
//! Connections   CREATE_CQ, CREATE_QP, RST2INIT, INIT2RTR, RTR2RTS          (when a kernel first posts to a peer)
//! ```

mod connections;
mod drain;
mod info;
mod probe;
mod rail;
mod service;
mod shape;
mod state;

pub(crate) use connections::{Connections, PeNics};
pub use info::QpInfo;
pub(crate) use probe::probe;
pub(crate) use rail::{Rail, RetryPolicy};
pub(crate) use service::{Guards, Service, set_abort_word};
pub(crate) use shape::Shape;
pub(crate) use state::{Handshakes, StateMap};
