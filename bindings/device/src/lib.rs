//! The device API for kernels in other languages: `extern "C"` functions over [`rushmem_device`].
//!
//! Every function takes the address of the PE's context first, which the host library returns and which stays the same
//! until the PE ends. Nothing has to be initialized in a module. The source of each family is an ordinary function;
//! `#[export]` adds the exported ones, one for each scope:
//!
//! | suffix | callers | arguments |
//! |---|---|---|
//! | none | one thread | may differ between threads |
//! | `_warp` | all threads of a warp | are the same in all of them |
//! | `_block` | all threads of a block | are the same in all of them |
//!
//! An operation on a single word, such as an atomic, is executed once per call: by the first thread of the warp or
//! block, which shares the result with the others.
//!
//! # Addresses
//!
//! Symmetric memory is passed by its address on the calling PE, as in OpenSHMEM. Local buffers must be symmetric or
//! registered too. Any other address is an error.
//!
//! # Errors
//!
//! A function that returns a status returns 0 or an [`Error`](rushmem_device::Error) code, the same in all threads of
//! the call. One that returns a value returns 0 if it fails. Each failure leaves an error record with the name of the
//! function, which the host reports. If host and kernel come from different builds, every call fails with
//! [`Error::Layout`](rushmem_device::Error::Layout) and accesses nothing.
//!
//! `cargo run -p rushmem-ptx -- library DIR` builds LLVM bitcode and relocatable PTX of this crate.
#![cfg_attr(target_arch = "nvptx64", no_std)]
#![allow(clippy::missing_safety_doc, reason = "`call` states the contract of all exported functions")]

mod amo;
mod call;
mod coll;
mod order;
mod pe;
mod rma;
mod signal;
mod wait;
