//! Checks that the table of programs in `docs/softnic.md` names tests of this directory.

use std::path::Path;

/// Returns the tests named in table rows, as `file::test`.
fn named(page: &str) -> Vec<(&str, &str)> {
    let rows = page.lines().filter(|line| line.starts_with('|'));
    let words = rows.flat_map(|row| row.split('`').skip(1).step_by(2));
    words.filter_map(|word| word.split_once("::")).collect()
}

#[test]
fn the_table_of_programs_names_tests() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = std::fs::read_to_string(root.join("../../docs/softnic.md")).unwrap();
    let tests = named(&page);
    assert!(tests.len() > 30, "the table is gone: {tests:?}");
    for (file, test) in tests {
        let source = std::fs::read_to_string(root.join(format!("tests/{file}.rs"))).unwrap_or_default();
        let before = source.split_once(&format!("\nfn {test}()")).map_or("", |(before, _)| before);
        let attributes = before.rsplit("\n\n").next().unwrap_or_default();
        assert!(attributes.contains("#[test]"), "there is no test {file}::{test}");
    }
}

#[test]
fn names_are_found_in_rows_only() {
    let page = "`no::row`\n| `ib_write_bw` | RC | `perftest::writes`, `perftest::reads` |\n";
    assert_eq!(named(page), [("perftest", "writes"), ("perftest", "reads")]);
}
