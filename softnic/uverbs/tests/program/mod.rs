//! `verbs.c`, compiled.

use crate::common::skip;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns the program, made for this test of this name; or nothing where that is not possible.
pub(crate) fn verbs_program(test: &str) -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/verbs.c");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("verbs-{test}"));
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".into());
    let header = "#include <infiniband/verbs.h>\n";
    let probe = program.with_extension("c");
    std::fs::write(&probe, header).unwrap();
    let possible = Command::new(&compiler).arg("-fsyntax-only").arg(&probe).output();
    if !possible.is_ok_and(|output| output.status.success()) {
        skip(test, "a C compiler, or infiniband/verbs.h of the package libibverbs-dev");
        return None;
    }
    let mut compile = Command::new(&compiler);
    compile.args(["-O1", "-Wall", "-Wextra", "-Werror", "-o"]).arg(&program).arg(&source).arg("-libverbs");
    let output = compile.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(program)
}
