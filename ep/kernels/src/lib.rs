//! The kernels of `rushmem-ep`: dispatch and combine of a mixture of experts.
//!
//! A *pair* is a token with one of its choices. Pair `token * top_k + choice` chooses an expert, or -1 for none. The
//! *rank* of a pair is its index among the pairs of this PE with the same expert, sorted by token and choice. Ranks
//! depend only on the choices, so every run puts every row in the same place.
//!
//! A call of an exchange is a sequence of kernels on one stream:
//!
//! | step | low latency | throughput |
//! |---|---|---|
//! | start of dispatch | [`ep_send`] ranks the pairs and stores rows; [`ep_announce`] signals | [`ep_place`] ranks; [`ep_plan`] exchanges counts; then the same |
//! | end of dispatch | [`ep_receive`] waits, and copies rows together | [`ep_receive`] waits |
//! | start of combine | [`ep_announce_back`] signals | the same |
//! | end of combine | [`ep_reduce`] waits, reads the rows of each token, and sums them | the same |
//!
//! All stores of a kernel are visible to the next one, so no block ever waits for another block. Hence the kernels are
//! correct with any number of blocks, resident or not.
//!
//! The names of kernels start with `ep_`, because a launch looks up its kernel by name among all modules of a job.
//!
//! # Reuse of buffers
//! A PE starts call `n + 1` after its [`ep_reduce`] of call `n` has seen a signal from each expert. By then, each peer
//! has read everything that the PE sent in call `n`. A PE changes the results of its experts after its [`ep_receive`]
//! of call `n + 1`, which has seen a signal from each source. By then, each peer has read the results of call `n`. So
//! calls need neither a barrier nor a second set of buffers. Signals carry the index of the call, so no word needs to
//! be reset.
#![cfg_attr(target_arch = "nvptx64", no_std, feature(abi_ptx))]
#![forbid(unsafe_code)]

mod bench;
mod buffers;
mod combine;
mod dispatch;
mod numbers;
mod plan;
mod post;
mod receive;
mod warp;

pub use bench::{ep_copy, ep_experts, ep_stamp};
pub use buffers::{Batch, Buffers, Fault, Table, WORD_COUNT_BITS, state};
pub use combine::{ep_announce_back, ep_reduce};
pub use dispatch::{ep_announce, ep_send};
pub use numbers::{SCALED, dequantized, e4m3_from_f32, e4m3_to_f32, inverse_scale, scale_of};
pub use plan::{ep_place, ep_plan};
pub use receive::ep_receive;
