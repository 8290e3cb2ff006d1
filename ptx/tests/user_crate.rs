//! Tests of an application outside this repository that builds its own kernels with one line in `build.rs`.
//!
//! The tests compile for GPUs. Without a PTX compiler, they report that they were skipped, or fail if `CI_REQUIRE_ALL`
//! is set.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use rushmem_ptx::{Header, Search, ptxas};
use tempfile::TempDir;

const KERNELS: &str = r#"//! Kernels of an application.
#![cfg_attr(target_arch = "nvptx64", no_std, feature(abi_ptx))]
#![forbid(unsafe_code)]

use rushmem_device::Ctx;
use rushmem_device::kernel::kernel;

mod more;
pub use more::second;

/// Has arguments of every size.
#[kernel]
pub fn first(_ctx: &Ctx, a: u8, b: u32, c: f64) {
    let _ = (a, b, c);
}
"#;

const MORE: &str = r#"use rushmem_device::Ctx;
use rushmem_device::kernel::kernel;

/// Lies in another module.
#[kernel]
pub fn second(_ctx: &Ctx, n: u64) -> Result<(), u32> {
    let kept = core::hint::black_box(place(place(n)));
    if kept > 3 { Err(1) } else { Ok(()) }
}

#[inline(never)]
#[track_caller]
fn place(n: u64) -> u64 {
    n ^ core::panic::Location::caller().file().as_ptr().addr() as u64
}
"#;

const MAIN: &str = r#"fn main() {
    print!("{}", include_str!(concat!(env!("OUT_DIR"), "/app_kernels.ptx")));
    assert_eq!(app_kernels::second(7).name(), "second");
}
"#;

/// An application with kernels, in a temporary folder.
struct App {
    dir: TempDir,
    name: &'static str,
}

impl App {
    /// Writes an application with `build` as the body of `main` in its `build.rs`. All tests share a target folder, so
    /// each must choose a unique name.
    fn new(name: &'static str, build: &str) -> Self {
        let app = Self { dir: TempDir::new().unwrap(), name };
        let project = project();
        app.write(
            "Cargo.toml",
            &format!(
                "[package]\nname = '{name}'\nversion = '0.1.0'\nedition = '2024'\n[workspace]\n\
                 [dependencies]\napp-kernels = {{ path = 'kernels' }}\n\
                 [build-dependencies]\nrushmem-ptx = {{ path = '{}' }}\n[profile.dev]\ndebug = false\n",
                project.join("ptx").display()
            ),
        );
        app.write(
            "kernels/Cargo.toml",
            &format!(
                "[package]\nname = 'app-kernels'\nversion = '0.1.0'\nedition = '2024'\n\
                 [dependencies]\nrushmem-device = {{ path = '{}' }}\n",
                project.join("device").display()
            ),
        );
        // These versions have already been downloaded, so the test needs no network access.
        fs::copy(project.join("Cargo.lock"), app.path("Cargo.lock")).unwrap();
        app.write("build.rs", &format!("fn main() {{\n    {build}\n}}\n"));
        app.write("src/main.rs", MAIN);
        app.write("kernels/src/lib.rs", KERNELS);
        app.write("kernels/src/more.rs", MORE);
        app
    }

    /// Writes an application with its kernels in the module `src/kernels.rs`.
    fn with_module(name: &'static str) -> Self {
        let app = Self::new(name, r#"rushmem_ptx::build("src/kernels.rs");"#);
        fs::remove_dir_all(app.path("kernels")).unwrap();
        let manifest = fs::read_to_string(app.path("Cargo.toml")).unwrap();
        let device = format!("rushmem-device = {{ path = '{}' }}", project().join("device").display());
        app.write("Cargo.toml", &manifest.replace("app-kernels = { path = 'kernels' }", &device));
        app.write("src/main.rs", &format!("mod kernels;\n{}", MAIN.replace("app_kernels", "kernels")));
        let (_, rest) = KERNELS.split_once("feature(abi_ptx))]\n").unwrap();
        app.write("src/kernels.rs", &format!("//! Kernels of an application.\n{rest}"));
        app.write(
            "src/kernels/more.rs",
            &MORE.replace("use rushmem_device::Ctx;", "use crate::kernels::Ctx;"),
        );
        app
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Runs `cargo run` on the application with these environment variables.
    fn run(&self, env: &[(&str, &str)]) -> Output {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["run", "--quiet", "--offline", "--target-dir"]);
        cargo.arg(target());
        cargo.current_dir(self.dir.path());
        for name in ["RUSHMEM_PTX", "CARGO_TARGET_DIR", "RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS"] {
            cargo.env_remove(name);
        }
        cargo.envs(env.iter().copied()).output().unwrap()
    }

    /// Returns the PTX that the application embeds.
    fn ptx(&self, env: &[(&str, &str)]) -> String {
        let output = self.run(env);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{error}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Returns the error output of a build that must fail.
    fn failure(&self, env: &[(&str, &str)]) -> String {
        let output = self.run(env);
        assert!(!output.status.success(), "{} built", self.name);
        String::from_utf8(output.stderr).unwrap()
    }
}

/// Returns Cargo's target folder, which all applications share.
fn target() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("user_crate")
}

fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().into()
}

/// Reports that a test is skipped and why, or fails if `CI_REQUIRE_ALL` is set.
fn skip(test: &str, reason: &str) {
    assert!(std::env::var_os("CI_REQUIRE_ALL").is_none(), "{test} cannot run: {reason}");
    println!("SKIPPED {test}: {reason}");
}

/// Returns whether this machine can compile for GPUs. If not, reports that the test is skipped.
fn has_compiler(test: &str) -> bool {
    let search = Search::run().unwrap();
    if search.found.is_none() {
        skip(test, &format!("no compiler for the GPU: {:?}", search.rejected));
    }
    search.found.is_some()
}

/// Builds applications, also after mistakes and changes. This is a single test because each application costs a full GPU
/// build.
#[test]
#[ignore = "slow: runs with --ignored"]
fn application_outside_the_repository_embeds_its_kernels() {
    let name = "application_outside_the_repository_embeds_its_kernels";
    if !has_compiler(name) {
        return;
    }
    let here = App::new("app-here", r#"rushmem_ptx::build("kernels");"#);
    let ptx = has_its_kernels(&here);
    match ptxas::find() {
        Ok(ptxas) => assembles(&ptx, &ptxas),
        Err(why) => skip(&format!("{name}: assembles"), &why.to_string()),
    }
    names_a_kernel_that_may_panic(&here);
    names_errors_of_the_gpu_build(&here);
    asks_for_no_std(&here);

    let with_fallback = r#"rushmem_ptx::Builder::new("kernels").fallback("kernels.ptx").build();"#;
    let there = App::new("app-there", with_fallback);
    gets_the_same_ptx_in_every_folder(&there, &ptx);
    keeps_bundled_ptx_in_every_mode(&there, &ptx);
    there.write("build.rs", &format!("fn main() {{\n    {with_fallback}\n}}\n"));
    fs::remove_file(there.path("kernels.ptx")).unwrap();
    needs_no_compiler_until_the_source_changes(&there, &ptx);

    let module = App::with_module("app-module");
    has_the_kernels_of_its_module(&module);
    names_lines_of_its_module(&module);
    builds_again_after_a_change_of_its_module(&module);
}

fn keeps_bundled_ptx_in_every_mode(app: &App, ptx: &str) {
    app.write("kernels.ptx", ptx);
    let bundled = r#"rushmem_ptx::Builder::new("kernels").bundled("kernels.ptx").build();"#;
    app.write("build.rs", &format!("fn main() {{\n    {bundled}\n}}\n"));
    for mode in ["none", "committed", "all"] {
        assert_eq!(app.ptx(&[("RUSHMEM_PTX", mode)]), ptx, "{mode}");
    }
    // Cargo would rerun the build script only if it depends on the variable.
    let script = fs::read_dir(target().join("debug/build")).unwrap().map(|entry| entry.unwrap().path());
    let mut outputs =
        script.filter(|path| path.to_string_lossy().contains("app-there")).map(|path| path.join("output"));
    let newest = outputs
        .by_ref()
        .filter(|path| path.exists())
        .max_by_key(|path| path.metadata().unwrap().modified().unwrap());
    let directives = fs::read_to_string(newest.expect("the output of the build script")).unwrap();
    assert!(
        !directives.lines().any(|line| line == "cargo::rerun-if-env-changed=RUSHMEM_PTX"),
        "{directives}"
    );
}

fn has_its_kernels(app: &App) -> String {
    let ptx = app.ptx(&[]);
    for entry in [".visible .entry first(", ".visible .entry second("] {
        assert!(ptx.contains(entry), "{entry} in:\n{ptx}");
    }
    assert!(ptx.contains(
        "\t.param .u8 first_param_1,\n\t.param .u32 first_param_2,\n\t.param .f64 first_param_3\n"
    ));
    let header = Header::parse(&ptx).unwrap();
    assert_eq!((&*header.krate, &*header.target), ("app_kernels", "sm_75, PTX 8.6"));
    ptx
}

fn assembles(ptx: &str, ptxas: &Path) {
    for arch in ptxas::ARCHES {
        let usage = ptxas::usage(ptxas, ptx, arch).unwrap();
        let names: Vec<&str> = usage.iter().map(|u| &*u.entry).collect();
        assert_eq!(names, ["first", "second"]);
    }
}

fn has_the_kernels_of_its_module(app: &App) {
    let ptx = app.ptx(&[]);
    for entry in [".visible .entry first(", ".visible .entry second("] {
        assert!(ptx.contains(entry), "{entry} in:\n{ptx}");
    }
    assert_eq!(Header::parse(&ptx).unwrap().krate, "kernels");
    for folder in [app.dir.path(), &project()] {
        assert!(!ptx.contains(folder.to_str().unwrap()), "{ptx}");
    }
}

fn names_lines_of_its_module(app: &App) {
    let right = fs::read_to_string(app.path("src/kernels/more.rs")).unwrap();
    let panics = right.replace("black_box(place(place(n)))", "black_box(n % 7_u64.wrapping_sub(n))");
    app.write("src/kernels/more.rs", &panics);
    let message = app.failure(&[]);
    assert!(message.contains("src/kernels/more.rs:7:38: in `second`: a path that panics"), "{message}");

    // The GPU build comes first, so the error is from there.
    app.write("src/kernels/more.rs", &format!("{right}\nuse std::fs::File;\n"));
    let message = app.failure(&[]);
    let step = "compiling the kernels `kernels` failed for the GPU";
    let line = format!("src/kernels/more.rs:{}:5", right.lines().count() + 2);
    for part in [step, &line, "`std`", "A kernel module has `core`"] {
        assert!(message.contains(part), "{part} in:\n{message}");
    }
    app.write("src/kernels/more.rs", &right);
}

fn builds_again_after_a_change_of_its_module(app: &App) {
    let third = "/// Is new.\n#[kernel]\npub fn third(_ctx: &Ctx) {}\n";
    app.write("src/kernels/third.rs", &format!("use super::{{Ctx, kernel}};\n\n{third}"));
    let root = fs::read_to_string(app.path("src/kernels.rs")).unwrap();
    app.write("src/kernels.rs", &root.replace("mod more;", "mod more;\npub mod third;"));
    assert!(app.ptx(&[]).contains(".visible .entry third("));
    app.write(
        "src/kernels/third.rs",
        &format!("use super::{{Ctx, kernel}};\n\n{}", third.replace("third", "fourth")),
    );
    assert!(app.ptx(&[]).contains(".visible .entry fourth("));

    app.write(
        "build.rs",
        "fn main() { rushmem_ptx::Builder::new(\"src/kernels.rs\").dependency(\"absent\").build(); }\n",
    );
    let message = app.failure(&[]);
    assert!(message.contains("Cargo.toml: the kernels need `absent` in [dependencies]"), "{message}");
}

fn names_a_kernel_that_may_panic(app: &App) {
    app.write(
        "kernels/src/more.rs",
        &MORE.replace("black_box(place(place(n)))", "black_box(n % 7_u64.wrapping_sub(n))"),
    );
    let message = app.failure(&[]);
    let source = app.path("kernels/src/more.rs").canonicalize().unwrap();
    let place = format!("{}:7:38: in `second`: a path that panics: `%` by a variable", source.display());
    let file = "app_kernels.s";
    for part in [&*place, "use `checked_rem`, or `if n == 0 { return .. }` before it", file] {
        assert!(message.contains(part), "{part} in:\n{message}");
    }
}

fn names_errors_of_the_gpu_build(app: &App) {
    let wrong = "#[cfg(target_arch = \"nvptx64\")]\nfn wrong() -> u32 {\n    'x'\n}\n";
    app.write("kernels/src/more.rs", &format!("{wrong}{MORE}"));
    let message = app.failure(&[]);
    let step = "compiling the kernels `app_kernels` failed for the GPU";
    for part in [step, "kernels/src/more.rs:3:5", "mismatched types"] {
        assert!(message.contains(part), "{part} in:\n{message}");
    }
}

fn asks_for_no_std(app: &App) {
    app.write("kernels/src/more.rs", MORE);
    for head in ["", "#![cfg_attr(target_arch = \"nvptx64\", no_std)]"] {
        let (_, rest) = KERNELS.split_once("feature(abi_ptx))]").unwrap();
        app.write("kernels/src/lib.rs", &format!("//! Kernels.\n{head}\n{rest}"));
        let message = app.failure(&[]);
        assert!(message.contains("the kernels `app_kernels` use the standard library"), "{message}");
        assert!(
            message.contains("no_std, feature(abi_ptx))]") && !message.contains("build-std"),
            "{message}"
        );
    }
}

/// Checks that the PTX does not depend on the application's folder. The symbol of a function that is not inlined
/// contains the crate's hash, and a `Location` contains the path of a source file.
fn gets_the_same_ptx_in_every_folder(app: &App, other: &str) {
    assert!(other.contains("5place"), "a function that is not inlined:\n{other}");
    assert_eq!(app.ptx(&[]), other);
    for folder in [app.dir.path(), &project()] {
        assert!(!other.contains(folder.to_str().unwrap()));
    }
}

fn needs_no_compiler_until_the_source_changes(app: &App, ptx: &str) {
    let never = [("RUSHMEM_PTX", "committed")];
    let no_compiler = [("RUSHMEM_PTX_RUSTC", "/nowhere/rustc")];
    let absent = app.failure(&never);
    assert!(absent.contains("error: app-there@0.1.0: no PTX for the kernels `app_kernels`: "), "{absent}");
    let because = "kernels.ptx does not exist, and RUSHMEM_PTX=committed forbids compiling it";
    assert!(absent.contains(because), "{absent}");

    app.write("kernels.ptx", ptx);
    assert_eq!(app.ptx(&never), ptx);
    assert_eq!(app.ptx(&no_compiler), ptx);

    app.write("kernels/src/more.rs", &MORE.replace("> 3", "> 4"));
    let stale = app.failure(&never);
    assert!(stale.contains("was made from other source"), "{stale}");
    let named = app.failure(&no_compiler);
    assert!(
        named.contains("error: app-there@0.1.0: RUSHMEM_PTX_RUSTC=/nowhere/rustc: does not exist"),
        "{named}"
    );
    assert_ne!(app.ptx(&[]), ptx);
}
