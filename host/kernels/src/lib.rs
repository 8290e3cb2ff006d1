//! Kernels for the operations that the host initiates or queues on a stream.
//!
//! They make the same device calls as a user's kernel, so they post the same WQEs. To keep the PTX small, one kernel
//! serves all types: objects are passed as bytes, and operations as the integers of [`code`].
#![cfg_attr(target_arch = "nvptx64", no_std, feature(abi_ptx))]
#![forbid(unsafe_code)]

mod atomics;
mod clock;
pub mod code;
mod collective;
mod order;
mod probe;
mod rma;
mod wait;

pub use atomics::rushmem_atomic;
pub use clock::rushmem_clock;
pub use collective::{
    rushmem_collective, rushmem_grid_collective, rushmem_small_collective, rushmem_small_grid_collective,
};
pub use order::rushmem_order;
pub use probe::rushmem_probe;
pub use rma::{rushmem_p, rushmem_put_signal, rushmem_strided, rushmem_transfer};
pub use wait::{rushmem_test, rushmem_wait, rushmem_wait_set};
