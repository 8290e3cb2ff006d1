//! mlx5 wire formats: everything a ConnectX reads and writes, as Rust values and as bytes.
//!
//! | module | format | idiom |
//! |---|---|---|
//! | [`ctrl`], [`av`], [`seg`] | the 16-byte segments of a send work-queue entry | Pod structs over [`be`] words |
//! | [`wqe`] | a whole work-queue entry: [`Wqe`] is its contents, [`Wqebb`] its bytes; [`View`] parses any entry | emit, parse |
//! | [`cqe`] | completion-queue entry, error entry, owner bit, syndromes | Pod structs |
//! | [`atomic`] | atomics and their effect on a word | values |
//! | [`doorbell`] | doorbell records, the 8-byte UAR values, register offsets | words |
//! | [`prm`] | command mailboxes: how NIC objects are created, modified and queried | tables of bit fields |
//! | [`dump`] | any entry on one line | `core::fmt` |
//!
//! Three rules apply throughout:
//!
//! - A number in memory order has its own type ([`be`], [`Segment`], [`cqe::CqeWord`]). Plain integers are in host
//!   order.
//! - An enumerated value from the wire is a newtype with named constants ([`Opcode`], [`cqe::Syndrome`]): unknown
//!   values are preserved and printed.
//! - No bytes cause a panic, whatever they are. Constructors mask each value to the width of its field.
//!
//! The crate does no I/O, does not allocate and contains no `unsafe` code. It compiles for `nvptx64-nvidia-cuda`. **Not
//! covered** are Ethernet segments, UMR and signature entries, and compressed CQEs.
#![no_std]
#![forbid(unsafe_code)]

pub mod atomic;
pub mod av;
pub mod be;
pub mod cqe;
pub mod ctrl;
pub mod doorbell;
pub mod dump;
mod hex;
pub mod prm;
pub mod seg;
pub mod umr;
pub mod wqe;

pub use atomic::{AtomicOp, Width};
pub use cqe::{Cqe, CqeOpcode, CqeWord, ErrCqe, Syndrome};
pub use ctrl::{CtrlSeg, Flags, Opcode};
pub use doorbell::Doorbell;
pub use seg::{Segment, Wqebb};
pub use wqe::{Emitted, Inline, Malformed, View, Wqe};

#[cfg(test)]
extern crate std;
#[cfg(test)]
mod testing;
