//! Builds kernels into checked PTX.
//!
//! An application calls it from its `build.rs`:
//!
//! ```no_run
//! rushmem_ptx::build("src/kernels.rs");
//! ```
//!
//! The build writes the PTX of all kernels in the module to `$OUT_DIR/kernels.ptx`, and `rushmem::ptx!("kernels")` embeds
//! it. The application has the same module natively, by `mod kernels;` in its root.
//!
//! # Modules and crates
//!
//! A module is compiled for GPUs as a `no_std` crate. It consists of its file and of the folder with its name, such as
//! `src/kernels/`. So it refers to itself by `self`, `super` and `crate::kernels`, and to no other module of the
//! application. Of the application's dependencies, it has `rushmem-device` and those that [`Builder::dependency`] names. The
//! application's features are off there. A file elsewhere that the module includes, as by `include!` or `#[path]`, is compiled,
//! but a change of it alone does not compile the kernels again.
//!
//! Kernels that several packages share are a crate, and `build` gets its folder: `rushmem_ptx::build("kernels")`. The
//! crate begins with `#![cfg_attr(target_arch = "nvptx64", no_std, feature(abi_ptx))]`. Its PTX has the name of the crate,
//! with `_` for `-`.
//!
//! # Compiler
//!
//! Kernels need a compiler with the standard library's source. The build uses the first of these:
//!
//! 1. `RUSHMEM_PTX_RUSTC`, the path of a `rustc`, if set;
//! 2. a nightly of rustup with `rust-src`: `rustup toolchain install nightly --component rust-src`;
//! 3. Debian's compiler: `apt-get install rustc-web rust-web-src`;
//! 4. another toolchain of rustup with `rust-src`, such as stable: `rustup component add rust-src`.
//!
//! The `cargo` that runs `build.rs` drives it, or the one at `RUSHMEM_PTX_CARGO`. The build needs no more network than
//! the host's build of the same crates. It compiles `core` from the installed source, once for each compiler.
//!
//! PTX can also be committed next to the kernels ([`Builder::fallback`]). If its source has not changed since, the
//! build uses it. A fresh clone then builds quickly and without that compiler. `RUSHMEM_PTX` overrides this choice,
//! except for [bundled](Builder::bundled) PTX that matches the source:
//!
//! | value | effect |
//! |---|---|
//! | `auto` (default) | uses committed PTX that matches the source, and compiles other PTX unless it is optional |
//! | `all` | the same, with optional PTX |
//! | `build` | compiles all PTX |
//! | `committed` | never compiles; PTX that is missing or stale is an error unless it is optional |
//! | `none` | writes an empty file; the kernels run natively only |
//!
//! # GPUs
//!
//! PTX is for Turing (`sm_75`) and newer, or for the GPUs that [`Builder::arch`] names. Turing, Ampere and Ada have
//! two-way fences only. Hopper also has one-way fences, which are faster: an acquire fence costs one instruction there.
//! So the build writes both on one line, and the second one is a comment:
//!
//! ```text
//! fence.acq_rel.sys; // sm_90: fence.acquire.sys;
//! ```
//!
//! The runtime chooses when it loads the PTX, by the GPU's compute capability.
//!
//! # Machine code
//!
//! The driver compiles PTX when a program first loads it, which may take seconds, and caches the result.
//! `RUSHMEM_PTX_CUBIN=sm_90` also embeds machine code for these GPUs. Other GPUs get the PTX. `ptxas` makes the machine
//! code: the one at `RUSHMEM_PTXAS`, of a CUDA toolkit, or of the Python package `nvidia-cuda-nvcc`.
//! `RUSHMEM_PTX_CUBIN=sm_80:sm_90` makes it of the text for sm_80, to test that text on the newer GPUs.
//!
//! # Timeline
//!
//! `RUSHMEM_PTX_TRACE=1` compiles kernels that write their calls to a timeline (`RUSHMEM_TRACE` of a job). Other kernels have
//! no instruction for it. Bundled PTX stays as it is.
//!
//! # DC transport
//!
//! `RUSHMEM_PTX_DC=1` compiles kernels that can post to DC initiators (`RUSHMEM_DC_ABOVE` of a job), bundled ones too. Other
//! kernels have no instruction for it: its paths would take registers of all kernels.
//!
//! # Checks
//!
//! The build fails for atomics without scope or ordering, panic paths, and calls of functions that no GPU has.
//! [`inspect`] has all checks.

mod bounds;
mod builder;
mod canonical;
mod compile;
mod decide;
mod error;
mod files;
mod header;
mod index;
pub mod inspect;
mod lock;
mod manifest;
mod module;
pub mod ptxas;
mod source;
mod sysroot;
mod target;
mod toolchain;

pub use builder::{Builder, Built, Origin, build};
pub use compile::{Artifact, Extras, compile};
pub use decide::Mode;
pub use error::{Error, Result};
pub use header::Header;
pub use source::Source;
pub use target::{DEFAULT_TARGET, Target};
pub use toolchain::{Search, Toolchain, Version};
