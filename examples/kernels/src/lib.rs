//! The kernels of the examples.
#![cfg_attr(target_arch = "nvptx64", no_std, feature(abi_ptx))]
#![forbid(unsafe_code)]

mod ring;

pub use ring::ring;
