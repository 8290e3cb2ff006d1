//! Fuzz target for sequences of uverbs calls with valid parts. Run `cargo +nightly fuzz run calls` in this folder.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| rushmem_uverbs::fuzz::calls(data));
