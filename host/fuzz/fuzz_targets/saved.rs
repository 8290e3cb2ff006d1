//! Whatever stands in the file of a saved machine, it is judged or refused.
#![no_main]

use rushmem::config::Config;
use rushmem::doctor::{Host, examine};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok(saved) = serde_json::from_slice(bytes) {
        examine(&Host::of(saved), &Config::default());
    }
});
