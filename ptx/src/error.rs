//! Errors of a PTX build.

use std::path::{Path, PathBuf};

use crate::inspect::Violation;

/// Result of this crate's functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The commands that install a PTX compiler.
pub(crate) const TOOLCHAIN_REMEDY: [&str; 2] =
    ["rustup toolchain install nightly --component rust-src", "apt-get install rustc-web rust-web-src"];

/// The reason why PTX could not be built. The message says what was tried, and the remedy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An environment variable is missing that Cargo sets for build scripts only.
    #[error("{0} is not set: call rushmem_ptx from a build script (build.rs)")]
    NotABuildScript(&'static str),

    /// A variable has an invalid value.
    #[error("{name}={value}: expected {expected}")]
    Variable {
        /// The variable.
        name: &'static str,
        /// Its value.
        value: String,
        /// Accepted values.
        expected: &'static str,
    },

    /// A variable with this crate's prefix is unknown.
    #[error("unknown variable {name}; known are {known}")]
    UnknownVariable {
        /// The variable.
        name: String,
        /// The known names.
        known: String,
    },

    /// A file could not be read or written.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What failed, such as `read`.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },

    /// A manifest or lock file has invalid contents.
    #[error("{}: {problem}", path.display())]
    Manifest {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },

    /// The compiler chosen by the user is unusable.
    #[error("{name}={}: {problem}", path.display())]
    Override {
        /// The variable that names the compiler.
        name: &'static str,
        /// Its value.
        path: PathBuf,
        /// Why the compiler is unusable.
        problem: String,
    },

    /// There is neither a compiler nor usable committed PTX.
    #[error(
        "no PTX for the kernels `{krate}`: {committed}, and no PTX compiler was found\n\
         {looked}install one of these and build again:\n  {}\n  {}    (Debian 12)",
        TOOLCHAIN_REMEDY[0],
        TOOLCHAIN_REMEDY[1]
    )]
    NoToolchain {
        /// The kernel crate.
        krate: String,
        /// Why its committed PTX is unusable.
        committed: String,
        /// Rejected compilers, one per line.
        looked: String,
    },

    /// The committed PTX is unusable, but `RUSHMEM_PTX=committed` forbids compiling.
    #[error("no PTX for the kernels `{krate}`: {committed}, and RUSHMEM_PTX=committed forbids compiling it")]
    NotCommitted {
        /// The kernel crate.
        krate: String,
        /// Why its committed PTX is unusable.
        committed: String,
    },

    /// A compiler or `cargo` could not be started.
    #[error("cannot run {}: {source}", program.display())]
    Spawn {
        /// The program.
        program: PathBuf,
        /// The cause.
        source: std::io::Error,
    },

    /// Compilation failed.
    #[error("{step} failed for the GPU\n{output}")]
    Compile {
        /// The failed step.
        step: String,
        /// Output of the compiler.
        output: String,
    },

    /// A kernel crate is not `no_std` on GPUs.
    #[error(
        "the kernels `{krate}` use the standard library, which GPUs do not have: begin the src/lib.rs of their crate with\n\
         #![cfg_attr(target_arch = \"nvptx64\", no_std, feature(abi_ptx))]"
    )]
    NeedsStd {
        /// The kernel crate.
        krate: String,
    },

    /// A dependency of a kernel crate uses the standard library.
    #[error(
        "`{dependency}`, a dependency of the kernels `{krate}`, uses the standard library, which GPUs do not have: \
         switch its default features off, or let only the host depend on it; in a kernel crate, under\n\
         [target.'cfg(not(target_arch = \"nvptx64\"))'.dependencies]"
    )]
    DependencyNeedsStd {
        /// The kernel crate.
        krate: String,
        /// The package that uses the standard library.
        dependency: String,
    },

    /// The PTX violates rules of [`inspect`](crate::inspect).
    #[error("the PTX of the kernels `{krate}` cannot be used:{}\n  the PTX is {}", listed(violations), ptx.display())]
    Refused {
        /// The kernel crate.
        krate: String,
        /// The file with the PTX.
        ptx: PathBuf,
        /// All violations.
        violations: Vec<Violation>,
    },

    /// `ptxas` is missing or reported an error.
    #[error("{0}")]
    Ptxas(String),
}

impl Error {
    /// Returns a function for `map_err` that adds the file and what failed.
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        move |source| Self::Io { action, path: path.into(), source }
    }
}

fn listed(violations: &[Violation]) -> String {
    violations.iter().map(|v| format!("\n  {v}")).collect()
}
