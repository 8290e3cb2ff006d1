//! C programs of these suites, compiled.
#![allow(dead_code, reason = "each suite uses one of them")]

use crate::common::skip;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns `verbs.c`, made for the test of this name; or nothing where that is not possible.
pub(crate) fn verbs_program(test: &str) -> Option<PathBuf> {
    compile(test, "verbs", ("infiniband/verbs.h", "libibverbs-dev"), &["-libverbs"])
}

/// Returns `ucx.c`, made for the test of this name; or nothing where that is not possible.
pub(crate) fn ucx_program(test: &str) -> Option<PathBuf> {
    compile(test, "ucx", ("ucp/api/ucp.h", "libucx-dev"), &["-lucp", "-lucs"])
}

fn compile(test: &str, name: &str, (header, package): (&str, &str), libraries: &[&str]) -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/{name}.c"));
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{test}"));
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".into());
    let probe = program.with_extension("c");
    std::fs::write(&probe, format!("#include <{header}>\n")).unwrap();
    let possible = Command::new(&compiler).arg("-fsyntax-only").arg(&probe).output();
    if !possible.is_ok_and(|output| output.status.success()) {
        skip(test, &format!("a C compiler, or {header} of the package {package}"));
        return None;
    }
    let mut compile = Command::new(&compiler);
    compile.args(["-O1", "-Wall", "-Wextra", "-Werror", "-o"]).arg(&program).arg(&source).args(libraries);
    let output = compile.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(program)
}
