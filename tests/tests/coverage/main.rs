//! What Rushmem has of the operations that users of this field know: `docs/coverage.json` names for each the public items and
//! the tests that show it, and both must exist. `docs/coverage.md` is made from it.
//!
//! Write the page again with `UPDATE_DOCS=1 cargo test -p rushmem-tests --test coverage`.

mod made;
mod page;
mod source;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use source::Source;

/// One family of operations.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    /// Group and number.
    id: String,
    operation: String,
    /// 1: not real without it. 2: users of NVSHMEM expect it. 3: beyond.
    tier: u8,
    /// Where it is offered: `host`, `device`, `stream`, joined by `|`.
    side: String,
    state: State,
    /// Paths of public items, such as `rushmem_device::Ctx::put`, or settings, such as `setting heap_bytes`.
    items: Vec<String>,
    /// Tests, such as `tests/tests/suite/rma.rs::odd_sizes_and_offsets`.
    tests: Vec<String>,
    note: String,
    openshmem: String,
    nvshmem: String,
    rocshmem: String,
    nccl_gin: String,
    gpunetio: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum State {
    /// All that the row asks for, on every side.
    Done,
    /// Some of it; the note tells what is missing.
    Partial,
    /// Nothing; the note tells why.
    No,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn rows() -> Vec<Row> {
    let text = std::fs::read_to_string(root().join("docs/coverage.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

#[test]
fn what_is_named_exists() {
    let source = Source::read(&root());
    let mut wrong = Vec::new();
    for row in rows() {
        let missing = |what: &&String| !source.has(what);
        wrong.extend(row.items.iter().filter(missing).map(|item| format!("{}: no item {item}", row.id)));
        let missing = |test: &&String| !source.has_test(test);
        wrong.extend(row.tests.iter().filter(missing).map(|test| format!("{}: no test {test}", row.id)));
    }
    assert!(wrong.is_empty(), "docs/coverage.json:\n{}", wrong.join("\n"));
}

#[test]
fn every_row_says_what_it_must() {
    let mut ids = BTreeSet::new();
    for row in rows() {
        assert!(ids.insert(row.id.clone()), "{} twice", row.id);
        assert!((1..=3).contains(&row.tier), "{}", row.id);
        let shown = !row.items.is_empty() && !row.tests.is_empty();
        let right = match row.state {
            State::Done => shown,
            State::Partial => shown && !row.note.is_empty(),
            State::No => row.tests.is_empty() && !row.note.is_empty(),
        };
        assert!(right, "{}: items, tests and note do not go with its state", row.id);
    }
    assert_eq!(ids.len(), 218);
}

#[test]
fn the_page_is_as_the_table() {
    let path = root().join("docs/coverage.md");
    let page = page::page(&rows());
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap();
    assert!(found == page, "docs/coverage.md is out of date; write it again as the head of this file says");
}

#[test]
fn what_does_not_exist_is_noticed() {
    let source = Source::read(&root());
    for item in ["rushmem_device::Ctx::put", "rushmem::Pe", "rushmem::ptx", "setting heap_bytes"] {
        assert!(source.has(item), "{item}");
    }
    let absent =
        ["rushmem_device::Ctx::putt", "rushmem::Ctx::put", "rushmem_device::Ctx::fail", "setting heep"];
    for item in absent {
        assert!(!source.has(item), "{item}");
    }
    // Made by local macros of another file.
    for item in [
        "rushmem_device::shmem::shmem_put",
        "rushmem_device::shmem_xor_reduce",
        "rushmem_device::shmem_test_all_vector",
    ] {
        assert!(source.has(item), "{item}");
    }
    assert!(!source.has("rushmem_device::shmem_putt"));
    let paths = "tests/litmus/tests/litmus/paths.rs";
    assert!(source.has_test(&format!("{paths}::p2p_and_nic")), "made by a macro");
    assert!(!source.has_test(&format!("{paths}::indirect")));
    let here = "tests/tests/coverage/main.rs::";
    assert!(source.has_test(&format!("{here}what_does_not_exist_is_noticed")));
    assert!(!source.has_test(&format!("{here}rows")), "no test");
    assert!(!source.has_test("tests/tests/nowhere.rs::rows"));
}
