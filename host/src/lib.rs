//! GPU-initiated networking: runtime, symmetric heap, NIC bring-up and kernel launch.
//!
//! An application is a function of a [`Pe`]; a [`Job`] runs it on every PE. Kernels are written with
//! [`rushmem_device`] and launched with [`Pe::launch`].

mod build;
mod comm;
mod contexts;
mod direct;
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
mod nics;
mod operations;
mod pe;
mod provider;
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

pub use comm::{Comm, CommRequirements};
pub use direct::Path;
pub use error::{Error, Result};
pub use job::{AppError, Job, Ptx};
pub use launch::Launch;
pub use life::{THREAD_LEVEL, ThreadLevel, is_initialized};
pub use log::init_log;
pub use machine::Grid;
pub use memory::{Buffer, GpuBuffer, HostRange, Pages, Place};
pub use modules::Kernels;
pub use operations::{Operations, WaitSet};
pub use pe::{Hints, Pe, RegisteredBuffer, UnregisterError, Window};
pub use provider::Error as NicError;
#[cfg(feature = "rdma")]
pub use provider::rdma::RdmaError;
pub use queues::QpInfo;
pub use report::DeviceError;
pub use rushmem_device::info;
pub use status::{Status, meaning_of};
pub use stream::{Event, Graph, Stream};
pub use survey::{Choice, FoundGpu, Survey, survey};
pub use teams::TeamConfig;
