//! Fuzzes the execution of send WQEs over loopback. Run with `cargo +nightly fuzz run loopback_entries` in this folder.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| rushmem_softnic::fuzz::loopback_entries(data));
