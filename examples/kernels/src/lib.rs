//! The kernels of the examples.
//!
//! Each file is self-contained: a kernel, and the arithmetic that host and kernel must agree on.
#![cfg_attr(target_arch = "nvptx64", no_std, feature(abi_ptx))]
#![forbid(unsafe_code)]

mod alltoall;
mod band;
mod divide;
mod element;
mod fft;
mod gups;
mod hello;
mod jacobi;
mod kv;
mod ring;
mod sort;
mod stencil;
mod survive;

pub use alltoall::{TILE_BYTES, transpose};
pub use band::{Band, bands};
pub use fft::{Complex, FftPass, fft_lines, fft_post, fft_store};
pub use gups::{next, number, update};
pub use hello::hello;
pub use jacobi::{Extent, JACOBI_ALPHA, Jacobi, JacobiShape, jacobi, jacobi_relax};
pub use kv::{KvShape, KvTransfer, Runs, kv_attend, kv_copy, kv_post, kv_store, kv_sum};
pub use ring::ring;
pub use sort::{
    DIGITS, MAX_WARPS, ONE_PE, SortBuffers, SplitTables, exchange_keys, owner, sort_keys, sort_shared_bytes,
};
pub use stencil::{collect, heat, relax};
pub use survive::{
    FINISHED, GONE, LONGEST, RECORD_WORDS, ROUNDS, SINCE, STATE, WRONG, finished_stamp, message_word, survive,
};
