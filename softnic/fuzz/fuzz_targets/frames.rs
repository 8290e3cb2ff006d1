//! Fuzzes Ethernet queues, flow tables and frames. Run with `cargo +nightly fuzz run frames` in this folder.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| rushmem_softnic::fuzz::frames(data));
