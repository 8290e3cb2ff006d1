//! A software ConnectX: an adapter that parses and executes mlx5 work queues where there is no such hardware.
//!
//! It is not a mock. A driver makes its objects by PRM commands, lays queues out in its own memory and rings doorbells by
//! storing eight bytes; the adapter fetches the entries, checks keys, ranges, rights and states as hardware does, moves
//! the bytes, and writes completion entries with the real syndromes. QPs of one adapter meet over a loopback path with
//! a single copy; adapters of different processes and hosts speak RoCEv2 packets in UDP, which Wireshark decodes.
//!
//! | to | use |
//! |---|---|
//! | start an adapter | [`Nic::start`] with a [`Config`] |
//! | make protection domains, keys, CQs, QPs | [`Nic::open`], then [`Context::command`] with mailboxes of `rushmem_mlx5::prm` |
//! | hand over memory | [`Context::umem_reg`] with a [`Memory`] |
//! | ring doorbells | [`Context::alloc_uar`], or in memory of the driver's own [`Context::alloc_uar_in`] |
//! | be told of completions and failures | [`Nic::on_event`], and the CQ arm register |
//! | learn what a driver did wrong | [`Nic::violations`] |
//! | make it misbehave | [`Faults`] |
//!
//! What it has: reliable connections, unreliable ones, datagrams; WRITE, WRITE with immediate, READ, SEND, fetch and add,
//! compare and swap, the masked atomics of 4 and 8 bytes, NOP, DUMP, WAIT; inline data and lists of segments; fences,
//! solicited bits; CQs as rings and collapsed, with entries of 64 and 128 bytes, armed, overrun; loss recovery.
//! BlueFlame registers are taken as doorbells. What it does not have is refused by name: extended and dynamic
//! connections, multicast, shared receive queues, memory windows, indirect keys.
#![deny(unsafe_code)]

mod cmd;
mod config;
#[allow(unsafe_code, reason = "copies between raw pointers, in atomic pieces")]
mod copy;
mod core;
mod cq;
mod datagram;
#[allow(unsafe_code, reason = "copies between checked spans of registered memory")]
mod dma;
mod doorbells;
#[allow(unsafe_code, reason = "one prctl on the engine's own thread")]
mod engine;
mod event;
mod fault_injection;
mod fault_text;
mod flush;
#[cfg(any(test, feature = "fuzz"))]
#[doc(hidden)]
pub mod fuzz;
mod link;
mod loopback;
#[allow(unsafe_code, reason = "shared memory is accessed through raw pointers, with atomics")]
mod memory;
#[allow(unsafe_code, reason = "a doorbell page's address is handed out")]
mod nic;
mod objects;
mod qp;
#[allow(unsafe_code, reason = "queues are shared with their driver through raw pointers, with atomics")]
mod queue_memory;
mod rng;
mod roce;
mod route;
mod sq;
mod stats;
mod table;
mod target;
mod uar;
mod violation;
mod wire;
mod wqe;
mod wqe_log;

pub use cmd::refuse::reason;
pub use config::{Config, Faults, Idle, Ip};
pub use event::Event;
pub use fault_text::FaultError;
pub use memory::{AtomicOp, HostBuffer, HostMemory, Memory, MemoryError, PAGE, Width};
pub use nic::{Context, Error, Nic, Uar};
pub use route::ip_of_gid;
pub use stats::Stats;
pub use violation::{Rule, Violation};
