//! Checks the Rushmem names in `docs/porting.md`.

use rushmem::config::{PREFIX, SETTINGS};

use crate::source::Source;
use crate::{SOURCE, root};

/// Returns the names in backquotes in the last column of each table.
fn names(page: &str) -> impl Iterator<Item = &str> {
    let rows = page.lines().filter(|line| line.starts_with("| "));
    let ours = rows.filter_map(|row| row.trim_end_matches(" |").rsplit(" | ").next());
    ours.flat_map(|cell| cell.split('`').skip(1).step_by(2))
}

/// Whether a setting, or an item of a crate for users, has this name. Text that does not look like a name is accepted.
fn exists(source: &Source, name: &str) -> bool {
    if name.starts_with(PREFIX) {
        return SETTINGS.iter().any(|setting| setting.env == name);
    }
    let is_item = name.contains("::") && !name.contains(' ');
    !is_item || ["rushmem", "rushmem_device"].iter().any(|krate| source.has(&format!("{krate}::{name}")))
}

#[test]
fn porting_guide_names_existing_items() {
    let source = &*SOURCE;
    let page = std::fs::read_to_string(root().join("docs/porting.md")).unwrap();
    assert!(names(&page).count() > 100, "the tables were not found");
    let missing: Vec<_> = names(&page).filter(|name| !exists(source, name)).collect();
    assert!(missing.is_empty(), "docs/porting.md names {missing:?}, which do not exist");
    assert!(!exists(source, "Pe::mallocc") && !exists(source, "RUSHMEM_HEEP"));
}
