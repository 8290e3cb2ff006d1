//! GPU-initiated networking: runtime, symmetric heap, NIC bring-up and kernel launch.
//!
//! An application is a function of a [`Pe`]; a [`Job`] runs it on every PE. Kernels are written with
//! [`rushmem_device`] and launched with [`Pe::launch`].

pub mod bootstrap;
mod build;
pub mod config;
pub mod cuda;
mod direct;
mod error;
mod heap;
mod initiated;
mod job;
mod launch;
mod machine;
pub mod native;
mod nics;
mod pe;
mod provider;
mod queues;
mod report;
mod stream;
mod survey;
mod teams;
mod work;

pub use direct::Path;
pub use error::{Error, Result};
pub use initiated::Words;
pub use job::{AppError, Job, Ptx};
pub use launch::Launch;
pub use machine::Grid;
pub use pe::Pe;
pub use provider::Error as NicError;
#[cfg(feature = "rdma")]
pub use provider::rdma::RdmaError;
pub use report::DeviceError;
pub use stream::{Graph, Mark as StreamEvent, Stream};
pub use survey::{Choice, FoundGpu, Survey, survey};
pub use teams::TeamConfig;
