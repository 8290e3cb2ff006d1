//! The software ConnectX as an RDMA device of programs that know nothing of it: unmodified libibverbs and libmlx5 find
//! `mlx5_0`, open it, make their objects, lay out queues in their own memory and ring doorbells.
//!
//! This crate stands where the kernel does. A library that programs preload (`softnic/uverbs/preload`) exports a few of
//! the C library's functions; [`interpose`] has their bodies. An opened device is a memory file, so that a program's
//! `mmap` of a doorbell page works by itself; its ioctls are parsed here and become PRM commands that
//! [`rushmem_softnic`] executes in a thread of the same process. Processes meet over its RoCEv2 fabric.
//!
//! | module | holds |
//! |---|---|
//! | [`interpose`], `process`, `sys` | the C library's functions; which descriptors are devices; real system calls |
//! | [`sysfs`], [`settings`], [`fault`] | what a launcher prepares |
//! | `device`, `priority` | a device and its adapter; how its engine gets the processor |
//! | `opened`, `handles`, `pages` | an opened device; its objects by number; what programs map |
//! | `attrs`, `user`, `abi`, `errno` | arguments of an ioctl, memory of the caller, structures, error numbers |
//! | `verbs` | PD, MR, CQ, QP, as the kernel's commands have them |
//! | `devx` | commands that pass through: objects, umems, doorbell pages |
//! | `memory`, [`peer_memory`] | memory that is registered, and memory that the CPU cannot touch |
//! | `events`, `registry`, `subscriptions` | event files, and whom an event concerns |
//!
//! Programs keep what they register mapped until they give it back: the adapter does not pin pages, so that it would
//! run into a hole where hardware would go on.
//!
//! What a device can be made to refuse is listed at [`Fault`].
#![deny(unsafe_code)]

mod abi;
mod attrs;
mod device;
mod devx;
mod errno;
#[allow(unsafe_code, reason = "a pipe's system calls")]
mod events;
pub mod fault;
#[cfg(any(test, feature = "fuzz"))]
#[doc(hidden)]
pub mod fuzz;
mod handles;
#[allow(unsafe_code, reason = "functions of the C library, with its pointers")]
pub mod interpose;
mod log;
#[allow(unsafe_code, reason = "memory of programs and of dma-bufs")]
mod memory;
mod opened;
mod pages;
#[allow(unsafe_code, reason = "functions of a client, through a table of pointers")]
pub mod peer_memory;
#[allow(unsafe_code, reason = "three system calls about this thread")]
mod priority;
#[allow(unsafe_code, reason = "one object for each process, which outlives everything")]
mod process;
mod registry;
pub mod settings;
#[allow(unsafe_code, reason = "one system call")]
mod subscriptions;
#[allow(unsafe_code, reason = "system calls")]
mod sys;
pub mod sysfs;
#[allow(unsafe_code, reason = "two system calls that copy")]
mod user;
mod verbs;

pub use fault::Fault;
pub use settings::{Link, SettingError, Settings};
