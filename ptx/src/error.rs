//! The error type of PTX builds.

use std::path::{Path, PathBuf};

use crate::inspect::Violation;

/// A `Result` with this crate's [`Error`] as the default error type.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Shell commands that install a PTX compiler, for error messages.
pub(crate) const TOOLCHAIN_REMEDY: [&str; 2] =
    ["rustup toolchain install nightly --component rust-src", "apt-get install rustc-web rust-web-src"];

/// The reason why PTX could not be built. The message says what was tried, and the remedy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An environment variable is missing that Cargo sets for build scripts only. Contains its name.
    #[error("{0} is not set: call rushmem_ptx from a build script (build.rs)")]
    NotABuildScript(&'static str),

    /// An environment variable has an invalid value.
    #[error("{name}={value}: expected {expected}")]
    Variable {
        /// Name of the environment variable.
        name: &'static str,
        /// The invalid value.
        value: String,
        /// Description of the accepted values.
        expected: &'static str,
    },

    /// An environment variable starts with this crate's prefix but is unknown.
    #[error("unknown variable {name}; known are {known}")]
    UnknownVariable {
        /// Name of the environment variable.
        name: String,
        /// The known names, separated by commas.
        known: String,
    },

    /// A file could not be read or written.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// The operation that failed, as a verb such as `read`.
        action: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },

    /// A manifest or lock file has invalid contents.
    #[error("{}: {problem}", path.display())]
    Manifest {
        /// Path of the manifest or lock file.
        path: PathBuf,
        /// Description of the invalid contents.
        problem: String,
    },

    /// The compiler that an environment variable selects is unusable.
    #[error("{name}={}: {problem}", path.display())]
    Override {
        /// Name of the environment variable.
        name: &'static str,
        /// Path of the compiler.
        path: PathBuf,
        /// Why the compiler is unusable.
        problem: String,
    },

    /// PTX must be compiled, but no PTX compiler was found.
    #[error(
        "no PTX for the kernels `{krate}`: {committed}, and no PTX compiler was found\n\
         {looked}install one of these and build again:\n  {}\n  {}    (Debian 12)",
        TOOLCHAIN_REMEDY[0],
        TOOLCHAIN_REMEDY[1]
    )]
    NoToolchain {
        /// Name of the kernel crate.
        krate: String,
        /// Why committed PTX is not used.
        committed: String,
        /// Compilers that were found but rejected, one per line, with the reasons.
        looked: String,
    },

    /// The committed PTX is unusable, but `RUSHMEM_PTX=committed` forbids compiling.
    #[error("no PTX for the kernels `{krate}`: {committed}, and RUSHMEM_PTX=committed forbids compiling it")]
    NotCommitted {
        /// Name of the kernel crate.
        krate: String,
        /// Why the committed PTX is unusable.
        committed: String,
    },

    /// A compiler or `cargo` could not be started.
    #[error("cannot run {}: {source}", program.display())]
    Spawn {
        /// Path of the program.
        program: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },

    /// A compiler or `cargo` reported errors.
    #[error("{step} failed for the GPU\n{output}")]
    Compile {
        /// What was being compiled, for the message.
        step: String,
        /// Error messages of the compiler.
        output: String,
    },

    /// A kernel crate uses the standard library: it is not `no_std` for the GPU target.
    #[error(
        "the kernels `{krate}` use the standard library, which GPUs do not have: begin the src/lib.rs of their crate with\n\
         #![cfg_attr(target_arch = \"nvptx64\", no_std, feature(abi_ptx))]"
    )]
    NeedsStd {
        /// Name of the kernel crate.
        krate: String,
    },

    /// A dependency of a kernel crate uses the standard library.
    #[error(
        "`{dependency}`, a dependency of the kernels `{krate}`, uses the standard library, which GPUs do not have: \
         switch its default features off, or let only the host depend on it; in a kernel crate, under\n\
         [target.'cfg(not(target_arch = \"nvptx64\"))'.dependencies]"
    )]
    DependencyNeedsStd {
        /// Name of the kernel crate.
        krate: String,
        /// Name of the package that uses the standard library.
        dependency: String,
    },

    /// The PTX violates rules of [`inspect`](crate::inspect).
    #[error("the PTX of the kernels `{krate}` cannot be used:{}\n  the PTX is {}", listed(violations), ptx.display())]
    Refused {
        /// Name of the kernel crate.
        krate: String,
        /// Path of the rejected PTX.
        ptx: PathBuf,
        /// All violations, each with its line and function.
        violations: Vec<Violation>,
    },

    /// `ptxas` or `fatbinary` is missing, or `ptxas` reported an error. Contains the message.
    #[error("{0}")]
    Ptxas(String),
}

impl Error {
    /// Returns a closure for `map_err` that adds the file's path and the failed operation to an I/O error.
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        move |source| Self::Io { action, path: path.into(), source }
    }
}

fn listed(violations: &[Violation]) -> String {
    violations.iter().map(|v| format!("\n  {v}")).collect()
}
