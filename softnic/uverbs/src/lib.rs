//! The software ConnectX as an RDMA device of unmodified programs. Their libibverbs and libmlx5 find `mlx5_0`, open it,
//! create objects, lay out queues in their own memory and ring doorbells.
//!
//! This crate replaces the kernel's RDMA driver. A library that programs preload (`softnic/uverbs/preload`) exports a
//! few functions of the C library; [`interpose`] implements them. An opened device is a memory file, so `mmap` of a
//! doorbell page needs no interposition. This crate parses the ioctls and turns them into PRM commands.
//! [`rushmem_softnic`] executes the commands in a thread of the same process. Its RoCEv2 fabric connects processes.
//!
//! | module | holds |
//! |---|---|
//! | [`interpose`], `process`, `per_process`, `sys` | the C library's functions; descriptors of devices; objects of a process; system calls |
//! | [`sysfs`], [`settings`], [`fault`] | files and settings that a launcher prepares |
//! | `paths`, `live`, `pci`, `topology` | the places of the files, files with contents that change, PCI functions, GPUs in the tree of devices |
//! | `device`, `scheduling` | a device and its adapter; the scheduling of its engine |
//! | `open_device`, `handles`, `pages` | an opened device; its objects by number; pages that programs map |
//! | `attrs`, `user`, `abi`, `errno` | arguments of an ioctl, memory of the caller, structures, error numbers |
//! | `fork` | children that use what their parent has opened |
//! | `cm` | the RDMA connection manager |
//! | `umad` | management datagrams |
//! | `netlink`, `inventory` | RDMA netlink; the objects of all processes, which it lists |
//! | `verbs` | PD, MR, CQ, QP, as in the kernel's commands |
//! | `devx` | commands that pass through: objects, umems, doorbell pages |
//! | `memory` | registered memory |
//! | `cuda`, [`peer_memory`] | memory that the CPU cannot access: of a GPU, and of a client in the process |
//! | `events`, `registry`, `subscriptions` | event files and the targets of events |
//!
//! Programs must keep registered memory mapped until they deregister it. The adapter does not pin pages, so unmapped
//! memory is an error here, while hardware would go on.
//!
//! [`Fault`] lists the calls that a device can refuse on request.
#![deny(unsafe_code)]

mod abi;
mod attrs;
mod cm;
mod command;
#[allow(unsafe_code, reason = "functions of the CUDA driver, and its page-locked memory")]
mod cuda;
mod device;
mod devx;
mod errno;
#[allow(unsafe_code, reason = "a pipe's system calls")]
mod events;
pub mod fault;
mod fork;
#[cfg(any(test, feature = "fuzz"))]
#[doc(hidden)]
pub mod fuzz;
mod handles;
#[allow(unsafe_code, reason = "functions of the C library, with its pointers")]
pub mod interpose;
mod inventory;
mod ioctl;
mod live;
mod log;
#[allow(unsafe_code, reason = "memory of programs and of dma-bufs")]
mod memory;
mod netlink;
mod node;
mod open_device;
mod pages;
mod paths;
mod pci;
#[allow(unsafe_code, reason = "functions of a client, through a table of pointers")]
pub mod peer_memory;
#[allow(unsafe_code, reason = "one object for each process, which is never freed")]
mod per_process;
mod process;
mod registry;
#[allow(unsafe_code, reason = "three system calls about this thread")]
mod scheduling;
pub mod settings;
#[allow(unsafe_code, reason = "one system call")]
mod subscriptions;
#[allow(unsafe_code, reason = "system calls")]
mod sys;
pub mod sysfs;
mod topology;
mod umad;
#[allow(unsafe_code, reason = "system calls that copy")]
mod user;
mod verbs;
mod xrc_domain;

pub use fault::Fault;
pub use settings::{LinkLayer, SettingError, Settings};
