//! The kernels of `rushmem-ep`: dispatch and combine of a mixture of experts.
//!
//! A *pair* is a token with one of its choices. Pair `token * top_k + choice` chooses an expert, or -1 for none. The
//! *rank* of a pair is its index among the pairs of this PE with the same expert, sorted by token and choice. Ranks
//! depend only on the choices, so every run puts every row in the same place.
//!
//! A call of an exchange is a sequence of kernels on one stream:
//!
//! 1. [`ep_place`] ranks the pairs, unless they are so few that [`ep_send`] does.
//! 2. [`ep_send`] stores each token once at each PE that has an expert of it, with a record of its choices. Its last
//!    block sends the row counts to all PEs and signals.
//! 3. [`ep_receive`] waits for the signals, rejects a call that does not fit, and copies the rows to their experts, or
//!    stores an index of them.
//! 4. [`ep_combine`] stores a partial sum for each token and PE in the memory of the token's PE. Its last block signals.
//! 5. [`ep_reduce`] waits for the signals and adds the partial sums.
//!
//! NIC peers get rows, records and partial sums by puts from this PE's memory, one for each token.
//!
//! All stores of a kernel are visible to the next one, and no block ever waits for another block. Hence the kernels are
//! correct with any number of blocks, resident or not.
//!
//! The names of kernels start with `ep_`, because a launch looks up its kernel by name among all modules of a job.
//!
//! # Reuse of buffers
//! A PE starts call `n + 1` after its [`ep_reduce`] of call `n` has seen a signal from each PE. By then, each peer has
//! finished [`ep_combine`] except for other signals, so it has read the rows, records and counts that the PE sent in
//! call `n`. A peer stores the partial sums of call `n + 1` after it has seen the PE's signal of that dispatch, which
//! follows the PE's [`ep_reduce`] of call `n`. That kernel also completes the PE's puts. So calls need neither a barrier
//! nor a second set of buffers. Signals and records carry the index of the call, so none needs to be reset.
#![cfg_attr(target_arch = "nvptx64", no_std, feature(abi_ptx))]
#![forbid(unsafe_code)]

mod announce;
mod bench;
mod buffers;
mod combine;
mod numbers;
mod place;
mod receive;
mod record;
mod send;
mod warp;

pub use bench::{ep_copy, ep_experts, ep_stamp};
pub use buffers::{Batch, Buffers, Fault, Table, state};
pub use combine::{ep_combine, ep_reduce};
pub use numbers::{SCALED, dequantized, e4m3_from_f32, e4m3_to_f32, inverse_scale, scale_of};
pub use place::ep_place;
pub use receive::ep_receive;
pub use record::RECORD_WORDS;
pub use send::ep_send;
