//! Compiles `core` for the GPU from the library source of an installed toolchain.
//!
//! Of the standard library, device code needs only `core`, which has no dependencies. So a single call of the compiler
//! builds it, without network access or a lock file. `compiler_builtins` is left empty: GPUs have instructions for most
//! of its functions. The PTX check reports calls to the others.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use sha2::{Digest, Sha256};

use crate::error::{Error, Result};
use crate::files;
use crate::source::hex;
use crate::target::Target;
use crate::toolchain::Toolchain;

pub(crate) const TRIPLE: &str = "nvptx64-nvidia-cuda";

const COMPILER_BUILTINS: &str = "\
#![no_std]
#![feature(compiler_builtins)]
#![allow(internal_features)]
#![compiler_builtins]
";

/// Shell script that wraps rustc to make symbol names reproducible.
///
/// The compiler derives symbol names from `-C metadata`, which Cargo derives from absolute paths and its own version.
/// The wrapper replaces this value by the package's name and version.
const WRAPPER: &str = r#"#!/bin/sh
# Written by rushmem-ptx. Gives the crates of a GPU build names that do not depend on where they lie.
rustc=$1
shift
case " $* " in
*" --target nvptx64-nvidia-cuda "*)
    for arg do
        shift
        case $arg in
        metadata=*) arg=metadata=$CARGO_PKG_NAME-$CARGO_PKG_VERSION ;;
        esac
        set -- "$@" "$arg"
    done
    ;;
esac
exec "$rustc" "$@"
"#;

pub(crate) struct Sysroot {
    pub(crate) path: PathBuf,
    /// Folder for this sysroot and for everything that is built with it.
    pub(crate) cache: PathBuf,
}

impl Sysroot {
    /// Returns the sysroot for this compiler and target. The first process to need it builds it in `caches`, while
    /// others wait.
    pub(crate) fn open(toolchain: &Toolchain, target: &Target, caches: &Path) -> Result<Self> {
        let cache = caches.join(key(toolchain, target));
        let sysroot = Self { path: cache.join("sysroot"), cache };
        if sysroot.path.exists() {
            return Ok(sysroot);
        }
        files::create_dir(&sysroot.cache)?;
        let lock_path = sysroot.cache.join("lock");
        let lock = File::create(&lock_path).map_err(Error::io("create", &lock_path))?;
        lock.lock().map_err(Error::io("lock", &lock_path))?;
        if !sysroot.path.exists() {
            sysroot.make(toolchain, target)?;
        }
        Ok(sysroot)
    }

    /// Returns the path of the script that Cargo calls instead of rustc.
    pub(crate) fn wrapper(&self) -> PathBuf {
        self.path.join("rustc-wrapper")
    }

    /// Builds the sysroot under a temporary name and renames it: an interrupted build must not leave an incomplete
    /// sysroot.
    fn make(&self, toolchain: &Toolchain, target: &Target) -> Result<()> {
        let unfinished = self.cache.join("sysroot.unfinished");
        if unfinished.exists() {
            fs::remove_dir_all(&unfinished).map_err(Error::io("remove", &unfinished))?;
        }
        let lib = unfinished.join("lib/rustlib").join(TRIPLE).join("lib");
        files::create_dir(&lib)?;

        let core = toolchain.library.join("core");
        let mut core_crate = rustc(toolchain, target, "core", &edition(&core)?, &lib);
        core_crate.arg(core.join("src/lib.rs"));
        run(core_crate, "compiling `core`")?;

        let text = unfinished.join("compiler_builtins.rs");
        files::write_if_changed(&text, COMPILER_BUILTINS)?;
        let mut builtins = rustc(toolchain, target, "compiler_builtins", "2024", &lib);
        builtins.arg(&text).arg("--sysroot").arg(&unfinished);
        run(builtins, "compiling `compiler_builtins`")?;

        let wrapper = unfinished.join("rustc-wrapper");
        files::write_if_changed(&wrapper, WRAPPER)?;
        let executable = Permissions::from_mode(0o755);
        fs::set_permissions(&wrapper, executable).map_err(Error::io("make executable", &wrapper))?;

        fs::rename(&unfinished, &self.path).map_err(Error::io("rename", &unfinished))
    }
}

/// Returns a folder name that changes with the compiler, the target and the constants in this file.
fn key(toolchain: &Toolchain, target: &Target) -> String {
    let Toolchain { rustc, library, version } = toolchain;
    let places = format!("{} {}", rustc.display(), library.display());
    let text = format!("{version}\n{places}\n{target}\n{COMMON_FLAGS:?}\n{COMPILER_BUILTINS}\n{WRAPPER}");
    hex(&Sha256::digest(text))[..16].to_owned()
}

fn rustc(toolchain: &Toolchain, target: &Target, name: &str, edition: &str, lib: &Path) -> Command {
    let mut rustc = Command::new(&toolchain.rustc);
    rustc
        .env("RUSTC_BOOTSTRAP", "1")
        .args(["--crate-name", name, "--crate-type", "rlib", "--edition", edition, "--target", TRIPLE])
        .args(["-Copt-level=3", "-Cpanic=abort", "-Ccodegen-units=1", "-Cembed-bitcode=yes"])
        .args(["-Zforce-unstable-if-unmarked", "--cap-lints=allow"])
        .args(COMMON_FLAGS)
        .args(target.flags())
        .arg("--remap-path-scope=macro")
        .arg(format!("--remap-path-prefix={}=library", toolchain.library.display()))
        .arg("--out-dir")
        .arg(lib);
    rustc
}

/// Compiler flags for all GPU builds. Jump threading on MIR would duplicate barriers, because it ignores that they are
/// convergent.
pub(crate) const COMMON_FLAGS: [&str; 1] = ["-Zmir-enable-passes=-JumpThreading"];

/// Returns the Rust edition in the manifest of `core`.
fn edition(core: &Path) -> Result<String> {
    let path = core.join("Cargo.toml");
    let text = files::read(&path)?;
    let table: toml::Table = text
        .parse()
        .map_err(|e: toml::de::Error| Error::Manifest { path: path.clone(), problem: e.to_string() })?;
    let edition = table.get("package").and_then(|p| p.get("edition")).and_then(toml::Value::as_str);
    edition.map(str::to_owned).ok_or(Error::Manifest { path, problem: "no edition".into() })
}

/// Runs a compiler command to completion. `step` describes it in the error message.
pub(crate) fn run(mut command: Command, step: &str) -> Result<()> {
    let output =
        command.output().map_err(|source| Error::Spawn { program: command.get_program().into(), source })?;
    if output.status.success() {
        return Ok(());
    }
    Err(Error::Compile {
        step: step.into(),
        output: String::from_utf8_lossy(&output.stderr).trim_end().into(),
    })
}
