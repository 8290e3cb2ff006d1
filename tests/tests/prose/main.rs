//! The language rules that a program can check, applied to all Rust and Markdown files of the repository.
//!
//! A sentence has at most 25 words and does not begin with "What" or "As". Docs of functions begin with a verb, docs of types
//! with a noun. Public functions of the runtime and the device API list their errors. `text` and `rust` hold the rules. Links
//! between documents lead to files and headings that exist.

mod links;
mod rust;
mod text;

use std::path::Path;

use rushmem_tests::repository;

use rust::check_rust;
use text::{Finding, check, paragraphs};

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

#[test]
fn prose_follows_the_rules() {
    let found = all_findings();
    let text = |(path, finding): &(String, Finding)| {
        format!("{path}:{}: {}: {}", finding.line, finding.rule, finding.text)
    };
    let lines: Vec<_> = found.iter().map(text).collect();
    assert!(found.is_empty(), "{} findings:\n{}", lines.len(), lines.join("\n"));
}

#[test]
fn links_lead_somewhere() {
    let read = |path: &Path| {
        let whole = repository::root().join(path);
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        whole.is_dir().then(String::new).or_else(|| std::fs::read(whole).ok().map(text))
    };
    let mut links = 0;
    let mut problems = Vec::new();
    for file in repository::files(&["md"]) {
        for target in links::targets(&repository::read(&file)) {
            links += 1;
            let problem = links::problem(&file, &target, read);
            problems.extend(problem.map(|problem| format!("{}: {problem}", file.display())));
        }
    }
    assert!(links > 50, "found {links} links only");
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn no_name_has_the_old_suffix_of_slow_paths() {
    let suffix = concat!("_other", "wise");
    let files = repository::files(&["rs"]);
    let found: Vec<_> = files.iter().filter(|file| repository::read(file).contains(suffix)).collect();
    assert!(found.is_empty(), "`{suffix}` is in {found:?}; outlined slow paths end with `_slow`");
}
