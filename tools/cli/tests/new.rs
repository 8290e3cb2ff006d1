//! Tests of the command `rushmem new`: the created project builds, passes its test and runs.

mod common;

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use common::{rushmem, without_settings};
use tempfile::TempDir;

fn new(folder: &Path, args: &[&str]) -> Output {
    rushmem().arg("new").args(args).current_dir(folder).output().unwrap()
}

#[track_caller]
fn created(folder: &Path, args: &[&str]) -> String {
    let output = new(folder, args);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the error message of a command that fails with code 2.
#[track_caller]
fn refused(folder: &Path, args: &[&str]) -> String {
    let output = new(folder, args);
    assert_eq!(output.status.code(), Some(2), "{}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8(output.stderr).unwrap()
}

/// Returns the root folder of this repository.
fn repository() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
    root.to_str().unwrap().to_owned()
}

/// Runs Cargo in the project, with this build's target folder. Compiles nothing for GPUs.
#[track_caller]
fn cargo(project: &Path, args: &[&str]) -> String {
    let output = cargo_output(project, args);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "cargo {args:?}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

fn cargo_output(project: &Path, args: &[&str]) -> Output {
    let mut cargo = without_settings(Command::new(env!("CARGO")));
    cargo.args(args).arg("--offline").current_dir(project).env("RUSHMEM_PTX", "none");
    // Cargo has set this for the test, because this crate's build script builds kernels.
    cargo.env_remove("KERNEL_PTX_INDEX");
    cargo.env("RUSHMEM_DEVICE", "native").env("RUSHMEM_PES", "3");
    cargo.env("CARGO_TARGET_DIR", Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap());
    cargo.output().unwrap()
}

/// Returns the messages of a build that must fail with exactly one compiler error.
#[track_caller]
fn error_of_build(project: &Path) -> String {
    let output = cargo_output(project, &["build", "--quiet"]);
    let messages = String::from_utf8(output.stderr).unwrap();
    let errors = messages.lines().filter(|line| line.starts_with("error"));
    assert_eq!(errors.filter(|line| !line.contains("could not compile")).count(), 1, "{messages}");
    messages
}

#[test]
fn project_inside_another_workspace_is_independent() {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("Cargo.toml"), "[workspace]\nmembers = []\n").unwrap();
    created(folder.path(), &["my-app"]);
    cargo(&folder.path().join("my-app"), &["metadata", "--no-deps", "--format-version", "1"]);
}

#[test]
#[ignore = "slow: runs with --ignored"]
fn project_passes_its_test_and_runs_with_every_launch_method() {
    let tmp = TempDir::new().unwrap();
    let said = created(tmp.path(), &["new-project-test"]);
    assert!(said.contains(&format!("which uses the Rushmem repository {}", repository())), "{said}");
    let project = tmp.path().join("new-project-test");

    let tests = cargo(&project, &["test"]);
    assert!(tests.contains("each_pe_receives_the_number_of_the_previous_pe ... ok"), "{tests}");
    let threads = cargo(&project, &["run", "--quiet"]);
    let mut lines: Vec<&str> = threads.lines().collect();
    lines.sort();
    assert_eq!(lines, ["PE 0 of 3 received 2", "PE 1 of 3 received 0", "PE 2 of 3 received 1"]);

    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let program = target.join("debug/new-project-test");
    let output =
        rushmem().args(["run", "-n", "2"]).arg(program).env("RUSHMEM_DEVICE", "native").output().unwrap();
    let processes = String::from_utf8(output.stdout).unwrap();
    assert!(
        processes.contains("PE 1 of 2 received 0"),
        "{processes}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
#[ignore = "slow: runs with --ignored"]
fn mistakes_with_ptx_are_one_clear_error() {
    let tmp = TempDir::new().unwrap();
    created(tmp.path(), &["ptx-mistakes-test"]);
    let project = tmp.path().join("ptx-mistakes-test");
    let main = project.join("src/main.rs");
    let right = fs::read_to_string(&main).unwrap();
    fs::write(&main, right.replace("ptx!(\"kernels\")", "ptx!(\"other_kernels\")")).unwrap();
    let wrong_name = error_of_build(&project);
    assert!(wrong_name.contains("build.rs builds no kernels of this name"), "{wrong_name}");
    assert!(wrong_name.contains("src/main.rs:9"), "{wrong_name}");

    fs::write(&main, right).unwrap();
    fs::remove_file(project.join("build.rs")).unwrap();
    let no_script = error_of_build(&project);
    assert!(no_script.contains("needs a build.rs that calls rushmem_ptx::build"), "{no_script}");
}

#[test]
fn keeps_existing_files() {
    let tmp = TempDir::new().unwrap();
    fs::create_dir(tmp.path().join("empty")).unwrap();
    created(tmp.path(), &["empty"]);
    let error = refused(tmp.path(), &["empty"]);
    assert!(error.contains("the folder empty exists and is not empty; take another name"), "{error}");
    fs::write(tmp.path().join("file"), "kept").unwrap();
    let error = refused(tmp.path(), &["file"]);
    assert!(error.contains("file exists and is not a readable folder"), "{error}");
    assert_eq!(fs::read_to_string(tmp.path().join("file")).unwrap(), "kept");
}

#[test]
fn rejects_bad_names_and_repositories() {
    let tmp = TempDir::new().unwrap();
    for (name, why) in
        [("a b", "' ' is not a letter"), ("fn", "another meaning"), ("a/b", "name without path")]
    {
        let error = refused(tmp.path(), &[name]);
        assert!(
            error.contains(&format!("cannot name a project `{name}`: ")) && error.contains(why),
            "{error}"
        );
    }
    let error = refused(tmp.path(), &["x", "--path", "/"]);
    assert!(error.contains("--path /: no Rushmem repository is there"), "{error}");
    assert_eq!(fs::read_dir(tmp.path()).unwrap().count(), 0);
}
