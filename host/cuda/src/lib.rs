//! What the runtime needs of CUDA: a thin layer over the driver API, which is loaded when it is first needed.
//!
//! Nothing of CUDA is needed to build, and on a machine without a driver [`Cuda::load`] says what it tried. Every
//! object keeps its [`Device`] (the primary context of one GPU) alive, and every call makes that context current for
//! its own duration, so any thread may use any object.
//!
//! Kernels that wait for each other or for the software NIC put demands on their surroundings:
//!
//! - Nothing may wait for a running kernel that the kernel itself waits for. The driver does so when memory is
//!   allocated, registered or freed, when a module is loaded, and at times when a stream is made or destroyed. Do all of
//!   that before kernels are launched, and undo it after they have ended. Copies, launches and events on a [`Stream`] are
//!   free of it, and so is taking one from its [`Device`]'s reserve. A launch is, since a [`Function`] has its local memory
//!   when it is made.
//! - All blocks of a launch must be resident at once: see [`Function::check_resident`].
//! - Streams whose kernels wait for each other must not share a queue of the hardware. Launches go in turn
//!   (`Stream::in_turn`), so that of 32 streams no two do.
#![deny(unsafe_code)]

mod device;
pub mod driver_gate;
mod error;
mod export;
mod graph;
mod load;
mod memory;
mod module;
mod nic;
mod reserve;
mod shared;
mod stream;

pub use device::{Attributes, Device};
pub use error::Error;
pub use graph::{GraphExec, Node};
pub use load::{Cuda, environment};
pub use memory::{DeviceBuffer, HostKind, PinnedBuffer, RegisteredHost};
pub use module::{Function, FunctionAttributes, Module, kernels};
pub use nic::{CopyEngine, CudaMemory};
pub use shared::{SharedMemory, SharedWindow};
pub use stream::{Event, Stream};
