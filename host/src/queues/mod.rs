//! The QPs of a PE: their memory and registrations, their connections, and what kernels are told of them.
//!
//! ```text
//! Rail::new   heap and queue memory registered, PD, key, UARs          (once per NIC)
//! probe       the NIC moves bytes for its own PE                       (once per NIC)
//! Links       CREATE_CQ, CREATE_QP, RST2INIT, INIT2RTR, RTR2RTS        (when a kernel first posts to a peer)
//! ```

mod drain;
mod info;
mod links;
mod probe;
mod rail;
mod service;
mod shape;
mod state;

pub use info::QpInfo;
pub(crate) use links::{Card, Links};
pub(crate) use probe::probe;
pub(crate) use rail::{Rail, Tries};
pub(crate) use service::Service;
pub(crate) use shape::Shape;
pub(crate) use state::{Handshakes, StateMap};
