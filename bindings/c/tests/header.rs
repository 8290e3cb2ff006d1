//! Generates `include/rushmem.h` from the exported functions, and checks the committed header.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use cbindgen::{Builder, Config, DocumentationStyle, EnumConfig, Language, RenameRule, Style};

/// The modules of `src/api`, in the order of the header's sections.
const SECTIONS: [&str; 10] =
    ["job", "memory", "windows", "rma", "order", "teams", "collectives", "membership", "storage", "kernels"];

const START: &str = r#"/*
 * The host API of Rushmem for C and C++: GPU-initiated networking, and one-sided communication between hosts.
 *
 * Unless its documentation says otherwise, a function returns a `rushmem_status` as int32_t: 0 for success.
 * `rushmem_error_message` then says what failed. Any thread may call any function. Collective functions must be called
 * by all PEs (processing elements, here processes) in the same order and with the same sizes.
 *
 * Symmetric memory and handles are looked up, so wrong, freed and finalized ones are errors. Any other pointer must be
 * null, or valid for what the function does with it: null is an error where a value is needed, and so is a misaligned
 * pointer. Strings are UTF-8. Memory of streams and of the caller must exist as long as the documentation demands.
 *
 * This file is generated: `UPDATE_DOCS=1 cargo test -p rushmem-c --test header`.
 */
#ifndef RUSHMEM_H
#define RUSHMEM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

"#;

const END: &str = r#"
#ifdef __cplusplus
}
#endif

#endif /* RUSHMEM_H */
"#;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Returns the declarations of a source file.
fn declarations(file: &Path) -> String {
    let config = Config {
        language: Language::C,
        no_includes: true,
        documentation_style: DocumentationStyle::Cxx,
        style: Style::Both,
        usize_is_size_t: true,
        line_length: 120,
        enumeration: EnumConfig {
            prefix_with_name: true,
            rename_variants: RenameRule::ScreamingSnakeCase,
            ..EnumConfig::default()
        },
        export: cbindgen::ExportConfig {
            include: [
                "status",
                "device_kind",
                "signal",
                "cmp",
                "type",
                "op",
                "init_options",
                "pe",
                "object",
                "window",
                "team",
            ]
            .map(|name| format!("rushmem_{name}"))
            .into(),
            ..cbindgen::ExportConfig::default()
        },
        ..Config::default()
    };
    let bindings = Builder::new().with_config(config).with_src(file).generate().unwrap();
    let mut text = Vec::new();
    bindings.write(&mut text);
    String::from_utf8(text).unwrap().trim().to_owned()
}

/// Returns the title and the text of a module, from its documentation.
fn heading(file: &Path) -> (String, String) {
    let source = std::fs::read_to_string(file).unwrap();
    let mut lines = source.lines().map_while(|line| line.strip_prefix("//!")).map(str::trim);
    let title = lines.next().unwrap().to_owned();
    (title, lines.collect::<Vec<_>>().join("\n").trim().to_owned())
}

fn header() -> String {
    let src = folder().join("src");
    let mut text = START.to_owned() + &declarations(&src.join("types.rs")) + "\n";
    for section in SECTIONS {
        let file = src.join("api").join(section).with_extension("rs");
        let (title, about) = heading(&file);
        write!(text, "\n/*\n * {title}\n * {}\n", "-".repeat(title.len())).unwrap();
        about.lines().for_each(|line| writeln!(text, " * {line}").unwrap());
        write!(text, " */\n\n{}\n", declarations(&file)).unwrap();
    }
    text + END
}

#[test]
fn committed_header_is_up_to_date() {
    let path = folder().join("include/rushmem.h");
    let wanted = header();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, &wanted).unwrap();
    }
    let found = std::fs::read_to_string(path).unwrap();
    assert!(found == wanted, "include/rushmem.h is out of date; update it as its introduction says");
}

#[test]
fn header_has_all_sections() {
    let files = std::fs::read_dir(folder().join("src/api")).unwrap();
    let names = files.map(|file| file.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned());
    let wanted = SECTIONS.iter().map(|name| name.to_string()).chain(["mod".into()]);
    assert_eq!(names.collect::<BTreeSet<_>>(), wanted.collect());
}

#[test]
fn header_compiles_as_c11_and_cpp17_without_warnings() {
    let include = folder().join("include/rushmem.h");
    for (compiler, standard, language) in [("cc", "-std=c11", "c"), ("c++", "-std=c++17", "c++")] {
        let mut command = Command::new(compiler);
        command.args([
            standard,
            "-Wall",
            "-Wextra",
            "-Wpedantic",
            "-Werror",
            "-fsyntax-only",
            "-x",
            language,
        ]);
        let output = command.arg(&include).output().unwrap();
        assert!(output.status.success(), "{compiler}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn statuses_are_those_of_the_runtime() {
    let header = header();
    let errors = rushmem_tests::repository::read("docs/errors.md");
    let (of_hosts, _) = errors.split_once("## Of kernels").unwrap();
    let listed = of_hosts.lines().filter_map(|line| {
        let cells: Vec<&str> = line.strip_prefix('|')?.split('|').map(str::trim).collect();
        Some((cells[0].parse::<u32>().ok()?, cells[1].trim_matches('`').to_uppercase()))
    });
    let statuses: Vec<_> = listed.collect();
    assert!(statuses.len() >= 14, "{statuses:?}");
    for (code, name) in statuses {
        let line = format!("  RUSHMEM_STATUS_{name} = {code},\n");
        assert!(header.contains(&line), "{line}");
    }
}
