//! Any bytes that arrive at a bootstrap connection are a message that encodes to them again, or an error.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rushmem::bootstrap::wire::check_any_bytes(bytes));
