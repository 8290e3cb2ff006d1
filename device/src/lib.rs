//! The device side of Rushmem: the OpenSHMEM operations that GPU kernels call, and the mlx5 send-queue protocol under them.
//!
//! The same source compiles for `nvptx64-nvidia-cuda` and natively; everything that differs is in [`arch`].
//!
//! | OpenSHMEM, NVSHMEM | here |
//! |---|---|
//! | `shmem_my_pe`, `shmem_n_pes` | [`Ctx::my_pe`], [`Ctx::n_pes`] |
//! | symmetric object | [`SymSlice`], [`Sym`]; this PE's copy of it: [`Ctx::local`] |
//! | `nvshmemx_put_nbi_block` | [`Ctx::put_nbi`] with [`Block::current()`](Block::current) as its group |
//! | `shmem_p`, `shmem_g` | [`Ctx::p`], [`Ctx::g`] |
//! | `shmem_put_signal`, `shmem_signal_wait_until` | [`Ctx::put_signal`], [`Ctx::signal_wait_until`] |
//! | `shmem_ptr` | [`Ctx::ptr`] |
//! | `shmem_atomic_*` | `Ctx::atomic_*`, see [`amo`] |
//! | `shmem_fence`, `shmem_quiet`, `shmem_barrier_all` | [`Ctx::fence`], [`Ctx::quiet`], [`Ctx::barrier_all`] |
//! | `shmem_global_exit`, `shmem_info_get_version` | [`Ctx::global_exit`], [`info`] |
//! | context with `SHMEM_CTX_PRIVATE` | [`Ctx::exclusive`], [`Ctx::per_block`] |
//! | the OpenSHMEM names | [`shmem`] |
//!
//! Three independent properties of a call have three names:
//!
//! - A [`Group`] is the set of threads that make the call together. It is a value.
//! - [`Sharing`] is the set of threads that post to the same QP. It is a type parameter of the context.
//! - A scope is the set of observers that must see a store. It is part of an atomic's type.
//!
//! Every call that can fail returns a [`Result`] and ends by its deadline. Before it returns an error, it has written a record of
//! the error for the host.
//!
//! ```
//! use rushmem_device::prelude::*;
//!
//! /// Sends `src` to the right neighbour's `dst`, and waits for the left neighbour's data.
//! #[kernel]
//! pub fn shift(ctx: &Ctx, dst: SymSlice<u32>, src: SymSlice<u32>, arrived: Sym<Signal>) -> Result {
//!     let block = Block::current();
//!     let part = block.share(src.len());
//!     let right = ctx.pe_after(1);
//!     ctx.put_signal_nbi(block, dst.slice(part.clone()), src.slice(part), arrived, SignalOp::Add, 1, right)?;
//!     ctx.quiet(block)?;
//!     ctx.signal_wait_until(block, arrived, Cmp::Ge, block.count().into())?;
//!     Ok(())
//! }
//! # fn main() {}
//! ```
#![cfg_attr(target_arch = "nvptx64", no_std)]
#![cfg_attr(target_arch = "nvptx64", feature(stdarch_nvptx, asm_experimental_arch, link_llvm_intrinsics))]
#![cfg_attr(target_arch = "nvptx64", allow(internal_features))]
#![deny(unsafe_code)]
#![deny(clippy::panic, clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

#[cfg(not(target_arch = "nvptx64"))]
extern crate std;

pub mod abi;
pub mod amo;
pub mod arch;
mod batch;
mod coll;
mod context;
mod copy;
mod ctx;
mod error;
mod exit;
mod group;
mod half;
mod heap;
pub mod info;
pub mod kernel;
mod lock;
mod order;
mod pending;
mod post;
mod rma;
mod segment;
mod shadow;
mod sharing;
pub mod shmem;
mod signal;
pub mod sq;
mod strided;
mod team;
mod view;
mod wait;
mod wait_until;

pub use bytemuck::{Pod, Zeroable};

pub use batch::{Batch, Batchable};
pub use coll::{Element, ElementKind, Located, Parts, Reduce, Scan};
pub use context::{Claim, Context};
pub use ctx::Ctx;
pub use error::{Error, Result};
pub use group::{Block, Group, Ready, Thread, Tile, Warp};
pub use half::{Bf16, F16};
pub use heap::{Handle, Local, LocalBuffer, Signal, Strided, Sym, SymSlice};
pub use lock::Lock;
pub use order::FenceScope;
pub use pending::Pending;
pub use rma::Scalar;
pub use shadow::Shadowed;
pub use sharing::{Batched, Exclusive, PerBlock, PerGpu, Sharing};
pub use signal::SignalOp;
pub use team::Team;
pub use view::{RemoteView, View};
pub use wait_until::{Cmp, WaitWords};

/// The imports of a kernel file.
pub mod prelude {
    pub use crate::amo::{Addend, Amo, AmoWord, Fetched};
    pub use crate::kernel::{KernelArg, kernel};
    pub use crate::{
        Batch, Bf16, Block, Cmp, Context, Ctx, Element, Error, Exclusive, F16, FenceScope, Group, Local,
        LocalBuffer, Lock, Parts, Pending, PerBlock, PerGpu, Pod, Ready, Reduce, RemoteView, Result, Scalar,
        Scan, Shadowed, Sharing, Signal, SignalOp, Strided, Sym, SymSlice, Team, Thread, Tile, View,
        WaitWords, Warp, Zeroable,
    };
}
