//! Fuzz target: a file of a saved machine is checked or refused, with any content.
#![no_main]

use rushmem::config::Config;
use rushmem_doctor::{Host, examine};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok(saved) = serde_json::from_slice(bytes) {
        examine(&Host::of(saved), &Config::default());
    }
});
