//! Fuzz target for single uverbs calls made of arbitrary bytes. Run `cargo +nightly fuzz run headers` in this folder.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| rushmem_uverbs::fuzz::headers(data));
