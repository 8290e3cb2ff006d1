//! The library that programs preload to find a software ConnectX as `mlx5_0`.
//!
//! `build.rs` has this program linked as a shared object, because `cargo install` installs programs and no libraries.
//! All code is in another crate: the compiler may use the thread-local storage of a program here.
#![no_main]

extern crate rushmem_uverbs_preload as _;
