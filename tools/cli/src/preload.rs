//! The library that programs preload to see a software ConnectX as `mlx5_0`.
//!
//! `build.rs` links this program as a shared object, because `cargo install` installs programs but no libraries.
//! All code is in another crate: for a program, the compiler may choose a thread-local storage model that libraries
//! must not use.
#![no_main]

extern crate rushmem_uverbs_preload as _;
