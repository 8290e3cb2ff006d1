//! Fuzzes the processing of RoCE packets. Run with `cargo +nightly fuzz run packets` in this folder.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| rushmem_softnic::fuzz::packets(data));
