//! Tests for details in the reports on some programs.

use rushmem::Error;
use rushmem::sanitizer::{Awaited, Deadlock, Finding, Race};
use rushmem_sanitizer_suite::all;

/// Runs a program and returns its only finding.
fn finding(name: &str) -> Finding {
    let program = all().into_iter().flat_map(|topic| topic.programs).find(|program| program.name == name);
    let program = program.unwrap_or_else(|| panic!("{name}: no such program"));
    match program.run_job(&[("sanitize", "on"), ("timeout", "20s")]) {
        Err(Error::Sanitizer(mut findings)) if findings.len() == 1 => findings.remove(0),
        other => panic!("{name}: {other:?}"),
    }
}

/// Returns the words that the threads of a deadlocked program wait for.
fn awaited(name: &str) -> (Deadlock, Vec<Awaited>) {
    let Finding::Deadlock(deadlock) = finding(name) else { panic!("{name}: no deadlock") };
    let words = deadlock.stuck.iter().filter_map(|stuck| stuck.word.clone()).collect();
    (deadlock, words)
}

fn race(name: &str) -> Race {
    let Finding::Race(race) = finding(name) else { panic!("{name}: no race") };
    *race
}

fn name_of(awaited: &Awaited) -> &'static str {
    awaited.word.object.expect("an object").label.name
}

#[test]
fn deadlock_report_shows_the_value_and_writer_of_the_awaited_word() {
    let (deadlock, words) = awaited("more_signals_than_are_sent");
    let [word] = &words[..] else { panic!("{deadlock}") };
    assert_eq!((name_of(word), word.value), ("flag", Some(2)), "{deadlock}");
    assert_eq!(word.writer.unwrap().call.name, "signal_op", "{deadlock}");
    let text = deadlock.to_string();
    assert!(text.contains("\n    word:      bytes 0..8 of `flag`, allocated at "), "{text}");
    assert!(text.contains("\n    value:     2\n    writer:    PE "), "{text}");
}

#[test]
fn deadlock_report_shows_writers_of_neighbouring_words() {
    let (deadlock, words) = awaited("signal_to_another_word");
    let [word] = &words[..] else { panic!("{deadlock}") };
    assert_eq!((name_of(word), word.value, word.writer), ("words", Some(0), None), "{deadlock}");
    let [(other, party)] = &word.elsewhere[..] else { panic!("{deadlock}") };
    assert_eq!((party.actor.pe(), party.call.name), (0, "signal_op"), "{deadlock}");
    assert!(other.to_string().starts_with("bytes 0..8 of `words`"), "{deadlock}");
}

#[test]
fn deadlock_report_shows_writers_of_copies_on_other_pes() {
    let (deadlock, words) = awaited("signal_to_another_pe");
    let [word] = &words[..] else { panic!("{deadlock}") };
    let [(other, party)] = &word.elsewhere[..] else { panic!("{deadlock}") };
    assert_eq!((other.span.memory.pe, party.call.name), (0, "signal_op"), "{deadlock}");
}

#[test]
fn deadlock_report_shows_the_lock_holder() {
    let (deadlock, words) = awaited("locks_in_opposite_order");
    assert_eq!(words.len(), 2, "{deadlock}");
    for word in words {
        let holder = word.holder.unwrap_or_else(|| panic!("{deadlock}"));
        assert_eq!(
            (holder.actor.pe(), holder.call.name),
            (1 - word.word.span.memory.pe, "set_lock"),
            "{deadlock}"
        );
    }
    assert!(deadlock.to_string().contains("\n    holder:    PE "), "{deadlock}");
}

#[test]
fn race_report_shows_the_awaited_value_and_its_sender() {
    let race = race("signal_without_fence");
    let seen = race.seen.unwrap_or_else(|| panic!("{race}"));
    assert_eq!((seen.value, seen.word.object.unwrap().label.name), (Some(1), "flag"), "{race}");
    assert_eq!((seen.call.name, seen.writer.call.name), ("signal_wait_until", "signal_op"), "{race}");
    let text = race.to_string();
    assert!(text.contains("\n  wait:    `signal_wait_until` at "), "{text}");
    assert!(text.contains(" saw 1 in bytes 0..8 of `flag`, allocated at "), "{text}");
    assert!(
        text.contains("\n  sender:  PE 0 signal_op (an operation in flight to PE 1) sets in `signal_op` at "),
        "{text}"
    );
}
