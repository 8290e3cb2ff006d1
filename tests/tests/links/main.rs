//! Tests that links between the documents of the repository refer to existing files and headings.

mod targets;

use std::path::Path;

use rushmem_tests::repository;

#[test]
fn links_resolve() {
    let read = |path: &Path| {
        let whole = repository::root().join(path);
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        whole.is_dir().then(String::new).or_else(|| std::fs::read(whole).ok().map(text))
    };
    let mut links = 0;
    let mut problems = Vec::new();
    for file in repository::files(&["md"]) {
        for target in targets::targets(&repository::read(&file)) {
            links += 1;
            let problem = targets::problem(&file, &target, read);
            problems.extend(problem.map(|problem| format!("{}: {problem}", file.display())));
        }
    }
    assert!(links > 50, "found {links} links only");
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}
