//! Tests that `list.txt` names every litmus test of the suite, and that its statuses are true.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use rushmem_litmus::list::{self, Status};
use rushmem_litmus::{check, table};

#[test]
fn list_has_every_litmus_test() {
    let ids: Vec<&str> = list::read().into_iter().map(|(id, _)| id).collect();
    let wanted: Vec<String> = (1..=109).map(|n| format!("L{n:02}")).collect();
    assert_eq!(ids, wanted);
}

#[test]
fn list_marks_exactly_the_implemented_tests_as_run() {
    let mut runs: BTreeSet<&str> = table::all().iter().map(|test| test.id).collect();
    runs.extend(check::all().iter().flat_map(|check| check.ids));
    runs.insert(check::LEAVE_BEHIND);
    let listed: BTreeSet<&str> =
        list::read().into_iter().filter(|(_, status)| *status == Status::Run).map(|(id, _)| id).collect();
    assert_eq!(runs, listed);
}

#[test]
fn listed_files_and_functions_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for (id, status) in list::read() {
        match status {
            Status::Run => {}
            Status::CompileFail(file) => {
                assert!(root.join("tests/litmus/fail").join(&file).is_file(), "{id}: {file}");
            }
            Status::Elsewhere(place) => {
                let (file, function) = place.split_once("::").expect("FILE::FUNCTION");
                let text = std::fs::read_to_string(root.join("../..").join(file)).expect(file);
                assert!(text.contains(&format!("fn {function}()")), "{id}: {place}");
            }
            Status::Documented(why) => assert!(why.ends_with('.'), "{id}: {why}"),
        }
    }
}

#[test]
fn test_names_are_unique() {
    let mut names = BTreeSet::new();
    for test in table::all() {
        assert!(names.insert((test.id, test.name.clone())), "{} {}", test.id, test.name);
    }
}

#[test]
#[ignore = "slow: runs with --ignored"]
fn incorrect_programs_do_not_compile() {
    trybuild::TestCases::new().compile_fail("tests/litmus/fail/*.rs");
}

#[test]
fn memory_model_page_names_existing_tests_and_programs() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = fs::read_to_string(root.join("docs/memory-model.md")).unwrap();
    let files = fs::read_dir(root.join("tests/sanitizer/src/programs")).unwrap();
    let programs: String = files.map(|file| fs::read_to_string(file.unwrap().path()).unwrap()).collect();
    let listed = list::read();
    let rows: Vec<&str> = page.lines().skip_while(|line| !line.starts_with("| property |")).skip(2).collect();
    assert!(rows.len() > 20, "{} rows", rows.len());
    for row in rows {
        let cells: Vec<&str> = row.trim_matches('|').split('|').collect();
        let [_, ids, names] = cells[..] else { panic!("three cells: {row}") };
        for id in ids.split(',').map(str::trim) {
            assert!(
                listed.iter().any(|(known, status)| *known == id && *status == Status::Run),
                "{id}: {row}"
            );
        }
        for name in names.split('`').skip(1).step_by(2) {
            assert!(programs.contains(&format!("fn {name}(")), "{name}: {row}");
        }
    }
}
