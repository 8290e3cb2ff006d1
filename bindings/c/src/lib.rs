//! The host API of Rushmem for C and C++: `include/rushmem.h`, which is generated from this crate.
//!
//! The modules of [`api`] contain the exported functions, one module per section of the header. They check their
//! arguments and call `rushmem`. `types` has the constants and types of the header.
//!
//! A `rushmem_pe *` is a ticket, not an address: the functions look it up and never dereference it. So a handle that
//! has been finalized is an error rather than undefined behaviour. The same holds for addresses of symmetric memory,
//! which `addresses` translates to handles. All other pointers are the caller's responsibility: each is null, or valid
//! for the accesses that the function's documentation describes.
#![deny(unsafe_code)]

mod addresses;
mod caller_memory;
mod error;
mod handle;
mod operation;
mod pointers;
mod streams;

pub mod api;
pub mod types;
