//! The QPs of a PE: their memory, registrations and connections, and their description for kernels.
//!
//! ```text
//! Rail::new     registers heap and queue memory, allocates PD, key, UARs   (once per NIC)
//! open_rail     sets up a rail at the highest level that works             (once per NIC)
//! probe         checks that the NIC moves bytes for its own PE             (once per NIC)
//! probe_kernel  checks that kernels can post and see completions           (once per NIC)
//! Target        CREATE_CQ, CREATE_RMP, CREATE_DCT                          (once per NIC, with DC initiators)
//! Connections   CREATE_CQ, CREATE_QP, RST2INIT, INIT2RTR, RTR2RTS          (when a kernel first posts to a peer)
//! Flush         waits for acknowledged WRITEs to reach memory              (when host collectives return)
//! ```

mod bond;
mod bring_up;
mod connect_message;
mod connections;
mod dc;
mod drain;
mod evidence;
mod flush;
mod host_queue;
mod info;
mod kernel_probe;
mod level;
mod limits;
mod ordering;
mod pe_nics;
mod private_queue;
mod probe;
mod queue_memory;
mod rail;
mod record;
mod salvage;
mod service;
mod shape;
mod state;
mod watch;
mod workers;

pub use bring_up::{RailSetup, open_rail};
pub use connections::Connections;
pub use info::QpInfo;
pub use level::RailLevel;
pub use pe_nics::PeNics;
pub use private_queue::RemoteEnd;
pub use rail::{Rail, RetryPolicy};
pub use service::{Guards, Pace, Service, set_abort_word};
pub use shape::Shape;
pub use state::{Deadlines, Handshakes, StateMap};
