//! Runs every litmus test on every path. The ignored paths are variations of the others.

use std::path::Path as File;
use std::sync::{LazyLock, Mutex, PoisonError};

use crate::harness;
use rushmem_litmus::path::{Faults, PATHS, Path};
use rushmem_litmus::{report, run, table};

/// Serializes native jobs, because the machine may be small. Jobs on GPUs run in parallel.
static ONE: Mutex<()> = Mutex::new(());
static ON_GPU: LazyLock<bool> = LazyLock::new(run::on_gpu);

fn nothing_forbidden(path: Path) {
    let _one = (!*ON_GPU).then(|| ONE.lock().unwrap_or_else(PoisonError::into_inner));
    let start = std::time::Instant::now();
    let rows = run::run(&path, &table::all(), run::rounds())
        .unwrap_or_else(|error| panic!("{}: {error}", path.title()));
    let text = report::table(&rows);
    println!("{text}{} in {:?}\n", path.title(), start.elapsed());
    let file = format!("litmus {}.txt", path.title()).replace([' ', ','], "-").replace("--", "-");
    // A test program that was copied to another machine has no target folder.
    let built = File::new(env!("CARGO_TARGET_TMPDIR"));
    let folder = if built.is_dir() { built.to_owned() } else { std::env::temp_dir() };
    std::fs::write(folder.join(file), text).unwrap();
    let failures = report::failures(&rows);
    assert!(failures.is_empty(), "forbidden outcomes:\n{failures}");
}

/// Runs the suite with plain accesses that are as weakly ordered as on a GPU. GPUs themselves need no such path.
fn nothing_forbidden_in_weak_memory(path: Path) {
    if harness::has_weak_memory("weak memory") {
        nothing_forbidden(path.with_weak_memory());
    }
}

#[test]
#[ignore = "slow: runs with --ignored"]
fn own_memory_weak() {
    nothing_forbidden_in_weak_memory(PATHS[0]);
}

#[test]
fn p2p_weak() {
    nothing_forbidden_in_weak_memory(PATHS[5]);
}

#[test]
#[ignore = "slow: runs with --ignored"]
fn p2p_and_nic_weak_adversary() {
    nothing_forbidden_in_weak_memory(PATHS[6].with_adversary());
}

/// Defines a test function for each path, with the given faults. Functions marked `ignore` run with `--ignored` only.
macro_rules! paths {
    ($($name:ident = $i:literal, $faults:ident $(, $ignore:ident)?;)*) => {$(
        $(#[$ignore = "slow: runs with --ignored"])?
        #[test]
        fn $name() {
            nothing_forbidden(PATHS[$i].with(Faults::$faults));
        }
    )*};
}

paths! {
    own_memory = 0, None;
    own_nic = 1, None, ignore;
    own_nic_adversary = 1, Adversary, ignore;
    own_nic_reordering = 1, Reordering, ignore;
    own_nic_relaxed = 1, Relaxed, ignore;
    one_queue = 2, None, ignore;
    one_queue_adversary = 2, Adversary, ignore;
    one_queue_reordering = 2, Reordering, ignore;
    one_queue_relaxed = 2, Relaxed, ignore;
    three_queues = 3, None, ignore;
    three_queues_adversary = 3, Adversary, ignore;
    three_queues_reordering = 3, Reordering, ignore;
    three_queues_relaxed = 3, Relaxed, ignore;
    collapsed = 4, None, ignore;
    collapsed_adversary = 4, Adversary, ignore;
    collapsed_reordering = 4, Reordering, ignore;
    collapsed_relaxed = 4, Relaxed, ignore;
    p2p = 5, None, ignore;
    p2p_and_nic = 6, None, ignore;
    p2p_and_nic_adversary = 6, Adversary, ignore;
    p2p_and_nic_reordering = 6, Reordering, ignore;
    p2p_and_nic_relaxed = 6, Relaxed, ignore;
    two_nics = 7, None, ignore;
    two_nics_adversary = 7, Adversary, ignore;
    two_nics_reordering = 7, Reordering, ignore;
    two_nics_relaxed = 7, Relaxed, ignore;
    two_nics_with_queues = 8, None, ignore;
    two_nics_with_queues_adversary = 8, Adversary, ignore;
    two_nics_with_queues_reordering = 8, Reordering;
    two_nics_with_queues_relaxed = 8, Relaxed, ignore;
}
