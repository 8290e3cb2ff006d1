//! Fuzz target: the checks of a record are repeated or refused, with any content.
#![no_main]

use rushmem_doctor::replay;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok(record) = serde_json::from_slice(bytes) {
        let _ = replay(record);
    }
});
