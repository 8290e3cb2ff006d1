//! Runs all programs of the sanitizer suite, and checks the marks and docs in their source files.
//!
//! `SANITIZER_SUITE_PROGRAM` selects a single program to run.

mod processes;
mod remedies;
mod reports;

use std::collections::BTreeSet;

use rushmem::Error;
use rushmem::sanitizer::{Call, Finding, Site};
use rushmem_sanitizer_suite::{Listing, Program, Topic, Verdict, all};

fn chosen(topic: &str) -> Vec<(Topic, Program)> {
    let only = std::env::var("SANITIZER_SUITE_PROGRAM").ok();
    let topic = all().into_iter().find(|found| found.name == topic).expect("a topic");
    let is_chosen = |program: &&Program| only.as_deref().is_none_or(|only| program.name == only);
    topic.programs.iter().filter(is_chosen).map(|program| (topic, *program)).collect()
}

/// Runs the programs of a topic. Fails with the list of those for which `check` returns a problem.
fn assert_all(topic: &str, check: impl Fn(&Topic, &Program) -> Option<String> + Sync) {
    let problem = |(topic, program): &(Topic, Program)| {
        check(topic, program).map(|problem| format!("{}: {problem}", program.name))
    };
    let is_deadlock = |(_, program): &(Topic, Program)| program.verdict == Verdict::Deadlock;
    let (deadlocks, others): (Vec<_>, Vec<_>) = chosen(topic).into_iter().partition(is_deadlock);
    let mut problems: Vec<String> = others.iter().filter_map(problem).collect();
    // A deadlock takes seconds, during which its PEs only wait, so run several at the same time.
    for some in deadlocks.chunks(4) {
        std::thread::scope(|scope| {
            let threads: Vec<_> = some.iter().map(|program| scope.spawn(|| problem(program))).collect();
            problems.extend(threads.into_iter().filter_map(|thread| thread.join().expect("no panic")));
        });
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

/// Programs with a loop that never terminates without the sanitizer, because no deadline applies to it.
const ENDLESS: &[&str] = &[
    "test_loop_that_nobody_ends",
    "relaxed_loop_that_nobody_ends",
    "fetch_loop_that_nobody_ends",
    "plain_loop_that_nobody_ends",
];

/// Runs a program without the sanitizer: a deadlock must fail at the deadline, and all others must finish without an
/// error.
fn ends(program: &Program) -> Option<String> {
    if ENDLESS.contains(&program.name) {
        return None;
    }
    let deadline = if program.verdict == Verdict::Deadlock { "500ms" } else { "60s" };
    // Only clean programs must also work through a NIC.
    let paths = if program.verdict == Verdict::Clean { &["p2p", "nic"][..] } else { &["p2p"] };
    paths.iter().find_map(|path| {
        let ended = program.run_job(&[("peer_path", path), ("timeout", deadline)]);
        let problem = match (ended, program.verdict) {
            (Ok(()), Verdict::Deadlock) => "it ended".into(),
            (Err(error), Verdict::Deadlock) if error.to_string().contains("the deadline") => return None,
            (Ok(()), Verdict::Clean | Verdict::Race) => return None,
            (Err(error), _) => error.to_string(),
        };
        Some(format!("{path}: {problem}"))
    })
}

/// Checks that the sanitizer reaches the program's verdict and reports the marked lines. Returns the problem, if any.
fn misjudged(topic: &Topic, program: &Program) -> Option<String> {
    // The sanitizer watches a wait for seconds before it reports a deadlock.
    let deadline = if program.verdict == Verdict::Deadlock { "20s" } else { "60s" };
    match program.run_job(&[("sanitize", "on"), ("timeout", deadline)]) {
        Ok(()) => misjudgement(topic, program, &[]),
        Err(Error::Sanitizer(findings)) => misjudgement(topic, program, &findings),
        Err(error) => Some(error.to_string()),
    }
}

/// Checks that the findings match the program's verdict and marked lines. Returns the problem, if any.
fn misjudgement(topic: &Topic, program: &Program, findings: &[Finding]) -> Option<String> {
    let marks = Listing::of(topic, program.name).expect("a program of its topic").marks;
    let lines = |sites: &[Site]| -> Vec<u32> {
        sites.iter().filter(|site| site.file == topic.file).map(|site| site.line).collect()
    };
    let is_right = match (program.verdict, findings) {
        (Verdict::Clean, []) => true,
        (Verdict::Race, [Finding::Race(race)]) => {
            // Which of the two accesses comes first depends on the timing.
            let mut found = lines(&[race.first.call.site, race.second.call.site]);
            let mut wanted = [marks.first, marks.second].concat();
            found.sort_unstable();
            wanted.sort_unstable();
            found == wanted && remedies::helps(program.name, race.missing)
        }
        (Verdict::Deadlock, [Finding::Deadlock(deadlock)]) => {
            // Hosts that wait for their launches are reported too.
            let found = lines(&deadlock.stuck.iter().map(|stuck| stuck.call.site).collect::<Vec<_>>());
            let calls = deadlock.stuck.iter().map(|stuck| stuck.call);
            marks.waits.iter().all(|line| found.contains(line))
                && calls.into_iter().all(|call| is_named(topic, call))
        }
        _ => false,
    };
    let texts = findings.iter().map(|finding| format!("\n{finding}"));
    (!is_right).then(|| format!("{} findings{}", findings.len(), texts.collect::<String>()))
}

/// Whether the source line of a call contains a call with this name as a prefix.
fn is_named(topic: &Topic, Call { name, site }: Call) -> bool {
    let line = topic.text.lines().nth(site.line as usize - 1).unwrap_or_default();
    site.file != topic.file || line.contains(&format!(".{name}"))
}

/// Defines tests of each topic, with and without the sanitizer.
macro_rules! topics {
    ($($topic:ident)*) => {
        const TESTED: &[&str] = &[$(stringify!($topic)),*];

        mod without_sanitizer {
            $(#[test]
            #[ignore = "slow: runs with --ignored"]
            fn $topic() {
                super::assert_all(stringify!($topic), |_, program| super::ends(program));
            })*
        }

        mod with_sanitizer {
            $(#[test]
            fn $topic() {
                super::assert_all(stringify!($topic), super::misjudged);
            })*
        }

        mod processes_with_sanitizer {
            $(#[test]
            #[ignore = "slow: runs with --ignored"]
            fn $topic() {
                super::assert_all(stringify!($topic), super::processes::misjudged);
            })*
        }
    };
}

topics! {
    flags sources arrivals gets overlaps signals atomics relaxed threads collectives teams contexts pending locks
    launches hosts lifetimes deadlocks patterns ranges conflicts publication pipelines queues phases
}

#[test]
fn all_topics_have_tests() {
    let topics: BTreeSet<&str> = all().iter().map(|topic| topic.name).collect();
    assert_eq!(topics, BTreeSet::from_iter(TESTED.iter().copied()));
}

#[test]
fn names_are_unique() {
    let mut names = BTreeSet::new();
    for topic in all() {
        for program in topic.programs {
            assert!(names.insert(program.name), "{}", program.name);
        }
    }
    assert!(names.len() >= 120, "{} programs", names.len());
}

#[test]
fn sources_match_the_program_table() {
    for topic in all() {
        let mut last = 0;
        for program in topic.programs {
            let name = program.name;
            let listing = Listing::of(&topic, name).unwrap_or_else(|| panic!("{name}: no such function"));
            assert!(listing.doc.ends_with('.'), "{name}: no doc");
            assert!(listing.line > last, "{name}: not in the order of the file");
            last = listing.line;
            let marks = listing.marks;
            let counts = (marks.first.len(), marks.second.len(), !marks.waits.is_empty());
            let wanted = match program.verdict {
                Verdict::Clean => (0, 0, false),
                Verdict::Race => (1, 1, false),
                Verdict::Deadlock => (0, 0, true),
            };
            assert_eq!(counts, wanted, "{name}: numbers of marks");
        }
    }
}
