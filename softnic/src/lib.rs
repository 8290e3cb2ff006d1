//! A software ConnectX: an adapter that parses and executes mlx5 work queues without hardware.
//!
//! It is not a mock. A driver creates objects by PRM commands, lays out queues in its own memory, and rings doorbells
//! by 8-byte stores. The adapter fetches the WQEs, and checks keys, ranges, access rights and states as hardware does.
//! It moves the data and writes CQEs with the real syndromes. QPs of one adapter use a loopback path with a single
//! copy. Adapters of different processes and hosts exchange RoCEv2 packets, which Wireshark decodes, through shared
//! memory within a machine and by UDP otherwise.
//!
//! | to | use |
//! |---|---|
//! | start an adapter | [`Nic::start`] with a [`Config`] |
//! | create protection domains, keys, CQs, QPs | [`Nic::open`], then [`Context::command`] with mailboxes of `rushmem_mlx5::prm` |
//! | open it for a PCI function | [`Nic::open_function`] with a [`Bus`] |
//! | register memory | [`Context::umem_reg`] with a [`Memory`] |
//! | ring doorbells | [`Context::alloc_uar`], or [`Context::alloc_uar_in`] for a page in the driver's memory |
//! | receive completion and error events | [`Nic::on_event`], and the CQ arm register |
//! | receive failures of one context | [`Context::failures`] |
//! | exchange management datagrams | [`Nic::send_mad`], [`Nic::on_mad`] |
//! | read the clock of completions | [`Nic::clock`], or [`Context::show_clock`] for a register in memory |
//! | join multicast groups | [`Context::join_group`] |
//! | find mistakes of a driver | [`Nic::violations`] |
//! | inject faults | [`Faults`] |
//! | observe doorbells, WQEs and packets with their times | [`Nic::observe`] with an [`Observer`] |
//!
//! It supports:
//!
//! - services: reliable connections, unreliable connections, extended connections (XRC), dynamic connections,
//!   datagrams;
//! - operations: WRITE, WRITE with immediate, READ, SEND, atomics, masked atomics of 4 and 8 bytes, NOP, DUMP, WAIT,
//!   and changes of memory keys (UMR) by drivers of PCI functions;
//! - inline data, segment lists, fences and solicited events;
//! - CQs: rings and collapsed, CQEs of 64 and 128 bytes, arming and overrun;
//! - loss recovery, and BlueFlame registers as plain doorbells.
//!
//! Unlike with hardware, a driver that polls a CQ in order needs to initialize only its first CQE.
//!
//! Commands that need anything else, such as memory windows or raw packets, are refused by name.
#![deny(unsafe_code)]

mod address;
mod bus;
mod changeable;
mod cmd;
mod config;
mod copy;
mod dma;
mod engine;
mod error;
mod fault_text;
mod frame;
#[cfg(any(test, feature = "fuzz"))]
#[doc(hidden)]
pub mod fuzz;
mod health;
mod limits;
mod link;
mod management;
mod memory;
mod model;
mod neighbors;
mod nic;
mod objects;
mod posted;
mod queue_memory;
mod queues;
mod report;
mod request;
mod rng;
mod roce;
mod route;
mod table;
mod transport;
mod umr;
mod wqe;

pub use address::{Ip, ip_of_gid, lid_of};
pub use bus::{Bus, PagedMemory};
pub use cmd::caps::CLOCK_KHZ;
pub use cmd::refuse::reason;
pub use config::{Config, Faults, Idle, Numbers};
pub use engine::alarm::Waker;
pub use error::Error;
pub use fault_text::FaultError;
pub use health::Health;
pub use limits::MAX_USERS;
pub use management::{MAD, Mad, mad, subnet};
pub use memory::{
    HostBuffer, HostMemory, MappedPages, Memory, MemoryAddr, MemoryError, MemoryKind, PAGE, page_size,
};
pub use model::{FunctionType, LinkSpeed, Model};
pub use nic::{Context, Nic, Uar};
pub use report::{Event, Observation, Observer, RemoteAddress, Rule, Stats, Violation};
pub use rushmem_mlx5::{AtomicOp, Width};
pub use transport::PACKET_TOO_LONG;
