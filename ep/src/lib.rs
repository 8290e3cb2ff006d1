//! Expert parallelism: dispatch and combine for a mixture of experts, built solely on Rushmem's public interface.
//!
//! Each PE has tokens and an equal share of the experts: expert `e` is on PE `e / (experts / n_pes)`. A router chooses
//! up to eight experts per token. *Dispatch* sends each token to the PEs of its experts. *Combine* sends the rows
//! that the experts computed back, and sums them per token. Both run in kernels, so the CPU never needs to know the
//! counts.
//!
//! ```no_run
//! use rushmem::Job;
//! use rushmem_device::Bf16;
//! use rushmem_ep::{Dispatcher, Input, KERNELS, Shape};
//!
//! fn main() -> Result<(), rushmem::Error> {
//!     Job::new()?.kernels(KERNELS).run(|pe| {
//!         // 128 tokens of 7168 elements, 256 experts, 8 choices.
//!         let shape = Shape::new(128, 7168, 256, 8);
//!         let dispatcher = Dispatcher::new(pe, shape)?;
//!         let (tokens, sums) = (pe.alloc::<Bf16>(128 * 7168)?, pe.alloc::<Bf16>(128 * 7168)?);
//!         let (choices, weights) = (pe.alloc::<i32>(128 * 8)?, pe.alloc::<f32>(128 * 8)?);
//!         let results = pe.alloc::<Bf16>(dispatcher.row_count() * 7168)?;
//!
//!         let stream = pe.stream()?;
//!         let input = Input { tokens, choices, weights, count: 128 };
//!         let sent = dispatcher.dispatch_send(&stream, input)?;
//!         // Queue work here that does not need the rows.
//!         let received = dispatcher.dispatch_receive(&stream, sent)?;
//!         // Queue the grouped GEMMs here: from `dispatcher.rows()` to `results`.
//!         dispatcher.combine(&stream, received, results, sums)?;
//!         dispatcher.wait(&stream)?;
//!         Ok::<_, rushmem_ep::Error>(())
//!     })?;
//!     Ok(())
//! }
//! ```
//!
//! # Rows
//! A token crosses the link to each PE at most once, however many experts it chose there. With [`Layout::Rows`],
//! dispatch then copies it to each of these experts: the rows of local expert `i` are rows `offsets[i] .. offsets[i] +
//! totals[i]` of [`Dispatcher::rows`], sorted by source PE, then by token. With [`Layout::Tokens`], nothing is copied,
//! and `index[j]` is the row in [`Dispatcher::rows`] for each `j` in this range. All three arrays are in device memory. A
//! row has [`Dispatcher::row_bytes`] bytes: the elements and, for [`Dtype::E4m3`], a binary32 scale for every 128 of them.
//!
//! # Sums
//! Each PE adds the weighted results of its experts for a token, in order of choice, and sends this partial sum to the
//! token's PE, which adds the partial sums in order of PE. All sums are in binary32. They are rounded to bf16 once, or
//! also before they are sent if the shape has [`Partials::Bf16`].
//!
//! # Paths
//! For a P2P peer, kernels store rows and partial sums in its memory. A NIC peer gets a put for each of them, and one
//! signal per half.
//!
//! # One call at a time
//! A call is a dispatch and its combine. Their kernels must run in this order, on one stream or on streams that wait
//! for each other. All PEs make the same calls. No barrier is needed between calls, because combine receives a signal
//! from every PE. To overlap two calls, use two dispatchers. [`capture`] records steps in a graph, which works
//! because kernels count the calls. A graph has a fixed number of tokens, so assign no expert to unused tokens.
//!
//! # A full buffer
//! A call that does not fit is an error on all PEs, and so is the choice of an unknown expert. The input is unchanged.
//! With [`Layout::Rows`], [`Dispatcher::rows`] still has the rows of the last call. After the error, all PEs must call
//! [`Dispatcher::reset`], and may then repeat the call with fewer tokens.
//!
//! # Absent PEs
//! [`Dispatcher::mask`] lets the other PEs make calls without a PE: choices of its experts are skipped, and
//! [`Dispatcher::skipped`] returns them. A router that reads [`Dispatcher::masked`] chooses other experts.
//!
//! # Lost PEs
//! In jobs with live membership, calls in which a lost PE would take part fail with
//! [`PeerLost`](rushmem::Error::PeerLost). [`Dispatcher::continue_with`] masks the lost PEs, and takes in the processes that
//! replace them:
//!
//! ```no_run
//! # use rushmem::{Pe, Stream};
//! # use rushmem_device::Team;
//! # use rushmem_ep::{Dispatcher, Error, Result};
//! # fn next_step(pe: &Pe) -> Result<Option<u32>> { Ok(None) }
//! # fn perform(step: u32, dispatcher: &Dispatcher, stream: &Stream) -> Result<()> { Ok(()) }
//! # fn app(pe: &Pe, dispatcher: &Dispatcher, stream: &Stream) -> Result<()> {
//! let mut team = Team::WORLD;
//! loop {
//!     let members = pe.grow()?;
//!     let changed = members != team;
//!     if changed {
//!         pe.team_destroy(std::mem::replace(&mut team, members))?;
//!     }
//!     let outcome = (|| {
//!         if changed {
//!             dispatcher.continue_with(team)?;
//!         }
//!         // All PEs agree on it by `allgather`, because a new process has performed none.
//!         let Some(step) = next_step(pe)? else { return Ok(false) };
//!         // Dispatches, combines, and waits for both.
//!         let performed = perform(step, dispatcher, stream);
//!         pe.host_sync()?;
//!         performed.map(|()| true)
//!     })();
//!     match outcome {
//!         Ok(true) | Err(Error::Runtime(rushmem::Error::PeerLost(_))) => {}
//!         outcome => break outcome.map(drop),
//!     }
//! }
//! # }
//! ```
//!
//! A loss may let a call succeed on some PEs and fail on others. If [`host_sync`](rushmem::Pe::host_sync) succeeds after it,
//! it has succeeded on all, and its sums are right even if other calls were queued after it.
//!
//! # Determinism
//! The place of a row depends only on the choices, and sums have a fixed order. So equal inputs give bit-identical
//! results.
#![forbid(unsafe_code)]

mod dispatcher;
mod error;
mod graph;
pub mod reference;
mod shape;

pub use dispatcher::{Dispatcher, Input, Received, Returning, Sent};
pub use error::{Error, Result};
pub use graph::capture;
pub use rushmem_ep_kernels as kernels;
pub use shape::{Dtype, Layout, Partials, Shape};

/// PTX of this crate's kernels, to be passed to [`Job::kernels`](rushmem::Job::kernels).
pub const KERNELS: rushmem::Ptx = rushmem::ptx!("rushmem_ep_kernels");
