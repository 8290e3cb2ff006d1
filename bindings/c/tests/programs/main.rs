//! Compiles C programs against the library and the header, and runs them; links programs in CUDA C++.

mod nvcc;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use rushmem_tests::launch::{all, clean, launcher, sorted, text};
use rushmem_tests::skip;

/// Returns the folder with the library. Builds it first, because cargo builds only Rust libraries for tests.
fn built() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let build = || {
        let folder: PathBuf = std::env::current_exe().unwrap().ancestors().nth(2).unwrap().into();
        let profile = if folder.ends_with("release") { "release" } else { "dev" };
        let mut command = Command::new(env!("CARGO"));
        // With one test of the workspace, dependencies get the same features as in `cargo test --workspace`.
        command.args(["build", "-q", "--workspace", "--lib", "--test", "info", "--profile", profile]);
        let status = command.current_dir(env!("CARGO_MANIFEST_DIR")).status();
        assert!(status.is_ok_and(|status| status.success()), "the library cannot be built");
        folder
    };
    BUILT.get_or_init(build).clone()
}

/// Compiles the C program `source`, a path relative to the package, as `name`.
fn compile(source: &str, name: &str, arguments: &[&str]) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let mut command = Command::new("cc");
    command
        .args(["-std=c11", "-D_POSIX_C_SOURCE=200809L", "-Wall", "-Wextra", "-Werror", "-I"])
        .arg(folder.join("include"));
    command.arg("-o").arg(&program).arg(folder.join(source)).args(arguments);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    program
}

/// Compiles a program that uses the shared library.
fn compile_shared(source: &str) -> PathBuf {
    let built = built().display().to_string();
    let name = Path::new(source).file_stem().unwrap().to_str().unwrap();
    compile(source, name, &["-L", &built, "-lrushmem", &format!("-Wl,-rpath,{built}")])
}

/// Returns the command `rushmem run -n PES PROGRAM`, or `None` if the launcher is not built.
fn run(test: &str, pes: &str, program: &Path) -> Option<Command> {
    let Some(launcher) = launcher(built().join("program").to_str().unwrap()) else {
        skip(test, "the launcher is not built: cargo build -p rushmem-cli");
        return None;
    };
    let mut command = clean(&launcher);
    command.args(["run", "-n", pes]).arg(program);
    Some(command)
}

#[test]
fn ring_of_four_processes() {
    let program = compile_shared("examples/ring.c");
    let Some(mut command) = run("ring_of_four_processes", "4", &program) else { return };
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", all(&output));
    let wanted = (0..4).map(|pe| format!("[{pe}] PE {pe} of 4 has the message of PE {}", (pe + 3) % 4));
    assert_eq!(sorted(&output.stdout), wanted.collect::<Vec<_>>());
}

#[test]
fn calls_do_what_the_header_says_and_reject_misuse() {
    let program = compile_shared("tests/calls.c");
    // Other processes cannot map the caller's host memory.
    for (path, arguments) in [("nic", &[][..]), ("p2p", &["without-windows"])] {
        let Some(mut command) = run("calls_do_what_the_header_says", "3", &program) else { return };
        let files = tempfile::tempdir().unwrap();
        let output =
            command.env("RUSHMEM_PEER_PATH", path).args(arguments).arg(files.path()).output().unwrap();
        assert!(output.status.success(), "{path}: {}", all(&output));
        let wanted = (0..3).map(|pe| format!("[{pe}] PE {pe} passed"));
        assert_eq!(sorted(&output.stdout), wanted.collect::<Vec<_>>());
    }
}

#[test]
fn living_pes_go_on() {
    let program = compile_shared("tests/survivors.c");
    let Some(mut command) = run("living_pes_go_on", "3", &program) else { return };
    let output = command.env("RUSHMEM_MEMBERSHIP", "live").output().unwrap();
    assert!(output.status.success(), "{}", all(&output));
    assert_eq!(sorted(&output.stdout), ["[0] PE 0 passed", "[2] PE 2 passed"]);
}

#[test]
fn processes_find_each_other_by_a_unique_id() {
    let output = clean(&compile_shared("tests/unique_id.c")).output().unwrap();
    assert!(output.status.success(), "{:?}: {}", output.status, all(&output));
}

#[test]
fn static_library_needs_the_libraries_of_the_pkg_config_file() {
    let config =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("rushmem.pc.in")).unwrap();
    let private = config.lines().find_map(|line| line.strip_prefix("Libs.private: ")).unwrap();
    let library = built().join("librushmem.a").display().to_string();
    let arguments: Vec<&str> = [library.as_str()].into_iter().chain(private.split(' ')).collect();
    let output = clean(&compile("examples/ring.c", "static_ring", &arguments)).output().unwrap();
    assert_eq!(text(&output.stdout), "PE 0 of 1 has the message of PE 0\n", "{}", all(&output));
}
