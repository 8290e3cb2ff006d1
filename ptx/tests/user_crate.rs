//! An application outside of this project builds its own kernels, with two lines of `build.rs`.
//!
//! These tests compile for the GPU. Without a compiler for it they report themselves skipped, or fail if
//! `RUSHMEM_CI_REQUIRE` is set.

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
    let kept = core::hint::black_box(n);
    if kept > 3 { Err(1) } else { Ok(()) }
}
"#;

const MAIN: &str = r#"fn main() {
    print!("{}", include_str!(concat!(env!("OUT_DIR"), "/app_kernels.ptx")));
    assert_eq!(app_kernels::second(7).name, "second");
}
"#;

/// An application in a folder of its own.
struct App {
    dir: TempDir,
    name: &'static str,
}

impl App {
    /// The application, with this text in the `main` of its `build.rs`. Its name is its own: all tests share a target
    /// folder.
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
        // The versions that are downloaded already: the test needs no network.
        fs::copy(project.join("Cargo.lock"), app.path("Cargo.lock")).unwrap();
        app.write("build.rs", &format!("fn main() {{\n    {build}\n}}\n"));
        app.write("src/main.rs", MAIN);
        app.write("kernels/src/lib.rs", KERNELS);
        app.write("kernels/src/more.rs", MORE);
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

    /// `cargo run`, with these variables.
    fn run(&self, env: &[(&str, &str)]) -> Output {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["run", "--quiet", "--offline", "--target-dir"]);
        cargo.arg(Path::new(env!("CARGO_TARGET_TMPDIR")).join("user_crate"));
        cargo.current_dir(self.dir.path());
        for name in ["RUSHMEM_PTX", "CARGO_TARGET_DIR", "RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS"] {
            cargo.env_remove(name);
        }
        cargo.envs(env.iter().copied()).output().unwrap()
    }

    /// The PTX that the application embeds.
    fn ptx(&self, env: &[(&str, &str)]) -> String {
        let output = self.run(env);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{error}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// What a build that fails says.
    fn failure(&self, env: &[(&str, &str)]) -> String {
        let output = self.run(env);
        assert!(!output.status.success(), "{} built", self.name);
        String::from_utf8(output.stderr).unwrap()
    }
}

fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().into()
}

/// Says why a test is skipped, or fails where nothing may be.
fn skip(test: &str, reason: &str) {
    assert!(std::env::var_os("RUSHMEM_CI_REQUIRE").is_none(), "{test} needs what is missing: {reason}");
    println!("SKIPPED {test}: {reason}");
}

fn compiler(test: &str) -> bool {
    let search = Search::run().unwrap();
    if search.found.is_none() {
        skip(test, &format!("no compiler for the GPU: {:?}", search.rejected));
    }
    search.found.is_some()
}

#[test]
fn two_lines_build_the_kernels() {
    if !compiler("two_lines_build_the_kernels") {
        return;
    }
    let app = App::new("app-first", r#"rushmem_ptx::build("kernels");"#);
    let ptx = app.ptx(&[]);
    for entry in [".visible .entry first(", ".visible .entry second("] {
        assert!(ptx.contains(entry), "{entry} in:\n{ptx}");
    }
    assert!(ptx.contains(
        "\t.param .u8 first_param_1,\n\t.param .u32 first_param_2,\n\t.param .f64 first_param_3\n"
    ));
    let header = Header::parse(&ptx).unwrap();
    assert_eq!((&*header.krate, &*header.target), ("app_kernels", "sm_90, PTX 8.6"));

    match ptxas::find() {
        Ok(ptxas) => {
            app.write("out.ptx", &ptx);
            let usage = ptxas::usage(&ptxas, &app.path("out.ptx"), "sm_90").unwrap();
            let names: Vec<&str> = usage.iter().map(|u| &*u.entry).collect();
            assert_eq!(names, ["first", "second"]);
        }
        Err(why) => skip("two_lines_build_the_kernels (its end, with ptxas)", &why.to_string()),
    }
}

#[test]
fn the_same_source_gives_the_same_ptx_everywhere() {
    if !compiler("the_same_source_gives_the_same_ptx_everywhere") {
        return;
    }
    let apps = ["app-here", "app-there"].map(|name| App::new(name, r#"rushmem_ptx::build("kernels");"#));
    // What is not inlined has a symbol with the crate's hash, and a place with the file's path.
    let by_hand = "#[inline(never)]\n#[track_caller]\nfn place(n: u64) -> u64 {\n    \
                   n ^ core::panic::Location::caller().file().as_ptr().addr() as u64\n}\n";
    for app in &apps {
        app.write(
            "kernels/src/more.rs",
            &format!("{}{by_hand}", MORE.replace("black_box(n)", "black_box(place(place(n)))")),
        );
    }
    let [one, two] = apps.each_ref().map(|app| app.ptx(&[]));
    assert!(one.contains("5place"), "a function that is not inlined:\n{one}");
    assert_eq!(one, two);
    for folder in [apps[0].dir.path(), &project()] {
        assert!(!one.contains(folder.to_str().unwrap()));
    }
}

#[test]
fn committed_ptx_serves_until_the_source_changes() {
    if !compiler("committed_ptx_serves_until_the_source_changes") {
        return;
    }
    let app =
        App::new("app-committed", r#"rushmem_ptx::Builder::new("kernels").fallback("kernels.ptx").build();"#);
    let never = [("RUSHMEM_PTX", "committed")];
    let absent = app.failure(&never);
    assert!(
        absent.contains("error: app-committed@0.1.0: no PTX for kernel crate `app_kernels`: "),
        "{absent}"
    );
    assert!(
        absent.contains("kernels.ptx does not exist, and RUSHMEM_PTX=committed forbids to compile it"),
        "{absent}"
    );

    let ptx = app.ptx(&[]);
    app.write("kernels.ptx", &ptx);
    assert_eq!(app.ptx(&never), ptx);
    // A compiler that cannot be run is no obstacle: none is needed.
    assert_eq!(app.ptx(&[("RUSHMEM_PTX_RUSTC", "/nowhere/rustc")]), ptx);

    app.write("kernels/src/more.rs", &MORE.replace("kept > 3", "kept > 4"));
    assert!(app.failure(&never).contains("the source is newer than "));
    let named = app.failure(&[("RUSHMEM_PTX_RUSTC", "/nowhere/rustc")]);
    assert!(
        named.contains("error: app-committed@0.1.0: RUSHMEM_PTX_RUSTC=/nowhere/rustc: not there"),
        "{named}"
    );
    assert_ne!(app.ptx(&[]), ptx);
}

#[test]
fn a_kernel_that_may_panic_or_is_wrong_is_named() {
    if !compiler("a_kernel_that_may_panic_or_is_wrong_is_named") {
        return;
    }
    let app = App::new("app-wrong", r#"rushmem_ptx::build("kernels");"#);
    app.write("kernels/src/more.rs", &MORE.replace("black_box(n)", "black_box(n % 7_u64.wrapping_sub(n))"));
    let panics = app.failure(&[]);
    assert!(
        panics.contains("in second: a path that panics: `%` by a variable: use `checked_rem`"),
        "{panics}"
    );

    // Only the GPU's side is wrong.
    let wrong = format!("{MORE}#[cfg(target_arch = \"nvptx64\")]\nfn wrong() -> u32 {{\n    'x'\n}}\n");
    app.write("kernels/src/more.rs", &wrong);
    let message = app.failure(&[]);
    for part in [
        "compiling kernel crate `app_kernels` failed for the GPU",
        "mismatched types",
        "kernels/src/more.rs:11:5",
    ] {
        assert!(message.contains(part), "{part} in:\n{message}");
    }
}
