//! Tests of collective team calls on several PEs, with and without injected faults.

use rushmem::Job;
use rushmem_litmus::check;
use rushmem_litmus::path::{Faults, PATHS, Path};

/// Returns a path without a NIC, and one with the strongest faults.
fn two_paths() -> impl Iterator<Item = Path> {
    [PATHS[5], PATHS[8].with(Faults::Reordering)].into_iter()
}

fn all_paths() -> impl Iterator<Item = Path> {
    let paths = || PATHS.iter().filter(|path| path.pes > 1);
    let adverse = paths().map(|path| path.with_adversary());
    let reordering = paths().skip(1).map(|path| path.with(Faults::Reordering));
    // Paths with one queue, with 3 queues, and with 2 NICs.
    let relaxed = [2, 3, 7].map(|path| PATHS[path].with(Faults::Relaxed));
    paths().copied().step_by(2).chain(adverse.step_by(2)).chain(reordering.step_by(2)).chain(relaxed)
}

fn assert_check(name: &str, paths: impl Iterator<Item = Path>) {
    let check = check::named(name);
    for path in paths {
        let job = Job::with_config(path.config(9)).kernels(rushmem::ptx!("rushmem_litmus_kernels"));
        let wrong = job.run(|pe| check.run(pe)).unwrap_or_else(|error| panic!("{}: {error}", path.title()));
        assert_eq!(wrong, vec![Vec::<String>::new(); 3], "{}", path.title());
    }
}

#[test]
fn consecutive_collective_calls_do_not_overlap() {
    assert_check("consecutive collective calls do not overlap", two_paths());
}

#[test]
#[ignore = "slow: runs with --ignored"]
fn consecutive_collective_calls_do_not_overlap_on_any_path() {
    assert_check("consecutive collective calls do not overlap", all_paths());
}

#[test]
fn two_teams_do_not_interfere() {
    assert_check("collective calls of two teams are independent", all_paths());
}

#[test]
fn empty_calls_and_single_member_teams_are_legal() {
    assert_check("empty data and teams of one are legal", all_paths());
}
