//! Fuzzes PRM commands. Run with `cargo +nightly fuzz run mailboxes` in this folder.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| rushmem_softnic::fuzz::mailboxes(data));
