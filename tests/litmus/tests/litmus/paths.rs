//! Every test on every path.

use std::path::Path as File;
use std::sync::{LazyLock, Mutex, PoisonError};

use crate::harness;
use rushmem_litmus::path::{Faults, PATHS, Path};
use rushmem_litmus::{report, run, table};

/// A lock that serializes native jobs, because the machine may be small. Jobs on GPUs run in parallel.
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
    // A program that was copied to another machine has no target folder.
    let built = File::new(env!("CARGO_TARGET_TMPDIR"));
    let folder = if built.is_dir() { built.to_owned() } else { std::env::temp_dir() };
    std::fs::write(folder.join(file), text).unwrap();
    let failures = report::failures(&rows);
    assert!(failures.is_empty(), "forbidden outcomes:\n{failures}");
}

/// Runs the suite where plain accesses are as weak as those of a GPU. GPUs themselves need no such path.
fn nothing_forbidden_in_weak_memory(path: Path) {
    if harness::has_weak_memory("weak memory") {
        nothing_forbidden(path.with_weak_memory());
    }
}

#[test]
fn own_memory_weak() {
    nothing_forbidden_in_weak_memory(PATHS[0]);
}

#[test]
fn p2p_weak() {
    nothing_forbidden_in_weak_memory(PATHS[5]);
}

#[test]
fn p2p_and_nic_weak_adversary() {
    nothing_forbidden_in_weak_memory(PATHS[6].with_adversary());
}

macro_rules! paths {
    ($($name:ident $($adverse:ident $reordering:ident $relaxed:ident)? = $i:literal;)*) => {$(
        #[test]
        fn $name() {
            nothing_forbidden(PATHS[$i]);
        }

        $(#[test]
        fn $adverse() {
            nothing_forbidden(PATHS[$i].with_adversary());
        }

        #[test]
        fn $reordering() {
            nothing_forbidden(PATHS[$i].with(Faults::Reordering));
        }

        #[test]
        fn $relaxed() {
            nothing_forbidden(PATHS[$i].with(Faults::Relaxed));
        })?
    )*};
}

paths! {
    own_memory = 0;
    own_nic own_nic_adversary own_nic_reordering own_nic_relaxed = 1;
    one_queue one_queue_adversary one_queue_reordering one_queue_relaxed = 2;
    three_queues three_queues_adversary three_queues_reordering three_queues_relaxed = 3;
    collapsed collapsed_adversary collapsed_reordering collapsed_relaxed = 4;
    p2p = 5;
    p2p_and_nic p2p_and_nic_adversary p2p_and_nic_reordering p2p_and_nic_relaxed = 6;
    two_nics two_nics_adversary two_nics_reordering two_nics_relaxed = 7;
    two_nics_with_queues two_nics_with_queues_adversary two_nics_with_queues_reordering
        two_nics_with_queues_relaxed = 8;
}
