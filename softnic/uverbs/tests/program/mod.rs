//! C programs of these suites, compiled.
#![allow(dead_code, reason = "each suite uses one of them")]

use crate::common::skip;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A compiler's command, the header that it must find, and the Debian package that has it.
struct Toolchain<'a> {
    compiler: &'a str,
    flags: &'a [&'a str],
    header: &'a str,
    package: &'a str,
}

/// Returns `verbs.c`, made for the test of this name; or nothing where that is not possible.
pub(crate) fn verbs_program(test: &str) -> Option<PathBuf> {
    with_cc(test, "verbs", "infiniband/verbs.h", "libibverbs-dev", &["-libverbs"])
}

/// Returns `masked.c`, made for the test of this name; or nothing where that is not possible.
pub(crate) fn masked_program(test: &str) -> Option<PathBuf> {
    compile(test, "masked", ("infiniband/mlx5dv.h", "libibverbs-dev"), &["-libverbs", "-lmlx5"])
}

/// Returns `cuda.c`, made for the test of this name; or nothing where that is not possible.
pub(crate) fn cuda_program(test: &str) -> Option<PathBuf> {
    with_cc(test, "cuda/cuda", "infiniband/verbs.h", "libibverbs-dev", &["-libverbs"])
}

/// Returns the folder of the stand-in for the CUDA driver, made for the test of this name.
pub(crate) fn cuda_library(test: &str) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cuda/libcuda.c");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("libcuda-{test}"));
    std::fs::create_dir_all(&folder).unwrap();
    let mut compile = Command::new(std::env::var("CC").unwrap_or_else(|_| "cc".into()));
    compile.args(["-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-fvisibility=hidden"]);
    compile.arg("-Wl,-soname,libcuda.so.1").arg("-o").arg(folder.join("libcuda.so.1")).arg(source);
    succeeds(&mut compile);
    folder
}

/// Returns `ucx.c`, made for the test of this name; or nothing where that is not possible.
pub(crate) fn ucx_program(test: &str) -> Option<PathBuf> {
    with_cc(test, "ucx", "ucp/api/ucp.h", "libucx-dev", &["-lucp", "-lucs"])
}

/// Returns `mpi.c`, made by the compiler of an MPI for the test of this name; or nothing where that is not possible.
pub(crate) fn mpi_program(test: &str, compiler: &str, package: &str) -> Option<PathBuf> {
    // MPICH's headers say that an array of statuses has elements, even MPI_STATUSES_IGNORE.
    let flags = &["-Wno-stringop-overflow"];
    compile(test, "mpi", &Toolchain { compiler, flags, header: "mpi.h", package })
}

/// Returns `shmem.c`, made for the test of this name; or nothing where that is not possible.
pub(crate) fn shmem_program(test: &str) -> Option<PathBuf> {
    // Open MPI has the collectives of OpenSHMEM 1.4, which its header calls deprecated, and no newer ones.
    let flags = &["-Wno-deprecated-declarations"];
    let toolchain = Toolchain { compiler: "oshcc", flags, header: "shmem.h", package: "libopenmpi-dev" };
    compile(test, "shmem", &toolchain)
}

fn with_cc(test: &str, name: &str, header: &str, package: &str, flags: &[&str]) -> Option<PathBuf> {
    let compiler = &std::env::var("CC").unwrap_or_else(|_| "cc".into());
    compile(test, name, &Toolchain { compiler, flags, header, package })
}

fn compile(test: &str, name: &str, tools: &Toolchain) -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/{name}.c"));
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{}-{test}", name.replace('/', "-")));
    let probe = program.with_extension("c");
    std::fs::write(&probe, format!("#include <{}>\n", tools.header)).unwrap();
    let possible = Command::new(tools.compiler).arg("-fsyntax-only").arg(&probe).output();
    if !possible.is_ok_and(|output| output.status.success()) {
        let Toolchain { compiler, header, package, .. } = tools;
        skip(test, &format!("{compiler}, or {header} of the package {package}"));
        return None;
    }
    let mut compile = Command::new(tools.compiler);
    compile.args(["-O1", "-Wall", "-Wextra", "-Werror", "-o"]).arg(&program).arg(&source).args(tools.flags);
    succeeds(&mut compile);
    Some(program)
}

fn succeeds(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
