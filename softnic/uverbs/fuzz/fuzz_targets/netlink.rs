//! Fuzz target for RDMA netlink datagrams. Run `cargo +nightly fuzz run netlink` in this folder.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| rushmem_uverbs::fuzz::netlink(data));
