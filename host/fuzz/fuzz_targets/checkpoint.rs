//! Any bytes are refused as a header of a checkpoint's files, or are one that encodes to the same header again.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rushmem_storage::check_any_bytes(bytes));
