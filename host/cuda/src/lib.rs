//! A thin layer over the CUDA driver API. The driver is loaded at run time.
//!
//! Building needs no part of CUDA. On a machine without a driver, [`Cuda::load`] returns an error that names the
//! libraries that it tried.
//!
//! Every object keeps its [`Device`] alive, which holds the primary context of one GPU. Every call makes that context
//! current while it runs, so any thread may use any object.
//!
//! # Kernels that wait
//!
//! The kernels of this runtime wait for other kernels and for the software ConnectX. This imposes three rules:
//!
//! - **Blocking calls.** Some driver calls block until all running kernels have completed: calls that allocate,
//!   register or free memory, load a module, or create a stream when the pool is empty. Such a call passes the [driver
//!   gate](driver_gate), which admits it while no kernel runs. Copies and events on a [`Stream`] do not block. Neither
//!   do launches, since a [`Function`] reserves its local memory when it is loaded.
//! - **Resident blocks.** All blocks of a launch must be resident together: see [`Function::check_resident`].
//! - **Hardware queues.** Two streams must not share a hardware queue if a kernel in one waits for a kernel in the
//!   other. The driver has 32 hardware queues. Launches are serialized, which gives up to 32 streams different queues.
#![deny(unsafe_code)]

mod copy;
mod cufile;
mod device;
pub mod driver_gate;
mod environment;
mod error;
mod export;
mod graph;
mod load;
mod memory;
mod module;
mod nic;
mod peer_buffer;
mod ptx;
mod shared;
mod slice;
mod stream;
mod stream_pool;

pub use cufile::CuFile;
pub use device::{Attributes, Device};
pub use environment::environment;
pub use error::{Capability, Error};
pub use export::DmaBufMapping;
pub use graph::{GraphExec, GraphNode};
pub use load::Cuda;
pub use memory::{DeviceBuffer, HostKind, KnownMemory, PinnedBuffer, RegisteredHost};
pub use module::{Function, FunctionAttributes, Module};
pub use nic::{Bar, CopyEngine, CudaMemory};
pub use peer_buffer::{ExportedBuffer, IPC_HANDLE_BYTES, PeerBuffer};
pub use ptx::{Image, PtxKernel, ptx_kernels};
pub use shared::{PeerMappings, SharedMemory};
pub use slice::settled_address;
pub use stream::{Event, Stream};
