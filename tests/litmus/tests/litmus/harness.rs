//! Checks the sensitivity of the suite: incorrect programs must show forbidden outcomes.

use rushmem_litmus::path::{Faults, PATHS, Path};
use rushmem_litmus::program::Test;
use rushmem_litmus::{run, table};

const ROUNDS: u64 = 512;
/// Maximum number of jobs to run until a rare outcome occurs.
const JOBS: u32 = 40;

/// Runs the litmus test named `test` in new jobs until `seen` accepts the counts of one of them.
fn until_seen(test: &Test, path: Path, seen: impl Fn(&rushmem_litmus::report::Row) -> bool) {
    for _ in 0..JOBS {
        let rows =
            run::run(&path, std::slice::from_ref(test), ROUNDS).unwrap_or_else(|error| panic!("{error}"));
        if rows.iter().any(&seen) {
            return;
        }
    }
    let rounds = u64::from(JOBS) * ROUNDS;
    panic!("{} {}, {}: never seen in {rounds} rounds", test.id, test.name, path.title());
}

/// Reports the test as skipped if kernels run on a GPU. Returns whether they do.
///
/// On a GPU, the software ConnectX is much slower than the kernels, so how often rare outcomes occur depends on the
/// machine.
fn skipped(test: &str) -> bool {
    let skipped = run::on_gpu();
    if skipped {
        eprintln!("SKIPPED {test}: kernels run on a GPU");
    }
    skipped
}

#[test]
#[ignore = "slow: runs with --ignored"]
fn incorrect_programs_show_forbidden_outcomes() {
    if skipped("incorrect_programs_show_forbidden_outcomes") {
        return;
    }
    for (test, path) in table::wrong() {
        until_seen(&test, PATHS[path].with_adversary(), |row| row.forbidden > 0);
    }
}

/// Whether this build and machine can run native kernels with weak memory. If not, prints why.
pub(crate) fn has_weak_memory(test: &str) -> bool {
    let has = rushmem_device::watch::ENABLED && !run::on_gpu();
    if !has {
        eprintln!("SKIPPED {test}: only native kernels of debug builds have it");
    }
    has
}

#[test]
#[ignore = "slow: runs with --ignored"]
fn weak_memory_exposes_missing_fences() {
    if !has_weak_memory("weak_memory_exposes_missing_fences") {
        return;
    }
    for (test, path) in table::weak_memory() {
        until_seen(&test, PATHS[path].with_weak_memory(), |row| row.forbidden > 0);
    }
}

#[test]
fn fences_depend_on_the_reported_order() {
    if skipped("fences_depend_on_the_reported_order") {
        return;
    }
    // With a single QP per peer, `fence` has nothing to wait for.
    let hidden = PATHS[2].with(Faults::Hidden);
    for name in ["a fence between p and its flag, Thread", "a fence between put_nbi of 5 and its flag, Block"]
    {
        until_seen(&named(name), hidden, |row| row.forbidden > 0);
    }
}

fn named(name: &str) -> Test {
    table::all().into_iter().find(|test| test.name == name).expect("a test of this name")
}

#[test]
#[ignore = "slow: runs with --ignored"]
fn fence_and_quiet_depend_on_read_backs_where_keys_are_relaxed() {
    if skipped("fence_and_quiet_depend_on_read_backs_where_keys_are_relaxed") {
        return;
    }
    for name in [
        "a fence between put_nbi of 5 and its flag, Block",
        "a fence between put_nbi of 5 and its flag, a put_nbi of 1, Block",
        "a fence between two puts to the same words",
        "put_nbi of 5, quiet, flag to a third PE, which puts to the same words",
    ] {
        until_seen(&named(name), PATHS[2].with(Faults::RelaxedUnasked), |row| row.forbidden > 0);
    }
}

#[test]
fn signals_depend_on_strict_keys() {
    if !skipped("signals_depend_on_strict_keys") {
        let announced = named("put_signal_nbi of 32, Block");
        until_seen(&announced, PATHS[2].with(Faults::RelaxedWords), |row| row.forbidden > 0);
    }
}

#[test]
fn ack_does_not_order_puts_through_two_nics() {
    if !skipped("ack_does_not_order_puts_through_two_nics") {
        until_seen(&table::acknowledged_only(), PATHS[7].with(Faults::Reordering), |row| row.forbidden > 0);
    }
}

#[test]
fn allowed_weak_outcomes_occur() {
    if skipped("allowed_weak_outcomes_occur") {
        return;
    }
    for (name, path) in [
        ("a fence orders nothing between two targets", 2),
        ("get_nbi, fence, put of the same word", 2),
        ("two contexts, fence of the first", 3),
        ("the last word of a put as its flag", 2),
        ("put to the calling PE, read through its own view", 1),
    ] {
        until_seen(&named(name), PATHS[path].with_adversary(), |row| {
            row.weak.iter().any(|(_, seen)| *seen > 0)
        });
    }
}
