//! Access of the software ConnectX to GPU memory.
//!
//! The CPU cannot access GPU memory directly. Instead, there are two ways:
//!
//! - **The service kernel** (`service`) executes small accesses and all copies within a GPU, each in microseconds. It
//!   runs only next to kernels of the application, and only if it does not occupy room that they need.
//! - **The copy engines** of the GPU move large messages, and everything else while no service kernel runs. The bytes
//!   pass through a page-locked staging buffer.
//!
//! Neither way waits for a kernel of the application, since that kernel may wait for the access.

mod engine;
mod memory;
mod service;
mod transfer;

pub use engine::CopyEngine;
pub use memory::CudaMemory;
pub use service::Bar;
