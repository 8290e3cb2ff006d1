//! Fuzzes the execution of send WQEs that produce RoCE packets. Run with `cargo +nightly fuzz run wire_entries` in this
//! folder.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| rushmem_softnic::fuzz::wire_entries(data));
