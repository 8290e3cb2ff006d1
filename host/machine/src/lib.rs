//! Where kernels run: on GPUs or on the native emulator, each as a [`Machine`]. Also what the host does while they run.
//!
//! - Memory: [`Region`], and memory of the application that a job can register ([`Buffer`], [`dlpack`]).
//! - Launches: [`KernelLaunch`], [`KernelStream`], [`Module`].
//! - Supervision: the [`Watchdog`] for kernels that run for too long, the report of the [waits] of a job, lines that
//!   kernels print ([`Printer`]), and process termination ([`end_job`]).
//!
//! `rushmem` re-exports what applications need. The rest is internal to the crates of the runtime and may change at any
//! time.
#![deny(unsafe_code)]

mod buffer;
pub mod dlpack;
mod exit;
mod machine;
mod print;
pub mod waits;
mod watchdog;

pub use buffer::{Buffer, GpuBuffer, HostRange, MemoryLocation, Pages};
pub use exit::{end_job, end_process, end_with};
#[cfg(any(test, feature = "limited"))]
pub use machine::LimitedMachine;
pub use machine::{
    Code, Event, ExecGraph, ExportedMemory, Gpu, HEAP_ALIGN, HeapWindow, KernelLaunch, KernelStream,
    LaunchConfig, Layout, Machine, Mapping, Module, Native, PageKind, PeerMemory, Queued, Region, RuntimePtx,
    available_memory, parse_available,
};
pub use print::{KernelLine, Output, Printer};
pub use watchdog::{Alarm, LaunchSite, Launched, Limits, Run, Watchdog, kernel_limit};
