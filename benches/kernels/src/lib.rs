//! The kernels of `rushmem perf`. Each performs one operation `rounds` times, and times it with the device's clock.
//!
//! Where only two PEs take part, PE 0 is the initiator and PE 1 the target. `spans` receives the times of each block;
//! see `Span`.
#![cfg_attr(target_arch = "nvptx64", no_std, feature(abi_ptx))]
#![forbid(unsafe_code)]

mod colls;
mod contact;
mod data;
mod post;
mod rma;
mod signals;
mod span;
mod words;

pub use colls::{Exchange, exchange, meet, meet_checked, meet_team, sum};
pub use contact::first_contact;
pub use data::{check, check_sums, fill, fill_terms, pattern};
pub use post::{post_exclusive, post_per_block, post_shared};
pub use rma::{get, put, put_quiet};

pub use signals::{ping_pong, put_signal_ping_pong};
pub use span::stamp;
pub use words::{add, compare_swap, fetch_add, g, p};
