//! The extension module `rushmem._rushmem`: the runtime as Python classes.
//!
//! The package in `python/rushmem` adds what needs no Rust: finding the other processes through torch.distributed, the
//! exception classes and the command line. `session` holds the running PE, `runtime` and `team` have the methods
//! that users call, and `array` describes symmetric memory. Every call that can wait releases the GIL (`wait`).

#![deny(unsafe_code)]

mod allocation;
mod array;
mod cuda_interface;
mod dlpack;
mod dtype;
mod error;
mod foreign;
mod operation;
mod runtime;
mod session;
mod start;
mod storage;
mod stream;
mod team;
mod wait;
mod window;

use pyo3::prelude::*;

/// The extension module.
#[pymodule]
mod _rushmem {
    #[pymodule_export]
    use crate::array::Array;
    #[pymodule_export]
    use crate::runtime::Runtime;
    #[pymodule_export]
    use crate::start::{start, unique_id};
    #[pymodule_export]
    use crate::storage::checkpoint_parts;
    #[pymodule_export]
    use crate::team::Team;
    #[pymodule_export]
    use crate::window::Window;
}
