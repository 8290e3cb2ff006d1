//! Fuzzes the vfio-user protocol. Run with `cargo +nightly fuzz run messages` in this folder.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| rushmem_softnic_pci::fuzz::messages(data));
