//! GPU-initiated networking: kernels put to, get from and signal the memory of other GPUs, without involving a CPU.
//!
//! This crate is the host side. It starts jobs, allocates symmetric memory, and launches kernels. Kernels are written
//! with [`rushmem_device`].
//!
//! An application is a function of a [`Pe`], which a [`Job`] runs on every PE. In this example, a kernel on every PE
//! sends its PE number to the next PE:
//!
//! ```no_run
//! use rushmem::{Job, LaunchConfig};
//! use rushmem_device::prelude::*;
//!
//! /// Puts `message` into the `inbox` of the next PE, signals it, and waits for the message of the previous PE.
//! #[kernel]
//! pub fn pass_on(ctx: &Ctx, inbox: SymSlice<u32>, message: SymSlice<u32>, arrived: Sym<Signal>) -> Result {
//!     let (block, next) = (Block::current(), ctx.pe_after(1));
//!     ctx.put_signal_nbi(block, inbox, message, arrived.set(1), next)?;
//!     ctx.signal_wait_until(block, arrived, Cmp::Eq, 1)?;
//!     ctx.quiet(block)
//! }
//!
//! fn main() -> rushmem::Result<()> {
//!     Job::new()?.run(|pe| {
//!         let (inbox, message) = (pe.alloc::<u32>(1)?, pe.alloc::<u32>(1)?);
//!         let arrived = pe.alloc_one::<Signal>()?;
//!         pe.write(message, &[pe.my_pe()])?;
//!
//!         let one_block = LaunchConfig::new(1, 32);
//!         pe.run(one_block, pass_on(inbox, message, arrived))?;
//!         println!("PE {} of {} received {}", pe.my_pe(), pe.n_pes(), pe.read(inbox)?[0]);
//!         Ok::<_, rushmem::Error>(())
//!     })?;
//!     Ok(())
//! }
//! ```
//!
//! This job runs its kernels natively, on the CPU. For a GPU, put the kernels in a module that `build.rs` compiles, and
//! pass their PTX to [`Job::kernels`]. `rushmem new` creates such a project. `RUSHMEM_PES=4` runs four PEs as threads,
//! and `rushmem run -n 4` runs four processes.
//!
//! # Tour
//!
//! | to | see |
//! |---|---|
//! | start a job | [`Job`]; settings: [`config`]; launchers and unique IDs: [`bootstrap`] |
//! | know the PE and its peers | [`Pe::my_pe`], [`Pe::n_pes`], [`Pe::peer_routes`] |
//! | allocate symmetric memory | [`Pe::alloc`], [`Pe::alloc_one`], [`Pe::write`], [`Pe::read`]; handles: [`SymSlice`], [`Sym`] |
//! | use your own memory | [`Pe::register`], [`Pe::register_symmetric`], [`Buffer`] |
//! | use tensors and streams of other libraries | [`GpuBuffer`], [`dlpack`], [`Pe::stream_from`], [`Pe::gpu`] |
//! | use files | [`Pe::save`], [`Pe::restore`], [`Checkpoint`], [`Pe::read_file`], [`Pe::write_file`] |
//! | launch a kernel | [`Pe::run`], [`Pe::launch`], [`Pe::launch_collective`], [`Launch`], [`LaunchConfig`] |
//! | communicate from the host | [`Operations`] of a [`Pe`]: puts, gets, atomics, signals, barriers, collective calls |
//! | queue work on a stream | [`Pe::stream`], and [`Operations`] of a [`Stream`]; graphs: [`Graph`] |
//! | work in teams | [`Pe::team_split_strided`], [`Pe::team_from_pes`], [`TeamConfig`] |
//! | use dedicated queues | [`Pe::context`], [`Stream::with_context`]; with signals and barriers: [`Pe::comm`] |
//! | understand a failure | [`Error`], with a stable [`Status`]; errors of kernels: [`DeviceError`] |
//!
//! # Errors
//!
//! Every wait has a deadline, and every call that can fail returns a [`Result`]. The text of an [`Error`] states what
//! failed, with values, followed by the remedy. If a kernel fails, its launch returns [`Error::Device`], which names
//! the PE, the source line, the block and the thread. If the application fails on one PE, the runtime aborts the whole
//! job.
//!
//! # Guides
//!
//! These are files of the repository:
//!
//! - `README.md`: a quick start, and how to create a project.
//! - `docs/memory-model.md`: what orders and completes operations.
//! - `docs/debugging.md` and `docs/tuning.md`: what to try when a kernel fails or is slow.
//! - `docs/porting.md`: the names of OpenSHMEM and NVSHMEM, and their counterparts here.
//! - `docs/launching.md`: `rushmem run`, `mpirun`, `srun`, `torchrun`, and launching by hand.
//! - `docs/settings.md` and `docs/errors.md`: every setting, and every error number.
//! - `docs/checkpoints.md`: what a checkpoint promises, and its layout.
//! - `docs/architecture.md`: the design.
//!
//! [`Sym`]: rushmem_device::Sym
//! [`SymSlice`]: rushmem_device::SymSlice

#![deny(unsafe_code)]

// Rustdoc lists the methods of `Pe` in the order of these modules. Rustfmt sorts modules, but not across blank lines.

mod pe;

mod launch;

mod stream;

mod operations;

mod comm;

// Modules without public methods of `Pe`.

mod build;
mod contexts;
mod deadlines;
pub mod inspect;
mod inventory;
mod job;
mod launch_queue;
mod life;
mod log;
mod membership;
mod modules;
mod ptx;
mod teams;
mod test_loop;

pub use cudarc;
pub use rushmem_bootstrap as bootstrap;
pub use rushmem_config as config;
pub use rushmem_cuda as cuda;
#[doc(inline)]
pub use rushmem_machine::dlpack;
pub use rushmem_native as native;
pub use rushmem_sanitizer as sanitizer;

pub use comm::{Comm, CommRequirements};
pub use inventory::{Choice, FoundGpu, Inventory, inventory};
pub use job::{AppError, Job, RunningPe};
pub use launch::Launch;
pub use life::{THREAD_LEVEL, ThreadLevel, is_initialized};
pub use log::init_log;
pub use operations::{Operations, WaitSet};
pub use pe::{
    Checkpoint, ControlCosts, Hints, Kernels, MemoryGuard, Pe, RegisteredBuffer, UnregisterError, Window,
};
#[doc(inline)]
pub use rushmem_base::Ptx;
pub use rushmem_device::info;
#[cfg(feature = "rdma")]
#[doc(inline)]
pub use rushmem_error::RdmaError;
#[doc(inline)]
pub use rushmem_error::{CallSite, DeviceError, Error, NicError, Result, Status, meaning_of};
pub use rushmem_fabric::QpInfo;
#[doc(inline)]
pub use rushmem_machine::{Buffer, GpuBuffer, HostRange, KernelLine, LaunchConfig, MemoryLocation, Pages};
pub use rushmem_memory::PeerRoute;
pub use stream::{Event, Graph, Stream};
pub use teams::TeamConfig;

/// The imports of an application.
///
/// [`Error`] and [`Result`] are not among them, because applications have their own.
///
/// A file with kernels also imports the prelude of [`rushmem_device`]. The two disagree on `Result`'s error, as below.
///
/// ```no_run
/// use rushmem::prelude::*;
/// use rushmem_device::prelude::*;
///
/// #[kernel]
/// pub fn double(ctx: &Ctx, numbers: SymSlice<u32>) -> Result {
///     ctx.local(numbers).store(0, 2 * ctx.local(numbers).load(0));
///     ctx.barrier_all(Thread)
/// }
///
/// fn main() -> Result<(), rushmem::Error> {
///     Job::new()?.run(|pe| {
///         let numbers: SymSlice<u32> = pe.alloc(1)?;
///         pe.write(numbers, &[pe.my_pe()])?;
///         pe.run(LaunchConfig::new(1, 1), double(numbers))
///     })?;
///     Ok(())
/// }
/// ```
pub mod prelude {
    pub use crate::{Job, Launch, LaunchConfig, Operations, Pe, Stream, TeamConfig};
    pub use rushmem_device::kernel::KernelArg;
    pub use rushmem_device::{
        Bf16, Cmp, Context, Exclusive, F16, Local, PerBlock, PerGpu, Pod, Reduce, Shadowed, Signal,
        SignalUpdate, Strided, Sym, SymSlice, Team, Zeroable,
    };
}
