//! What a `build.rs` calls.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process;

use crate::compile::compile;
use crate::decide::{Committed, MODE, Mode, Plan, decide};
use crate::error::{Error, Result};
use crate::files;
use crate::inspect::{self, Report};
use crate::ptxas::{self, PTXAS};
use crate::source::{self, Source};
use crate::target::Target;
use crate::toolchain::{CARGO, RUSTC, Search};

/// Builds the kernel crate in the folder `kernels`, seen from the package that is being built, into
/// `$OUT_DIR/<crate>.ptx`. On failure the build ends with a message that says what to do.
///
/// For a target other than the default, or for committed PTX, see [`Builder`].
pub fn build(kernels: impl AsRef<Path>) {
    Builder::new(kernels).build();
}

/// A build of one kernel crate, called from `build.rs`.
///
/// ```no_run
/// rushmem_ptx::Builder::new("kernels").arch("sm_100").fallback("ptx/kernels.ptx").build();
/// ```
#[derive(Debug)]
#[must_use = "call `build`"]
pub struct Builder {
    kernels: PathBuf,
    fallback: Option<PathBuf>,
    target: Target,
}

/// What was built.
#[derive(Debug)]
pub struct Built {
    /// The PTX file.
    pub path: PathBuf,
    /// Where it came from.
    pub origin: Origin,
    /// What is in it.
    pub report: Report,
}

/// Where PTX came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// It was committed, made from this very source.
    Committed,
    /// It was compiled.
    Compiled,
    /// There is none: the file is empty, and the kernels run natively only.
    None,
}

impl Builder {
    /// A build of the kernel crate in the folder `kernels`, seen from the package that is being built.
    pub fn new(kernels: impl AsRef<Path>) -> Self {
        Self { kernels: kernels.as_ref().into(), fallback: None, target: Target::default() }
    }

    /// Committed PTX, seen from the package that is being built. It is used as long as it was made from the source as
    /// it is, and makes a compiler for the GPU unnecessary. Write it by copying `$OUT_DIR/<crate>.ptx`.
    pub fn fallback(mut self, path: impl AsRef<Path>) -> Self {
        self.fallback = Some(path.as_ref().into());
        self
    }

    /// The oldest GPU that the kernels must run on, as `sm_90` (Hopper, the default) or `sm_80`. Newer ones run them too.
    pub fn arch(mut self, arch: impl Into<String>) -> Self {
        self.target.arch = arch.into();
        self
    }

    /// The version of PTX to write, 8.6 by default and 8.2 at least. A driver loads the versions that are not newer
    /// than it.
    pub fn isa(mut self, major: u32, minor: u32) -> Self {
        self.target.isa = (major, minor);
        self
    }

    /// Builds. On failure the build of the package ends with a message that says what to do.
    pub fn build(self) -> Built {
        match self.try_build() {
            Ok(built) => built,
            Err(error @ Error::NotABuildScript(_)) => {
                eprintln!("{error}");
                process::exit(1)
            }
            Err(error) => {
                // Cargo shows these as its own errors, and fails the build.
                for line in error.to_string().lines() {
                    println!("cargo::error={line}");
                }
                process::exit(0)
            }
        }
    }

    /// Builds.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn try_build(self) -> Result<Built> {
        let base = folder("CARGO_MANIFEST_DIR")?;
        let out = folder("OUT_DIR")?;
        for name in VARIABLES {
            println!("cargo::rerun-if-env-changed={name}");
        }
        known_only(env::vars_os().map(|(name, _)| name))?;
        let mode = Mode::from_env()?;

        let source = Source::read(&base.join(&self.kernels))?;
        let fallback = self.fallback.map(|path| base.join(path));
        for path in source.files.iter().chain(&fallback) {
            println!("cargo::rerun-if-changed={}", path.display());
        }
        let committed = Committed::look(fallback.as_deref(), &source, &self.target)?;
        let (origin, text, report) = match decide(&source.crate_name, mode, committed, Search::run)? {
            Plan::Use(text) => {
                let report = inspect::check(&text, &self.target)
                    .map_err(|violations| Error::Refused { krate: source.crate_name.clone(), violations })?;
                (Origin::Committed, text, report)
            }
            Plan::Compile(toolchain) => {
                let made = compile(&source, &toolchain, &self.target, &cache_for(&out))?;
                (Origin::Compiled, made.text, made.report)
            }
            Plan::None => (Origin::None, String::new(), Report::default()),
        };
        let path = out.join(format!("{}.ptx", source.crate_name));
        files::write_if_changed(&path, &text)?;
        assemble(&path, &text)?;
        Ok(Built { path, origin, report })
    }
}

/// Writes machine code beside the PTX file, for the GPU that `RUSHMEM_PTX_CUBIN` names; an empty file if it names none, or
/// there is no PTX.
fn assemble(ptx: &Path, text: &str) -> Result<()> {
    let cubin = ptx.with_extension("cubin");
    let arch = env::var(CUBIN).unwrap_or_default();
    if arch.is_empty() || text.is_empty() {
        return files::write_if_changed(&cubin, "");
    }
    // It takes long: only if something has changed.
    let made = ptx.with_extension("cubin.made-of");
    let now = format!("{arch} {}", source::hash(text));
    if cubin.exists() && files::read(&made).is_ok_and(|before| before == now) {
        return Ok(());
    }
    ptxas::assemble(&ptxas::find()?, ptx, &arch, &cubin)?;
    files::write_if_changed(&made, &now)
}

/// The variable that names a GPU to make machine code for.
const CUBIN: &str = "RUSHMEM_PTX_CUBIN";

/// The variables of this crate.
const VARIABLES: [&str; 5] = [MODE, RUSTC, CARGO, PTXAS, CUBIN];

/// Refuses variables that look like one of ours and are none.
fn known_only(names: impl Iterator<Item = OsString>) -> Result<()> {
    for name in names {
        let name = name.to_string_lossy();
        if name.starts_with(MODE) && !VARIABLES.contains(&&*name) {
            return Err(Error::UnknownVariable { name: name.into_owned(), known: VARIABLES.join(", ") });
        }
    }
    Ok(())
}

fn folder(name: &'static str) -> Result<PathBuf> {
    env::var_os(name).map(PathBuf::from).ok_or(Error::NotABuildScript(name))
}

/// A folder that all build scripts of one target folder share, so that `core` is compiled once for all of them. Cargo
/// marks target folders with a tag.
fn cache_for(out: &Path) -> PathBuf {
    let target = out.ancestors().find(|dir| dir.join("CACHEDIR.TAG").exists());
    target.unwrap_or(out).join("rushmem-ptx")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_that_is_none_of_ours_is_named() {
        let check = |names: &[&str]| known_only(names.iter().map(OsString::from)).map_err(|e| e.to_string());
        assert_eq!(check(&["PATH", "RUSHMEM_HEAP", "RUSHMEM_PTX", "RUSHMEM_PTXAS"]), Ok(()));
        assert_eq!(
            check(&["RUSHMEM_PTX", "RUSHMEM_PTX_RUST"]).unwrap_err(),
            "unknown variable RUSHMEM_PTX_RUST; known are RUSHMEM_PTX, RUSHMEM_PTX_RUSTC, RUSHMEM_PTX_CARGO, \
             RUSHMEM_PTXAS, RUSHMEM_PTX_CUBIN"
        );
    }

    #[test]
    fn the_cache_lies_in_the_target_folder() {
        let tmp = tempfile::tempdir().unwrap();
        let out = tmp.path().join("target/debug/build/app-1/out");
        files::create_dir(&out).unwrap();
        assert_eq!(cache_for(&out), out.join("rushmem-ptx"));
        files::write_if_changed(&tmp.path().join("target/CACHEDIR.TAG"), "x").unwrap();
        assert_eq!(cache_for(&out), tmp.path().join("target/rushmem-ptx"));
    }
}
