//! Builds kernels into checked PTX.
//!
//! An application calls it from its `build.rs`:
//!
//! ```no_run
//! rushmem_ptx::build("src/kernels.rs");
//! ```
//!
//! The build writes the PTX of all kernels in the module to `$OUT_DIR/kernels.ptx`, which `rushmem::ptx!("kernels")`
//! embeds. The application includes the same module natively, by `mod kernels;` in its root.
//!
//! # Modules and crates
//!
//! For GPUs, a module is compiled as a `no_std` crate. It consists of its file and the folder of the same name, such as
//! `src/kernels/`. It can refer to itself as `self`, `super` and `crate::kernels`, but to no other module of the
//! application. Of the application's dependencies, it can use `rushmem-device` and those named by
//! [`Builder::dependency`]. The application's features are off. A file elsewhere that the module includes, for example
//! by `include!` or `#[path]`, is compiled, but changing it alone does not recompile the kernels.
//!
//! Kernels that several packages share go into a crate, whose folder is passed to `build`:
//! `rushmem_ptx::build("kernels")`. The crate starts with `#![cfg_attr(target_arch = "nvptx64", no_std,
//! feature(abi_ptx))]`. Its PTX is named like the crate, with `_` for `-`.
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
//! It is driven by the `cargo` that runs `build.rs`, or by the one at `RUSHMEM_PTX_CARGO`. The build needs no more
//! network access than the host's build of the same crates. It compiles `core` from the installed source, once for each
//! compiler.
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
//! PTX targets Turing (`sm_75`) and newer GPUs, unless [`Builder::arch`] says otherwise. Turing, Ampere and Ada have
//! two-way fences only. Hopper also has one-way fences, which are faster: an acquire fence costs one instruction there.
//! So the build writes both on one line, the second one in a comment:
//!
//! ```text
//! fence.acq_rel.sys; // sm_90: fence.acquire.sys;
//! ```
//!
//! When the runtime loads the PTX, it chooses by the GPU's compute capability. The wait of a kernel for the earlier work of
//! its stream (`griddepcontrol.wait`) also exists on Hopper and newer only; the line for older GPUs is empty.
//!
//! # Machine code
//!
//! The driver compiles PTX when a program first loads it, which may take seconds, and caches the result.
//! `RUSHMEM_PTX_CUBIN=sm_90` also embeds machine code for these GPUs. Other GPUs use the PTX. `ptxas` generates the
//! machine code: the one at `RUSHMEM_PTXAS`, or that of a CUDA toolkit or the Python package `nvidia-cuda-nvcc`.
//! `RUSHMEM_PTX_CUBIN=sm_80:sm_90` generates it from the text for sm_80, to test that text on newer GPUs.
//!
//! # Timeline
//!
//! `RUSHMEM_PTX_TRACE=1` compiles kernels that write their calls to a timeline (`RUSHMEM_TRACE` of a job). Other
//! kernels have no instructions for it. Bundled PTX is not affected.
//!
//! # DC transport
//!
//! `RUSHMEM_PTX_DC=1` compiles kernels that can post to DC initiators (`RUSHMEM_DC_ABOVE` of a job), bundled ones too.
//! Other kernels have no instructions for it, since these code paths would cost every kernel registers.
//!
//! # Failover
//!
//! `RUSHMEM_PTX_FAILOVER=1` compiles kernels whose connections the host can replace (`RUSHMEM_FAILOVER` of a job), bundled
//! ones too. It costs every kernel registers as well.
//!
//! # Checks
//!
//! The build fails for atomics without scope or ordering, panic paths, and calls to functions that no GPU has.
//! See [`inspect`] for all checks.

pub mod archive;
pub mod bitcode;
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
mod ir;
mod lock;
mod manifest;
mod module;
pub mod ptxas;
mod source;
mod sysroot;
mod target;
mod toolchain;

pub use builder::{Builder, Built, Origin, build};
pub use compile::{Artifact, Extras, Library, compile, compile_conformance, compile_library};
pub use decide::Mode;
pub use error::{Error, Result};
pub use header::Header;
pub use source::Source;
pub use target::{DEFAULT_TARGET, Target};
pub use toolchain::{Search, Toolchain, Version};
