//! The device API for kernels in other languages: `extern "C"` functions over [`rushmem_device`].
//!
//! Every function takes the address of the PE's context first, which the host library returns and which stays the same
//! until the PE shuts down. Nothing has to be initialized in a module. The source of each family is an ordinary function;
//! `#[export]` adds the exported ones, one for each scope:
//!
//! | suffix | callers | arguments |
//! |---|---|---|
//! | none | one thread | may differ between threads |
//! | `_warp` | all threads of a warp | are the same in all of them |
//! | `_block` | all threads of a block | are the same in all of them |
//!
//! An operation on a single word, such as an atomic, is executed once per call: by the first thread of the warp or
//! block, after a barrier, and the others receive its result. Puts and gets begin with a barrier as well. Waits do not.
//!
//! # Addresses
//!
//! Symmetric memory is passed by its address on the calling PE, as in OpenSHMEM. The source of a put and the destination
//! of a get may be in a registered buffer instead. Any other address is an error.
//!
//! # Errors
//!
//! A function that returns a status returns 0 or an [`Error`](rushmem_device::Error) code, the same in all threads of
//! the call. One that returns a value returns 0 if it fails. The host reports the first failures of a PE with the name of
//! the function. If host and kernel come from different builds, every call fails with
//! [`Error::Layout`](rushmem_device::Error::Layout) and accesses nothing.
//!
//! `cargo run -p rushmem-ptx -- library DIR` compiles this crate to LLVM assembly and PTX.
#![cfg_attr(target_arch = "nvptx64", no_std, feature(abi_ptx, asm_experimental_arch))]
#![allow(clippy::missing_safety_doc, reason = "`call` states the contract of all exported functions")]

mod amo;
mod call;
mod coll;
#[cfg(all(feature = "kernels", target_arch = "nvptx64"))]
mod kernels;
mod order;
mod pe;
mod rma;
mod signal;
mod wait;

// Dynamic shared memory comes after the static words of `rushmem-device`, at the largest alignment that a kernel declares.
// Triton declares 16 bytes, but needs 1024 for swizzled tiles of tensor cores and for TMA.
#[cfg(target_arch = "nvptx64")]
core::arch::global_asm!(".extern .shared .align 1024 .b8 rushmem_dynamic[];");
