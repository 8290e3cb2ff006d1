//! The language rules that a program can check, applied to all Rust and Markdown files of the repository.
//!
//! A sentence has at most 25 words and does not begin with "What" or "As". Docs of functions begin with a verb, docs of types
//! with a noun. Public functions of the runtime and the device API list their errors. `text` and `rust` hold the rules.

mod rust;
mod text;

use std::collections::BTreeSet;
use std::path::Path;

use rushmem_tests::repository;

use rust::check_rust;
use text::{Finding, check, paragraphs};

/// Areas that are not rewritten yet: prefixes of paths. An entry without findings fails the test.
const PENDING: &[&str] = &[];

/// Areas where fallible public functions do not list their errors yet.
const PENDING_ERRORS: &[&str] = &[];

/// Areas where fallible public functions must list their errors.
const ERRORS: &[&str] = &["host/", "device/src/"];

/// Returns the findings in a file.
fn check_file(path: &str, text: &str) -> Vec<Finding> {
    if path.ends_with(".rs") {
        let needs_errors = path.contains("src/") && ERRORS.iter().any(|area| path.starts_with(area));
        return check_rust(text, needs_errors);
    }
    let lines = text.lines().enumerate().map(|(i, line)| (i + 1, line));
    paragraphs(lines).iter().flat_map(|(line, paragraph)| check(*line, paragraph)).collect()
}

/// Returns whether a compiler test shows an error in this file on purpose.
fn is_refused(path: &Path) -> bool {
    path.iter().any(|part| part == "fail" || part == "refused")
}

/// Returns the findings that no entry of `pending` allows, and the entries that allow nothing.
fn disallowed<'a>(found: &[(String, Finding)], pending: &[&'a str]) -> (Vec<String>, Vec<&'a str>) {
    let mut unused: BTreeSet<&str> = pending.iter().copied().collect();
    let mut wrong = Vec::new();
    for (path, finding) in found {
        let is_allowed = pending.iter().any(|entry| path.starts_with(entry));
        if !is_allowed {
            wrong.push(format!("{path}:{}: {}: {}", finding.line, finding.rule, finding.text));
        }
        unused.retain(|entry| !path.starts_with(entry));
    }
    (wrong, unused.into_iter().collect())
}

/// Fails with the findings that `pending` does not allow.
fn assert_allowed(found: &[(String, Finding)], pending: &[&str]) {
    let (wrong, unused) = disallowed(found, pending);
    assert!(wrong.is_empty(), "{} findings:\n{}", wrong.len(), wrong.join("\n"));
    assert!(unused.is_empty(), "these entries allow nothing any more, remove them: {unused:?}");
}

fn all_findings() -> Vec<(String, Finding)> {
    let files = repository::files(&["rs", "md"]);
    assert!(files.len() > 50, "found {} files only", files.len());
    let mut found = Vec::new();
    for file in files.iter().filter(|file| !is_refused(file)) {
        let path = file.to_string_lossy();
        let findings = check_file(&path, &repository::read(file));
        found.extend(findings.into_iter().map(|finding| (path.clone().into_owned(), finding)));
    }
    found
}

fn is_about_errors(finding: &Finding) -> bool {
    finding.rule == "`# Errors` lists the errors"
}

#[test]
fn prose_follows_the_rules() {
    let found: Vec<_> = all_findings().into_iter().filter(|(_, f)| !is_about_errors(f)).collect();
    assert_allowed(&found, PENDING);
}

#[test]
fn public_functions_list_their_errors() {
    let found: Vec<_> = all_findings().into_iter().filter(|(_, f)| is_about_errors(f)).collect();
    assert_allowed(&found, PENDING_ERRORS);
}

#[test]
fn no_name_has_the_old_suffix_of_slow_paths() {
    let suffix = concat!("_other", "wise");
    let files = repository::files(&["rs"]);
    let found: Vec<_> = files.iter().filter(|file| repository::read(file).contains(suffix)).collect();
    assert!(found.is_empty(), "`{suffix}` is in {found:?}; outlined slow paths end with `_slow`");
}

#[test]
fn entries_that_allow_nothing_are_reported() {
    let finding = |line| Finding { line, rule: "rule", text: "text".into() };
    let found = [("a/b.rs".into(), finding(1)), ("c.md".into(), finding(2))];
    let (wrong, unused) = disallowed(&found, &["a/", "d/"]);
    assert_eq!(wrong, ["c.md:2: rule: text"]);
    assert_eq!(unused, ["d/"]);
}
