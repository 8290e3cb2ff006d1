//! The service kernel: one block on a GPU that accesses GPU memory for the software ConnectX.
//!
//! The CPU cannot access GPU memory, and a copy by the driver takes too long for a single word. Instead, the host posts
//! requests to a [`Ring`] in page-locked host memory. The kernel polls the ring and executes the requests in order.
//!
//! - **Order.** Before a request starts, all effects of the previous one are visible to the whole system. The host may
//!   thus post data and then its flag.
//! - **Atomics** use the GPU's own atomic instructions at system scope, so they are atomic with respect to kernels.
//! - **Exit.** The kernel exits when it has been idle for a while, or when the host asks. For each request, the
//!   [`Handshake`] decides whether the kernel still executes it or returns it to the host.
//!
//! The same source runs natively, with threads in the role of the GPU: see the tests.
#![cfg_attr(target_arch = "nvptx64", no_std)]
#![cfg_attr(target_arch = "nvptx64", feature(abi_ptx, asm_experimental_arch))]
#![deny(unsafe_code)]

mod atomic;
#[cfg(not(target_arch = "nvptx64"))]
mod client;
mod copy;
mod handshake;
mod kernel;
mod request;
mod ring;

#[cfg(not(target_arch = "nvptx64"))]
pub use client::{Client, Left};
pub use handshake::{Handshake, State, announce, leave};
#[cfg(target_arch = "nvptx64")]
pub use kernel::rushmem_service;
pub use kernel::{Limits, THREADS, serve};
#[cfg(not(target_arch = "nvptx64"))]
pub use request::Operation;
pub use request::{INLINE, Request};
pub use ring::{Ring, SLOTS};
