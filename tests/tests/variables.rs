//! Tests that the table of settings contains every environment variable that a crate of this repository reads.
//!
//! A job rejects unknown variables with the prefix `RUSHMEM_`. So a variable that is missing in the table would stop
//! every program as soon as a user sets it.

use std::path::Path;

use rushmem::config::{OTHER_VARIABLES, PREFIX, SETTINGS};
use rushmem_tests::repository;
use rushmem_tests::rust_source::{Token, tokens};

/// Whether the file at `path` consists of test code, which may also use invalid names.
fn is_test_file(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name == "tests.rs") || path.iter().any(|part| part == "tests")
}

/// Whether `text` is exactly the name of a Rushmem variable.
fn is_variable(text: &str) -> bool {
    text.strip_prefix(PREFIX).is_some_and(|rest| {
        !rest.is_empty() && rest.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')
    })
}

/// Whether the last one of `tokens` is an argument of a call that reads an environment variable.
fn reads_environment(tokens: &[Token]) -> bool {
    let texts: Vec<&str> = tokens.iter().map(|token| token.text.as_str()).collect();
    matches!(texts[..], [.., "var" | "var_os", "(", _] | [.., "env" | "option_env", "!", "(", _])
}

/// Returns the line numbers and names of the environment variables that the code reads or mentions.
///
/// Test code may mention any name, so only direct reads count there.
fn variables(source: &str, is_test: bool) -> Vec<(usize, String)> {
    let tokens = tokens(source);
    let begins_tests = |tokens: &[Token]| {
        tokens.iter().map(|token| token.text.as_str()).eq(["(", "test", ")", "]", "mod", "tests"])
    };
    let tests = tokens.windows(6).position(begins_tests).unwrap_or(tokens.len());
    let mut found = Vec::new();
    for (i, token) in tokens.iter().enumerate() {
        let Some(name) = token.text.strip_prefix('"').and_then(|text| text.strip_suffix('"')) else {
            continue;
        };
        if is_variable(name) && (!is_test && i < tests || reads_environment(&tokens[i.saturating_sub(3)..=i]))
        {
            found.push((token.line, name.to_owned()));
        }
    }
    found
}

#[test]
fn every_environment_variable_is_in_the_settings_table() {
    let known = |name: &str| {
        SETTINGS.iter().any(|setting| setting.env == name)
            || OTHER_VARIABLES.iter().any(|(other, _)| *other == name)
    };
    let mut count = 0;
    let mut unknown = Vec::new();
    for path in repository::files(&["rs"]) {
        for (line, name) in variables(&repository::read(&path), is_test_file(&path)) {
            count += 1;
            if !known(&name) {
                unknown.push(format!("{}:{line}: {name}", path.display()));
            }
        }
    }
    assert!(count > 60, "found {count} variables only");
    assert!(unknown.is_empty(), "add these to host/config/src/table.rs:\n{}", unknown.join("\n"));
}

#[test]
fn finds_variables_in_constants_and_calls() {
    let source = "const A: &str = \"RUSHMEM_A\";\n// \"RUSHMEM_B\"\nf(\"see RUSHMEM_C\", \"RUSHMEM_\");\n\
                  #[cfg(test)]\nmod tests {\n    let x = \"RUSHMEM_D\";\n    env::var(\"RUSHMEM_E\");\n}\n";
    assert_eq!(variables(source, false), [(1, "RUSHMEM_A".to_owned()), (7, "RUSHMEM_E".to_owned())]);
    assert_eq!(variables(source, true), [(7, "RUSHMEM_E".to_owned())]);
}
