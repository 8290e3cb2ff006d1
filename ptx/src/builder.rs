//! The entry point for build scripts: compiles kernels to PTX, or uses committed PTX.

use std::borrow::Cow;
use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process;

use crate::compile::{Extras, compile};
use crate::decide::{Committed, MODE, Mode, Need, Plan, Request, decide};
use crate::error::{Error, Result};
use crate::files;
use crate::header::Header;
use crate::index;
use crate::inspect::{self, Report};
use crate::ptxas::{self, PTXAS};
use crate::source::{self, Source};
use crate::target::{Target, for_older, is_hopper};
use crate::toolchain::{CARGO, RUSTC, Search};

/// Builds the kernels of a module or a crate into `$OUT_DIR/<name>.ptx`, for use in a `build.rs`.
///
/// `kernels` is the file of a module, such as `src/kernels.rs`, or the folder of a kernel crate, relative to the
/// package that is being built. If the PTX cannot be built, the process exits with a message that names the remedy.
/// [`Builder`] has options for other targets, for committed PTX and for optional PTX.
pub fn build(kernels: impl AsRef<Path>) {
    Builder::new(kernels).build();
}

/// A build of one kernel module or kernel crate, called from `build.rs`.
///
/// ```no_run
/// rushmem_ptx::Builder::new("src/kernels.rs").arch("sm_100").fallback("ptx/kernels.ptx").build();
/// ```
#[derive(Debug)]
#[must_use = "call `build`"]
pub struct Builder {
    kernels: PathBuf,
    dependencies: Vec<String>,
    fallback: Option<PathBuf>,
    bundled: bool,
    need: Need,
    target: Target,
}

/// PTX that a build script has obtained, and where it came from.
#[derive(Debug)]
pub struct Built {
    /// Path of the PTX file.
    pub path: PathBuf,
    /// How the PTX was obtained.
    pub origin: Origin,
    /// Kernels and functions in the PTX, as found by [`inspect`](crate::inspect).
    pub report: Report,
}

/// How a build obtained its PTX.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The PTX was committed, and it had been compiled from the current source.
    Committed,
    /// This build compiled the PTX.
    Compiled,
    /// There is no PTX: the file is empty, and the kernels run natively only.
    Omitted {
        /// Why the PTX is missing, with the remedy. `rushmem::Ptx` passes this to the error message of a program that
        /// needs it.
        reason: String,
    },
}

impl Builder {
    /// Creates a build of a kernel module, such as `src/kernels.rs`, or of the kernel crate in a folder. The path is
    /// relative to the package that is being built.
    pub fn new(kernels: impl AsRef<Path>) -> Self {
        Self {
            kernels: kernels.as_ref().into(),
            dependencies: Vec::new(),
            fallback: None,
            bundled: false,
            need: Need::default(),
            target: Target::default(),
        }
    }

    /// Makes a dependency of the package available to a kernel module, which otherwise has only `rushmem-device`.
    ///
    /// The dependency must support `no_std`. Kernel crates name their dependencies in their own manifest instead.
    ///
    /// ```no_run
    /// rushmem_ptx::Builder::new("src/kernels.rs").dependency("libm").build();
    /// ```
    pub fn dependency(mut self, name: impl Into<String>) -> Self {
        self.dependencies.push(name.into());
        self
    }

    /// Sets the path of committed PTX, relative to the package that is being built.
    ///
    /// The file is used if it was compiled from the current source; no PTX compiler is needed in that case. To create
    /// it, copy `$OUT_DIR/<name>.ptx`.
    pub fn fallback(mut self, path: impl AsRef<Path>) -> Self {
        self.fallback = Some(path.as_ref().into());
        self
    }

    /// Sets the path of committed PTX, like [`fallback`](Self::fallback), for a library that ships with its kernels'
    /// PTX.
    ///
    /// If the PTX was compiled from the current source, it is used with every value of `RUSHMEM_PTX`, so changing this
    /// variable rebuilds neither the library nor its dependents. It is also used if the folder of the kernel crate is
    /// missing, as in a package from a registry.
    pub fn bundled(mut self, path: impl AsRef<Path>) -> Self {
        self.bundled = true;
        self.fallback(path)
    }

    /// Marks the PTX as optional: it is compiled only with `RUSHMEM_PTX=all` or `RUSHMEM_PTX=build`.
    ///
    /// This suits kernels of tests and benchmarks, which take long to compile and need no PTX on a machine without a
    /// GPU. Committed PTX that matches the source is used regardless. Without PTX, the file is empty and the kernels
    /// run natively. A program that requests a GPU then gets an error that says how to build the PTX.
    ///
    /// ```no_run
    /// rushmem_ptx::Builder::new("src/kernels.rs").optional().build();
    /// ```
    pub fn optional(mut self) -> Self {
        self.need = Need::OnRequest;
        self
    }

    /// Omits the PTX with a warning if no PTX compiler is found. The kernels then run natively only.
    ///
    /// This suits applications that are also built on machines without a GPU. A program that requests a GPU then gets
    /// an error that says how to build the PTX.
    ///
    /// ```no_run
    /// rushmem_ptx::Builder::new("src/kernels.rs").or_native().build();
    /// ```
    pub fn or_native(mut self) -> Self {
        self.need = Need::IfPossible;
        self
    }

    /// Sets the oldest GPU that the kernels must run on, such as `sm_75` (Turing, the default). Newer GPUs also run the
    /// PTX.
    pub fn arch(mut self, arch: impl Into<String>) -> Self {
        self.target.arch = arch.into();
        self
    }

    /// Sets the PTX ISA version. The default, 8.6, is also the oldest. Drivers cannot load PTX that is newer than
    /// themselves.
    pub fn isa(mut self, major: u32, minor: u32) -> Self {
        self.target.isa = (major, minor);
        self
    }

    /// Builds the PTX. On failure, prints a message with the remedy and exits, which fails the build of the package.
    pub fn build(self) -> Built {
        match self.try_build() {
            Ok(built) => built,
            Err(error @ Error::NotABuildScript(_)) => {
                eprintln!("{error}");
                process::exit(1)
            }
            Err(error) => {
                // Cargo prints these lines as errors and fails the build.
                for line in error.to_string().lines() {
                    println!("cargo::error={line}");
                }
                process::exit(0)
            }
        }
    }

    /// Builds the PTX and prints Cargo's directives, but leaves the handling of errors to the caller.
    ///
    /// # Errors
    /// - [`Error::NotABuildScript`] outside of a build script.
    /// - [`Error::Variable`] or [`Error::UnknownVariable`] for an invalid environment variable.
    /// - [`Error::NoToolchain`], [`Error::NotCommitted`] or [`Error::Override`] if nothing provides the PTX.
    /// - [`Error::Compile`] or [`Error::Refused`] for an error in the kernels.
    /// - [`Error::Io`], [`Error::Manifest`], [`Error::Spawn`] or [`Error::Ptxas`] for files and programs.
    pub fn try_build(self) -> Result<Built> {
        let base = folder("CARGO_MANIFEST_DIR")?;
        let out = folder("OUT_DIR")?;
        check_names(env::vars_os().map(|(name, _)| name))?;
        let mode = Mode::from_env()?;
        let made = match &self.fallback {
            Some(path) if self.bundled && !base.join(&self.kernels).exists() => {
                from_package(&base.join(path), &self.target)?
            }
            _ => self.make(&base, &out, mode)?,
        };
        let reason = if let Origin::Omitted { reason } = &made.origin { reason } else { "" };
        let path = out.join(format!("{}.ptx", made.krate));
        let text = embedded(&made.text);
        files::write_if_changed(&path, &text)?;
        files::write_if_changed(&path.with_extension("omitted"), reason)?;
        assemble(&path, &text)?;
        index::add(&out, &made.krate)?;
        Ok(Built { path, origin: made.origin, report: made.report })
    }

    fn source(&self, base: &Path) -> Result<Source> {
        let path = base.join(&self.kernels);
        if path.extension().is_some_and(|extension| extension == "rs") {
            return Source::read_module(&path, base, &self.dependencies);
        }
        match self.dependencies.first() {
            None => Source::read(&path),
            Some(name) => Err(Error::Manifest {
                path: path.join("Cargo.toml"),
                problem: format!("a kernel crate names `{name}` here, not by `Builder::dependency`"),
            }),
        }
    }

    /// Compiles the kernels, uses their committed PTX, or omits the PTX, as the mode and the builder's options demand.
    fn make(&self, base: &Path, out: &Path, mode: Mode) -> Result<Made> {
        let source = self.source(base)?;
        let fallback = self.fallback.as_ref().map(|path| base.join(path));
        for path in source.files.iter().chain(&fallback) {
            println!("cargo::rerun-if-changed={}", path.display());
        }
        let mut committed = Committed::read(fallback.as_deref(), &source, &self.target)?;
        let extras = Extras::from_env(self.bundled)?;
        for name in watched(self.bundled, &committed) {
            println!("cargo::rerun-if-env-changed={name}");
        }
        for (is_wanted, variable, what) in [
            (extras.dc, DC, "that can post to DC initiators"),
            (extras.failover, FAILOVER, "whose connections can be replaced"),
            (extras.timeline, TRACE, "with a timeline"),
        ] {
            if is_wanted {
                committed = Committed::Unusable(format!("{variable}=1 asks for kernels {what}"));
            }
        }
        let request =
            Request { krate: &source.crate_name, bundled: self.bundled, need: self.need, committed };
        let plan = decide(mode, request, Search::run)?;
        let krate = source.crate_name.clone();
        Ok(match plan {
            Plan::Use(text) => checked(krate, text, &fallback.unwrap_or_default(), &self.target)?,
            Plan::Compile(toolchain) => {
                let made = compile(&source, &toolchain, &self.target, extras, &cache_for(out))?;
                Made { krate, origin: Origin::Compiled, text: made.text, report: made.report }
            }
            Plan::Omit(reason) => {
                if self.need == Need::IfPossible && mode == Mode::Auto {
                    println!("cargo::warning=the kernels of `{krate}` run natively only: {reason}");
                }
                Made {
                    krate,
                    origin: Origin::Omitted { reason },
                    text: String::new(),
                    report: Report::default(),
                }
            }
        })
    }
}

/// Outcome of a build whose files have not been written yet.
struct Made {
    krate: String,
    origin: Origin,
    text: String,
    report: Report,
}

/// Uses the bundled PTX at `path` without comparing it with the kernels' source, which packages from a registry lack.
fn from_package(path: &Path, target: &Target) -> Result<Made> {
    println!("cargo::rerun-if-changed={}", path.display());
    for name in [PTXAS, CUBIN] {
        println!("cargo::rerun-if-env-changed={name}");
    }
    let text = files::read(path)?;
    let krate = Header::parse(&text).map(|header| header.krate).ok_or_else(|| Error::NotCommitted {
        krate: path.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
        committed: format!("{} was not written by rushmem-ptx", path.display()),
    })?;
    checked(krate, text, path, target)
}

/// Checks committed PTX for violations of the rules in [`inspect`].
fn checked(krate: String, text: String, path: &Path, target: &Target) -> Result<Made> {
    match inspect::check(&text, target) {
        Ok(report) => Ok(Made { krate, origin: Origin::Committed, text, report }),
        Err(violations) => Err(Error::Refused { krate, ptx: path.into(), violations }),
    }
}

/// Returns the PTX text that the program embeds: without instructions for newer GPUs if the machine code, which
/// [`assemble`] makes, has none. The runtime relies on them in both.
fn embedded(text: &str) -> Cow<'_, str> {
    let arch = env::var(CUBIN).unwrap_or_default();
    match arch.split_once(':') {
        Some((text_arch, _)) if !is_hopper(text_arch) => Cow::Owned(for_older(text)),
        _ => Cow::Borrowed(text),
    }
}

/// Writes machine code next to the PTX file, for the GPU named by `RUSHMEM_PTX_CUBIN`.
///
/// With `sm_80:sm_90`, the code is for the second GPU, but made from the PTX text that the first would load. The file
/// is empty if the variable is not set or there is no PTX.
fn assemble(ptx: &Path, text: &str) -> Result<()> {
    let cubin = ptx.with_extension("cubin");
    let arch = env::var(CUBIN).unwrap_or_default();
    if arch.is_empty() || text.is_empty() {
        return files::write_if_changed(&cubin, "");
    }
    // ptxas is slow, so run it only if its input has changed.
    let made = ptx.with_extension("cubin.made-of");
    let now = format!("{arch} {}", source::hash(text));
    if cubin.exists() && files::read(&made).is_ok_and(|before| before == now) {
        return Ok(());
    }
    let (text_arch, machine) = arch.split_once(':').unwrap_or((&arch, &arch));
    ptxas::assemble(&ptxas::find()?, text, text_arch, machine, &cubin)?;
    files::write_if_changed(&made, &now)
}

/// Environment variable that names the GPU to generate machine code for.
const CUBIN: &str = "RUSHMEM_PTX_CUBIN";

/// Environment variable that, if 1, compiles kernels that can record a timeline of their calls.
const TRACE: &str = "RUSHMEM_PTX_TRACE";

/// Environment variable that, if 1, compiles kernels that can post to DC initiators.
const DC: &str = "RUSHMEM_PTX_DC";

/// Environment variable that, if 1, compiles kernels whose connections can be replaced.
const FAILOVER: &str = "RUSHMEM_PTX_FAILOVER";

impl Extras {
    /// Reads the environment variables that select optional kernel features. Bundled kernels never have a timeline.
    fn from_env(bundled: bool) -> Result<Self> {
        Ok(Self { timeline: !bundled && is_set(TRACE)?, dc: is_set(DC)?, failover: is_set(FAILOVER)? })
    }
}

/// Returns whether an environment variable is 1. It must be 0, 1 or unset.
fn is_set(name: &'static str) -> Result<bool> {
    match env::var(name).unwrap_or_default().as_str() {
        "" | "0" => Ok(false),
        "1" => Ok(true),
        other => Err(Error::Variable { name, value: other.into(), expected: "0 or 1" }),
    }
}

/// All environment variables that this crate reads.
const VARIABLES: [&str; 8] = [MODE, RUSTC, CARGO, PTXAS, CUBIN, TRACE, DC, FAILOVER];

/// Returns the environment variables that must trigger a rebuild when they change.
fn watched(bundled: bool, committed: &Committed) -> &'static [&'static str] {
    let is_settled = bundled && matches!(committed, Committed::Matches(_));
    if is_settled { &[PTXAS, CUBIN, DC, FAILOVER] } else { &VARIABLES }
}

/// Rejects environment variables that start with this crate's prefix but are unknown, which are probably misspelled.
fn check_names(names: impl Iterator<Item = OsString>) -> Result<()> {
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

/// Returns a cache folder shared by all build scripts of a target folder, so `core` is compiled only once. Cargo marks
/// target folders with `CACHEDIR.TAG`.
fn cache_for(out: &Path) -> PathBuf {
    let target = out.ancestors().find(|dir| dir.join("CACHEDIR.TAG").exists());
    target.unwrap_or(out).join("rushmem-ptx")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejects_unknown_variables() {
        let check = |names: &[&str]| check_names(names.iter().map(OsString::from)).map_err(|e| e.to_string());
        assert_eq!(check(&["PATH", "RUSHMEM_HEAP", "RUSHMEM_PTX", "RUSHMEM_PTXAS"]), Ok(()));
        assert_eq!(
            check(&["RUSHMEM_PTX", "RUSHMEM_PTX_RUST"]).unwrap_err(),
            "unknown variable RUSHMEM_PTX_RUST; known are RUSHMEM_PTX, RUSHMEM_PTX_RUSTC, RUSHMEM_PTX_CARGO, \
             RUSHMEM_PTXAS, RUSHMEM_PTX_CUBIN, RUSHMEM_PTX_TRACE, RUSHMEM_PTX_DC, \
             RUSHMEM_PTX_FAILOVER"
        );
    }

    #[test]
    fn packages_without_kernel_crate_use_bundled_ptx() {
        let tmp = tempfile::tempdir().unwrap();
        let path = tmp.path().join("my_kernels.ptx");
        let target = Target::default();
        let ptx = ".version 8.6\n.target sm_75\n.visible .entry k()\n{\n\tret;\n}\n";
        let header = Header {
            krate: "my_kernels".into(),
            compiler: "c".into(),
            target: target.to_string(),
            source: "s".into(),
        };
        files::write_if_changed(&path, &format!("{header}{ptx}")).unwrap();
        let made = from_package(&path, &target).unwrap();
        assert_eq!((&*made.krate, made.origin), ("my_kernels", Origin::Committed));
        assert!(made.report.entries.contains_key("k"));
        files::write_if_changed(&path, ptx).unwrap();
        let error = from_package(&path, &target).err().unwrap().to_string();
        assert!(error.contains("was not written by rushmem-ptx"), "{error}");
    }

    #[test]
    fn bundled_ptx_does_not_depend_on_the_mode() {
        let (matching, stale) = (Committed::Matches("ptx".into()), Committed::Unusable("stale".into()));
        assert_eq!(watched(true, &matching), [PTXAS, CUBIN, DC, FAILOVER]);
        for (bundled, committed) in [(true, &stale), (false, &matching), (false, &stale)] {
            assert_eq!(watched(bundled, committed), VARIABLES);
        }
    }

    #[test]
    fn caches_in_the_target_folder() {
        let tmp = tempfile::tempdir().unwrap();
        let out = tmp.path().join("target/debug/build/app-1/out");
        files::create_dir(&out).unwrap();
        assert_eq!(cache_for(&out), out.join("rushmem-ptx"));
        files::write_if_changed(&tmp.path().join("target/CACHEDIR.TAG"), "x").unwrap();
        assert_eq!(cache_for(&out), tmp.path().join("target/rushmem-ptx"));
    }
}
