//! Builds a kernel crate into checked PTX.
//!
//! An application calls it in the `main` of its `build.rs`:
//!
//! ```no_run
//! rushmem_ptx::build("kernels");
//! ```
//!
//! `kernels` is the folder of the kernel crate, seen from the application's. Afterwards `$OUT_DIR/<crate>.ptx` holds the
//! PTX of all its kernels, and `rushmem::ptx!("<crate>")` embeds it.
//!
//! # What is needed
//!
//! Kernels need a compiler with the standard library's source. It is looked for in this order:
//!
//! 1. `RUSHMEM_PTX_RUSTC`, the path of a `rustc`, if set;
//! 2. a nightly of rustup's that has `rust-src`: `rustup toolchain install nightly --component rust-src`;
//! 3. Debian's: `apt-get install rustc-web rust-web-src`.
//!
//! The `cargo` that drives it is the one that runs `build.rs`, or `RUSHMEM_PTX_CARGO`. No network is needed beyond what the
//! host's build of the same crates needs: `core` is compiled from the installed source, once for each compiler.
//!
//! PTX can also be committed next to the kernels ([`Builder::fallback`]). Committed PTX that was made from the
//! source as it is now is used at once, so that a fresh clone builds quickly and without that compiler.
//! `RUSHMEM_PTX=build` compiles all the same, `RUSHMEM_PTX=committed` never does, `RUSHMEM_PTX=none` makes an empty file, with which
//! kernels run natively only, and `RUSHMEM_PTX=auto` is the default.
//!
//! # Machine code
//!
//! A driver compiles PTX when a program first loads it, which may take seconds, and keeps the result for the next time.
//! `RUSHMEM_PTX_CUBIN=sm_90` embeds machine code of those GPUs too, made by `ptxas` (`RUSHMEM_PTXAS`, a CUDA toolkit, or the
//! Python package `nvidia-cuda-nvcc`); other GPUs get the PTX.
//!
//! # What is checked
//!
//! Everything in [`inspect`]: atomics without scope or ordering, panic paths and calls of functions that no GPU has
//! are errors of the build.

mod bounds;
mod builder;
mod canonical;
mod compile;
mod decide;
mod error;
mod files;
mod header;
pub mod inspect;
mod lock;
mod manifest;
pub mod ptxas;
mod source;
mod sysroot;
mod target;
mod toolchain;

pub use builder::{Builder, Built, Origin, build};
pub use compile::{Artifact, compile};
pub use decide::Mode;
pub use error::{Error, Result};
pub use header::Header;
pub use source::Source;
pub use target::{DEFAULT_TARGET, Target};
pub use toolchain::{Search, Toolchain, Version};
