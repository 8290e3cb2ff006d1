//! GPU-initiated networking: runtime, symmetric heap, NIC bring-up and kernel launch.
//!
//! An application is a function of a [`Pe`]; a [`Job`] runs it on every PE. Kernels are written with
//! [`rushmem_device`] and launched with [`Pe::launch`].

#![deny(unsafe_code)]

mod buffer;
mod build;
mod comm;
mod contexts;
mod error;
mod exit;
pub mod inspect;
mod job;
mod launch;
mod launch_queue;
mod life;
mod log;
mod machine;
mod memory;
mod modules;
mod nic_error;
mod nics;
mod operations;
mod p2p;
mod pe;
mod provider;
mod ptx;
mod queues;
mod report;
mod status;
mod stream;
mod survey;
mod teams;

pub use rushmem_bootstrap as bootstrap;
pub use rushmem_config as config;
pub use rushmem_cuda as cuda;
pub use rushmem_native as native;

pub use buffer::{Buffer, GpuBuffer, HostRange, MemoryLocation, Pages};
pub use comm::{Comm, CommRequirements};
pub use error::{Error, Result};
pub use job::{AppError, Job};
pub use launch::Launch;
pub use life::{THREAD_LEVEL, ThreadLevel, is_initialized};
pub use log::init_log;
pub use machine::Grid;
pub use nic_error::NicError;
#[cfg(feature = "rdma")]
pub use nic_error::RdmaError;
pub use operations::{Operations, WaitSet};
pub use p2p::PeerRoute;
pub use pe::{Hints, Kernels, Pe, RegisteredBuffer, UnregisterError, Window};
pub use ptx::Ptx;
pub use queues::QpInfo;
pub use report::DeviceError;
pub use rushmem_device::info;
pub use status::{Status, meaning_of};
pub use stream::{Event, Graph, Stream};
pub use survey::{Choice, FoundGpu, Survey, survey};
pub use teams::TeamConfig;

/// The imports of an application.
///
/// [`Error`] and [`Result`] are not among them, because applications have their own.
///
/// ```no_run
/// use rushmem::prelude::*;
///
/// fn main() -> Result<(), rushmem::Error> {
///     Job::new()?.run(|pe| {
///         let greetings: SymSlice<u32> = pe.alloc(1)?;
///         pe.write(greetings, &[pe.my_pe()])?;
///         Ok::<_, rushmem::Error>(())
///     })?;
///     Ok(())
/// }
/// ```
pub mod prelude {
    pub use crate::{Grid, Job, Launch, Operations, Pe, Stream, TeamConfig};
    pub use rushmem_device::kernel::KernelArg;
    pub use rushmem_device::{
        Bf16, Cmp, Context, Exclusive, F16, Local, PerBlock, PerGpu, Pod, Reduce, Shadowed, Signal, SignalOp,
        Strided, Sym, SymSlice, Team, Zeroable,
    };
}
