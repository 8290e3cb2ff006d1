//! The device side of Rushmem: OpenSHMEM operations for GPU kernels, and the mlx5 send-queue protocol they are built
//! on.
//!
//! The same source compiles for `nvptx64-nvidia-cuda` and for the host; [`arch`] holds everything that differs.
//!
//! A kernel receives a [`Ctx`]; every operation is a method of it:
//!
//! | family | methods |
//! |---|---|
//! | [Put and get](Ctx#put-and-get) | [`put`](Ctx::put), [`put_nbi`](Ctx::put_nbi), [`get`](Ctx::get), [`p`](Ctx::p), [`g`](Ctx::g); [strided](Ctx#strided-put-and-get) |
//! | [Batches](Ctx#batches), [handles](Ctx#transfers-with-a-handle) | [`batch`](Ctx::batch); [`put_async`](Ctx::put_async), [`get_async`](Ctx::get_async) |
//! | [Signals](Ctx#signals) | [`put_signal`](Ctx::put_signal), [`signal_op`](Ctx::signal_op), [`signal_fetch`](Ctx::signal_fetch); [shadowed](Ctx#shadowed-signals) |
//! | [Waits and tests](Ctx#waits-and-tests) | [`signal_wait_until`](Ctx::signal_wait_until), [`wait_until`](Ctx::wait_until), [`test`](Ctx::test), and for [sets of words](WaitWords) |
//! | [Fence, quiet and flush](Ctx#fence-quiet-and-flush) | [`fence`](Ctx::fence), [`quiet`](Ctx::quiet), [`flush`](Ctx::flush), also for one PE |
//! | [Atomics](Ctx#atomics) | [`atomic_fetch_add`](Ctx::atomic_fetch_add), [`atomic_compare_swap`](Ctx::atomic_compare_swap), ...; [without waiting](Ctx#atomics-without-waiting), [on bit fields](Ctx#atomics-on-bit-fields) |
//! | [Collective data movement](Ctx#collective-data-movement) | [`broadcast`](Ctx::broadcast), [`fcollect`](Ctx::fcollect), [`alltoall`](Ctx::alltoall), [`alltoallv`](Ctx::alltoallv) |
//! | [Reductions and scans](Ctx#reductions-and-scans) | [`reduce`](Ctx::reduce), [`reduce_scatter`](Ctx::reduce_scatter), [`sum_scan`](Ctx::sum_scan) |
//! | [Barriers](Ctx#barriers) | [`barrier_all`](Ctx::barrier_all), [`barrier`](Ctx::barrier), [`team_sync`](Ctx::team_sync), [`sync_grid`](Ctx::sync_grid) |
//! | [Teams](Ctx#teams), [PEs](Ctx#pes) | [`team_my_pe`](Ctx::team_my_pe), [`translate_pe`](Ctx::translate_pe); [`my_pe`](Ctx::my_pe), [`n_pes`](Ctx::n_pes) |
//! | [Memory](Ctx#memory-of-this-pe-and-of-p2p-peers) | [`local`](Ctx::local), [`ptr`](Ctx::ptr), [`shared`](Ctx::shared) |
//! | [Contexts](Ctx#contexts-of-a-block-or-of-a-thread) | [`per_block`](Ctx::per_block), [`exclusive`](Ctx::exclusive), [`context`](Ctx::context), [`queue`](Ctx::queue) |
//! | [Locks](Ctx#locks) | [`set_lock`](Ctx::set_lock), [`test_lock`](Ctx::test_lock), [`clear_lock`](Ctx::clear_lock) |
//!
//! [`shmem`] has the OpenSHMEM names. `docs/porting.md` maps OpenSHMEM and NVSHMEM names to both crates.
//!
//! Three independent properties of a call have three names:
//!
//! - A [`Group`] is the set of threads that make the call together. It is a value. [`Group::leader_result`] shares the
//!   outcome of a step that only the leader runs.
//! - [`Sharing`] is the set of threads that post to the same QP. It is a type parameter of the context.
//! - A scope is the set of observers that must see a store. It is part of an atomic's type.
//!
//! Every call that can fail returns a [`Result`], and every call that waits returns by its deadline. Before a call
//! returns an error, it writes an error record for the host.
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
//!     ctx.put_signal_nbi(block, dst.slice(part.clone()), src.slice(part), arrived.add(1), right)?;
//!     ctx.quiet(block)?;
//!     ctx.signal_wait_until(block, arrived, Cmp::Ge, block.count().into())?;
//!     Ok(())
//! }
//! # fn main() {}
//! ```
//!
//! Kernels can be generic. [`#[kernel]`](kernel::kernel) lists the types for which a kernel is compiled; the host
//! launches `put_sums::<f32>(..)`, or `put_sums(..)` where the arguments determine the type:
//!
//! ```
//! use core::ops::Add;
//!
//! use rushmem_device::prelude::*;
//!
//! /// Stores the elements of `base`, each plus `value`, in `sums` of the next PE.
//! #[kernel(T = [f32, f64, u64])]
//! pub fn put_sums<T: Scalar + Add<Output = T>>(ctx: &Ctx, sums: SymSlice<T>, base: SymSlice<T>, value: T) -> Result {
//!     let base = ctx.local(base);
//!     let mut i = Thread::index();
//!     while i < base.len() {
//!         ctx.p(sums.at(i), base.load(i) + value, ctx.pe_after(1))?;
//!         i += Thread::count();
//!     }
//!     ctx.quiet(Thread)
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

// Rustdoc lists the methods of `Ctx` in the order of these modules. The blank lines keep rustfmt from sorting all of
// them.

mod rma;

mod sync;

mod order;

pub mod amo;
mod coll;

mod team;
mod view;

mod ctx;

// Modules without methods of `Ctx`.

pub mod abi;
pub mod arch;
mod error;
mod event;
mod group;
mod half;
mod heap;
pub mod info;
mod invalid_range;
pub mod kernel;
mod outlined;
mod post;
pub mod print;
mod scope;
mod sharing;
pub mod shmem;
pub mod sq;
mod tend;
mod wait;
pub mod watch;

pub use bytemuck::{Pod, Zeroable};

#[doc(hidden)]
pub use coll::{ChannelWords, SmallCall, is_defined_for};
pub use coll::{CollectiveGroup, Element, ElementKind, Parts, Reduce, Scan, ValueIndex, WholeGrid};
pub use ctx::{ClaimableSharing, Context, Ctx};
pub use error::{Error, Result};
pub use group::{Block, Group, Thread, Tile, Warp, WithoutBarrier};
pub use half::{Bf16, F16};
pub use heap::{Handle, Local, LocalBuffer, Signal, Strided, Sym, SymSlice};
pub use invalid_range::InvalidRange;
pub use rma::{Batch, Batchable, Pending, Scalar};
pub use scope::FenceScope;
pub use sharing::{Batched, Exclusive, Foreign, PerBlock, PerGpu, Sharing};
pub use sync::{Cmp, Lock, Shadowed, SignalOp, SignalUpdate, WaitWords};
pub use team::Team;
pub use view::{RemoteView, View};

/// Items that nearly every kernel uses, for glob imports.
pub mod prelude {
    pub use crate::amo::{Addend, Amo, AmoWord, Fetched};
    pub use crate::kernel::{KernelArg, kernel};
    pub use crate::kprintln;
    pub use crate::{
        Batch, Bf16, Block, Cmp, CollectiveGroup, Context, Ctx, Element, Error, Exclusive, F16, FenceScope,
        Group, Local, LocalBuffer, Lock, Parts, Pending, PerBlock, PerGpu, Pod, Reduce, RemoteView, Result,
        Scalar, Scan, Shadowed, Sharing, Signal, SignalUpdate, Strided, Sym, SymSlice, Team, Thread, Tile,
        View, WaitWords, Warp, WholeGrid, WithoutBarrier, Zeroable,
    };
}
