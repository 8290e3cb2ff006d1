//! Runs each litmus program under the sanitizer, without injected faults. It must flag those with a race, and no
//! others.

use rushmem::sanitizer::Finding;
use rushmem::{Error, Job};
use rushmem_litmus::check;
use rushmem_litmus::program::{Race, Test};
use rushmem_litmus::{path, run, table};

/// Number of rounds per program. The second round encounters the words that all rounds share.
const ROUNDS: u64 = 2;
/// Maximum number of runs until the sanitizer must have found a race that only occurs if a certain actor wins.
const RUNS: u32 = 60;

/// Tests with allowed but rare outcomes that do not race, each with the reason.
const NO_RACE: &[(&str, &str)] = &[
    ("stores through ptr, fence, p", "The weak outcome is another path."),
    ("two fetching atomics, unfenced", "Atomics of one word never race; only their order is open."),
    (
        "two PEs set a word each and fetch the other, nothing in between",
        "Atomics of one word never race; only their order is open.",
    ),
];

/// Returns the sanitizer's findings in one run of a test.
fn findings(test: &Test) -> Vec<Finding> {
    match run::run_sanitized(test, ROUNDS) {
        Ok(_) => Vec::new(),
        Err(Error::Sanitizer(findings)) => findings,
        Err(error) => panic!("{} {}: {error}", test.id, test.name),
    }
}

/// Returns all litmus programs, including those that must show forbidden outcomes.
fn all() -> impl Iterator<Item = Test> {
    let wrong = table::wrong().into_iter().chain(table::weak_memory()).map(|(test, _)| test);
    table::all().into_iter().chain(wrong).chain([table::acknowledged_only()])
}

#[test]
fn first_run_of_each_program_finds_its_race() {
    let mut problems = Vec::new();
    for test in all() {
        if !matches!(test.race, Race::None | Race::Always) {
            continue;
        }
        let found = findings(&test);
        let name = format!("{} {}", test.id, test.name);
        if test.race == Race::None {
            problems.extend(found.iter().map(|finding| format!("{name}: {finding}")));
        } else if found.is_empty() {
            problems.push(format!("{name}: no finding"));
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn schedule_dependent_races_are_found_in_some_run() {
    for test in all() {
        let Race::ByWinner(_) = test.race else { continue };
        let is_found = (0..RUNS).any(|_| !findings(&test).is_empty());
        assert!(is_found, "{} {}: no finding in {RUNS} runs", test.id, test.name);
    }
}

#[test]
fn programs_with_weak_outcomes_are_racy() {
    for test in all().filter(|test| !test.weak.is_empty()) {
        let is_listed = NO_RACE.iter().any(|(name, _)| *name == test.name);
        assert_eq!(test.race == Race::None, is_listed, "{} {}", test.id, test.name);
    }
    assert!(table::wrong().iter().all(|(test, _)| test.race != Race::None));
}

#[test]
fn checks_with_separate_kernels_are_judged() {
    let job = || Job::with_config(path::sanitized()).kernels(rushmem::ptx!("rushmem_litmus_kernels"));
    for check in check::all() {
        match (job().run(|pe| check.run(pe)), check.race) {
            (Ok(wrong), Race::None) => assert_eq!(wrong, vec![Vec::<String>::new(); 3]),
            (Err(Error::Sanitizer(_)), Race::Always) => {}
            (result, race) => panic!("{}: {race:?}, and the job ended with {result:?}", check.name),
        }
    }
    job().run(check::leave_behind).unwrap_or_else(|error| panic!("{}: {error}", check::LEAVE_BEHIND));
}
