//! Fuzzes registers, commands and mailboxes. Run with `cargo +nightly fuzz run registers` in this folder.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| rushmem_softnic_pci::fuzz::registers(data));
