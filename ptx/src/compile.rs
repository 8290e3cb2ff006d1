//! Runs Cargo and rustc to compile a kernel crate to PTX, and checks the result.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use sha2::{Digest, Sha256};

use crate::bounds;
use crate::error::{Error, Result};
use crate::files;
use crate::header::Header;
use crate::inspect::{self, Report, Violation};
use crate::ir;
use crate::source::{Source, hex};
use crate::sysroot::{COMMON_FLAGS, Sysroot, TRIPLE, run};
use crate::target::{Target, is_hopper};
use crate::toolchain::{CARGO, Toolchain};

/// PTX that has been compiled from a kernel crate and checked.
#[derive(Debug)]
pub struct Artifact {
    /// The PTX, starting with its [`Header`].
    pub text: String,
    /// Kernels and functions in the PTX, as found by [`inspect`].
    pub report: Report,
}

/// Optional features of the device crate, which cost every kernel instructions or registers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extras {
    /// Kernels record their calls in a timeline if the job requests it.
    pub timeline: bool,
    /// Kernels can post to DC initiators, queue pairs of the dynamically connected transport.
    pub dc: bool,
    /// Kernels can hand queues whose connection has failed over to the host.
    pub failover: bool,
}

impl Extras {
    /// Returns the enabled features by their Cargo names.
    fn features(self) -> Vec<&'static str> {
        let all = [(self.timeline, "trace"), (self.dc, "dc"), (self.failover, "failover")];
        all.into_iter().filter(|(is_wanted, _)| *is_wanted).map(|(_, name)| name).collect()
    }
}

/// Compiles `source` for `target` with `toolchain`, and checks the result.
///
/// `cache` is a folder for intermediate files of several builds. It must not be the target folder of a running cargo,
/// or that cargo would wait for itself. The text depends only on source, target and compiler. It is the same on
/// every machine and in every folder.
///
/// # Errors
/// - [`Error::Compile`] for errors in the source.
/// - [`Error::Refused`] if the PTX breaks rules of [`inspect`].
/// - [`Error::Io`], [`Error::Manifest`] or [`Error::Spawn`] for files and programs.
pub fn compile(
    source: &Source,
    toolchain: &Toolchain,
    target: &Target,
    extras: Extras,
    cache: &Path,
) -> Result<Artifact> {
    Build::new(source, toolchain, target, extras, Form::Kernels, cache)?.checked_text()
}

/// Device functions for kernels in other languages.
#[derive(Debug)]
pub struct Library {
    llvm: String,
    /// Relocatable PTX of the functions.
    pub ptx: Artifact,
}

impl Library {
    /// Returns LLVM assembly of the functions for GPUs of architecture `arch`, such as `sm_90`, which the compiler of a
    /// kernel links and inlines. LLVM 22.0 and newer releases read it.
    pub fn llvm(&self, arch: &str) -> String {
        ir::portable(&self.llvm, is_hopper(arch))
    }
}

/// Compiles the crate of `extern "C"` device functions `source` for `target`, as [`compile`] does for kernels.
///
/// # Errors
/// The errors of [`compile`].
pub fn compile_library(
    source: &Source,
    toolchain: &Toolchain,
    target: &Target,
    cache: &Path,
) -> Result<Library> {
    let build = Build::new(source, toolchain, target, Extras::default(), Form::Library, cache)?;
    let asm = build.run(Lines::None)?;
    Ok(Library { llvm: files::read(&asm.with_extension("ll"))?, ptx: build.checked(asm)? })
}

/// Compiles the kernels that the crate of device functions `source` has with its feature `kernels`: one for each
/// function, for the conformance suite.
///
/// # Errors
/// The errors of [`compile`].
pub fn compile_conformance(
    source: &Source,
    toolchain: &Toolchain,
    target: &Target,
    cache: &Path,
) -> Result<Artifact> {
    Build::new(source, toolchain, target, Extras::default(), Form::Conformance, cache)?.checked_text()
}

/// What the compiled functions are for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// Kernels that the runtime loads.
    Kernels,
    /// Functions that kernels in other languages call.
    Library,
    /// Kernels of such functions, for the conformance suite.
    Conformance,
}

/// Whether to emit the source lines of instructions.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lines {
    None,
    /// Emit `.loc` and `.file` directives, whose paths depend on the machine.
    All,
}

struct Build<'a> {
    source: &'a Source,
    toolchain: &'a Toolchain,
    target: &'a Target,
    extras: Extras,
    sysroot: Sysroot,
    form: Form,
}

impl<'a> Build<'a> {
    fn new(
        source: &'a Source,
        toolchain: &'a Toolchain,
        target: &'a Target,
        extras: Extras,
        form: Form,
        cache: &Path,
    ) -> Result<Self> {
        let sysroot = Sysroot::open(toolchain, target, cache)?;
        Ok(Self { source, toolchain, target, extras, sysroot, form })
    }

    /// Compiles the crate, and checks its PTX.
    fn checked_text(&self) -> Result<Artifact> {
        self.checked(self.run(Lines::None)?)
    }

    /// Checks the PTX in the file `asm`, and adds its header.
    fn checked(&self, asm: PathBuf) -> Result<Artifact> {
        let Self { source, toolchain, target, .. } = self;
        let text = bounds::apply(&files::read(&asm)?);
        let body = target.apply(&text);
        let header = Header {
            krate: source.crate_name.clone(),
            compiler: toolchain.version.to_string(),
            target: target.to_string(),
            source: source.hash.clone(),
        };
        match inspect::check(&body, target) {
            Ok(report) => Ok(Artifact { text: format!("{header}{body}"), report }),
            Err(violations) => {
                let (ptx, violations) = self.located().unwrap_or((asm, violations));
                Err(Error::Refused { krate: source.crate_name.clone(), ptx, violations })
            }
        }
    }

    /// Compiles the crate again, with source lines, to name the line of each violation.
    fn located(&self) -> Option<(PathBuf, Vec<Violation>)> {
        let asm = self.run(Lines::All).ok()?;
        let text = files::read(&asm).ok()?;
        Some((asm, inspect::check(&self.target.apply(&text), self.target).err()?))
    }

    /// Returns Cargo's target folder. Builds with and without source lines share it, so they share the compiled macros,
    /// which take longer to compile than the kernels.
    fn target_dir(&self) -> PathBuf {
        // Cargo confuses packages of the same name from different workspaces, so each workspace gets its own folder.
        let Source { dir, workspace, crate_name, module, .. } = self.source;
        let workspace = if module.is_some() { dir.join(crate_name) } else { workspace.clone() };
        let workspace = hex(&Sha256::digest(workspace.as_os_str().as_encoded_bytes()));
        let extra: String = self.extras.features().iter().map(|name| format!("-{name}")).collect();
        let form = match self.form {
            Form::Kernels => "",
            Form::Library => "-library",
            Form::Conformance => "-conformance",
        };
        self.sysroot.cache.join(format!("build-{}{extra}{form}", &workspace[..8]))
    }

    /// Compiles the crate with Cargo and returns the path of its PTX.
    fn run(&self, lines: Lines) -> Result<PathBuf> {
        let Self { source, toolchain, target, extras, sysroot, form } = self;
        let build = self.target_dir();
        let mut command = Command::new(cargo());
        scrub(&mut command);
        command
            .current_dir(&source.dir)
            .arg("rustc")
            .args(["--quiet", "--release", "--lib", "--crate-type", "cdylib", "--target", TRIPLE])
            .arg("--target-dir")
            .arg(&build);
        let mut package = source.dir.clone();
        if let Some(module) = &source.module {
            package = build.join("crate");
            module.write(&package)?;
        } else if source.workspace.join("Cargo.lock").exists() {
            command.arg("--locked");
        }
        command.arg("--manifest-path").arg(package.join("Cargo.toml"));
        for feature in extras.features() {
            command.arg("--features").arg(format!("rushmem-device/{feature}"));
        }
        if *form == Form::Conformance {
            command.args(["--features", "kernels"]);
        }
        command.args(["--", if *form == Form::Library { "--emit=asm,llvm-ir" } else { "--emit=asm" }]);
        command
            .env("RUSTC", &toolchain.rustc)
            .env("RUSTC_BOOTSTRAP", "1")
            .env("RUSTC_WRAPPER", sysroot.wrapper())
            .env("RUSTC_WORKSPACE_WRAPPER", "")
            .env("CARGO_ENCODED_RUSTFLAGS", flags(source, target, &sysroot.path).join("\x1f"))
            .env("CARGO_TERM_COLOR", "never");
        for (key, value) in PROFILE {
            command.env(format!("CARGO_PROFILE_RELEASE_{key}"), value);
        }
        if lines == Lines::All {
            command.env("CARGO_PROFILE_RELEASE_DEBUG", "line-directives-only");
        }
        run(command, &format!("compiling the kernels `{}`", source.crate_name))
            .map_err(|error| explain(error, &source.crate_name, source.module.is_some()))?;
        Ok(build.join(TRIPLE).join("release/deps").join(format!("{}.s", source.crate_name)))
    }
}

/// Rewrites compiler messages about a missing standard library to name the remedy. Messages about a missing crate also
/// list the crates that a kernel module can use.
fn explain(error: Error, crate_name: &str, is_module: bool) -> Error {
    let Error::Compile { step, output } = &error else { return error };
    let is_about_std = output.contains("can't find crate for `std`");
    let is_about_abi = output.contains("\"ptx-kernel\" ABI is experimental");
    let failed = output.split("could not compile `").nth(1).and_then(|rest| rest.split('`').next());
    match failed {
        Some(package) if is_about_std && package.replace('-', "_") != crate_name => {
            Error::DependencyNeedsStd { krate: crate_name.into(), dependency: package.into() }
        }
        Some(_) if is_about_std || is_about_abi => Error::NeedsStd { krate: crate_name.into() },
        Some(_) if is_module && (output.contains("error[E0432]") || output.contains("error[E0433]")) => {
            let output = format!(
                "{output}\nA kernel module has `core`, `rushmem-device`, and the dependencies that \
                 `rushmem_ptx::Builder::dependency` names in build.rs."
            );
            Error::Compile { step: step.clone(), output }
        }
        _ => error,
    }
}

/// Settings of Cargo's release profile for GPU code, independent of the host's profile. All crates become a single PTX
/// module.
const PROFILE: [(&str, &str); 8] = [
    ("OPT_LEVEL", "3"),
    ("LTO", "fat"),
    ("CODEGEN_UNITS", "1"),
    ("PANIC", "abort"),
    ("DEBUG", "false"),
    ("DEBUG_ASSERTIONS", "false"),
    ("OVERFLOW_CHECKS", "false"),
    ("INCREMENTAL", "false"),
];

fn flags(source: &Source, target: &Target, sysroot: &Path) -> Vec<String> {
    let mut flags: Vec<String> = COMMON_FLAGS.map(str::to_owned).into();
    flags.extend(target.flags());
    // Show errors only. The host's build of the same crates shows the warnings.
    flags.push("-Awarnings".into());
    // Do not link anything: the assembly of the last crate is the module.
    flags.push("-Clinker=true".into());
    flags.push("--sysroot".into());
    flags.push(sysroot.display().to_string());
    // Error records of kernels contain `Location`s, and these contain paths. Compiler messages keep the real
    // paths. The last matching prefix applies.
    flags.push("--remap-path-scope=macro".into());
    let packages = source.packages.iter().map(|(dir, name)| (dir.clone(), name.as_str()));
    let registry = cargo_home().map(|home| (home.join("registry/src"), "registry"));
    for (dir, name) in registry.into_iter().chain(packages) {
        flags.push(format!("--remap-path-prefix={}={name}", dir.display()));
    }
    flags
}

fn cargo_home() -> Option<PathBuf> {
    let home = || env::var_os("HOME").map(|home| PathBuf::from(home).join(".cargo"));
    env::var_os("CARGO_HOME").map(PathBuf::from).or_else(home)
}

/// Returns the `cargo` to use: that in `RUSHMEM_PTX_CARGO`, or else the one that runs this build script.
fn cargo() -> PathBuf {
    env::var_os(CARGO).or_else(|| env::var_os("CARGO")).unwrap_or_else(|| "cargo".into()).into()
}

/// Removes the environment variables that the outer Cargo has set for its own build.
fn scrub(command: &mut Command) {
    const KEPT: [&str; 5] =
        ["CARGO_HOME", "CARGO_HTTP_", "CARGO_NET_", "CARGO_REGISTRIES_", "CARGO_REGISTRY_"];
    const GONE: [&str; 12] = [
        "CARGO",
        "RUSTC",
        "RUSTDOC",
        "RUSTFLAGS",
        "RUSTUP_TOOLCHAIN",
        "MAKEFLAGS",
        "MFLAGS",
        "DEP_",
        "OUT_DIR",
        "TARGET",
        "HOST",
        "PROFILE",
    ];
    for (key, _) in env::vars_os() {
        let name = key.to_string_lossy();
        let starts = |list: &[&str]| list.iter().any(|p| name.starts_with(p));
        if starts(&GONE) && !starts(&KEPT) {
            command.env_remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn explained(output: &str) -> String {
        let error = Error::Compile { step: "step".into(), output: output.into() };
        explain(error, "my_kernels", false).to_string()
    }

    #[test]
    fn missing_crate_of_a_module_comes_with_a_remedy() {
        let output = "error[E0432]: unresolved import `libm`\nerror: could not compile `kernels`";
        let explained = |is_module| {
            let error = Error::Compile { step: "step".into(), output: output.into() };
            explain(error, "kernels", is_module).to_string()
        };
        assert!(
            explained(true).contains(output)
                && explained(true).contains("`rushmem_ptx::Builder::dependency`")
        );
        assert!(!explained(false).contains("Builder"));
    }

    #[test]
    fn explains_a_missing_standard_library() {
        let std = "error[E0463]: can't find crate for `std`\n\nerror: could not compile";
        let own = explained(&format!("{std} `my-kernels` (lib) due to 1 previous error"));
        assert!(
            own.starts_with("the kernels `my_kernels` use the standard library")
                && own.contains("no_std, feature")
        );
        let other = explained(&format!("{std} `serde` (lib) due to 1 previous error"));
        assert!(other.starts_with("`serde`, a dependency of the kernels `my_kernels`, uses"), "{other}");
        let abi = "error[E0658]: the extern \"ptx-kernel\" ABI is experimental\nerror: could not compile `my-kernels`";
        assert!(explained(abi).contains("no_std, feature(abi_ptx)"));
        assert!(
            explained("error: mismatched types\nerror: could not compile `my-kernels`")
                .contains("mismatched")
        );
    }
}
