//! Fuzz target for messages to the connection manager. Run `cargo +nightly fuzz run messages` in this folder.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| rushmem_uverbs::fuzz::messages(data));
