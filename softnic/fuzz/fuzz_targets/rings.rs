//! Fuzzes the packet rings in shared memory. Run with `cargo +nightly fuzz run rings` in this folder.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| rushmem_softnic::fuzz::rings(data));
