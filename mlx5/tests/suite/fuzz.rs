//! Runs the fuzz targets on their corpora and on random mutations of them, on stable Rust.

use rushmem_corpus::FuzzTarget;

#[allow(unreachable_pub, reason = "public in the fuzz crate, which shares the file")]
#[path = "../../fuzz/src/lib.rs"]
mod targets;

const MUTATIONS: u64 = 20_000;

#[test]
fn fuzz_corpus() {
    for (name, target, messages) in targets::targets() {
        FuzzTarget::new(env!("CARGO_MANIFEST_DIR"), name).messages(messages).run(MUTATIONS, target);
    }
}
