//! `docs/settings.md` says what the table of settings says.
//!
//! Write it again with `UPDATE_DOCS=1 cargo test -p rushmem-tests --test settings`.

use std::fmt::Write;
use std::path::Path;

use rushmem::config::{OTHER_VARIABLES, SETTINGS};

const HEAD: &str = "\
# Settings

This page is made from the table in `host/src/config/table.rs`; a test compares.

Each layer overrides the one before: the default, a TOML file named by `RUSHMEM_CONFIG` (keys as below), the environment,
and a program or its command line. A name that no setting has, in any layer, is an error that names the nearest one.
`rushmem info` shows the values in force and where each comes from; `rushmem run` passes them on to all PEs.
";

fn page() -> String {
    let mut page = HEAD.to_owned();
    let mut write = |line: String| writeln!(page, "{line}").unwrap();
    for setting in SETTINGS.iter().filter(|setting| !setting.launch) {
        let unit = if setting.unit.is_empty() { String::new() } else { format!(" ({})", setting.unit) };
        let default =
            if setting.default.is_empty() { "none".into() } else { format!("`{}`", setting.default) };
        write(format!("\n## `{}`\n", setting.key));
        write(format!("{}\n", setting.doc));
        write(format!("- Variable: `{}`", setting.env));
        write(format!("- Value{unit}: {}", setting.accepts()));
        write(format!("- Default: {default}"));
    }
    write("\n## Set by the launcher\n".into());
    write("`rushmem run` sets these for each PE; users do not.\n".into());
    write("| variable | meaning |\n|---|---|".into());
    for setting in SETTINGS.iter().filter(|setting| setting.launch) {
        write(format!("| `{}` | {} |", setting.env, setting.doc));
    }
    write("\n## Other variables\n".into());
    write("| variable | meaning |\n|---|---|".into());
    for (name, meaning) in OTHER_VARIABLES {
        write(format!("| `{name}` | {meaning} |"));
    }
    page
}

#[test]
fn the_page_of_settings_is_as_the_table() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/settings.md");
    let page = page();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap();
    assert!(found == page, "docs/settings.md is out of date; write it again as the head of this file says");
}
