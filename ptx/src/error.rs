//! Why there is no PTX.

use std::path::{Path, PathBuf};

use crate::inspect::Violation;

/// What this crate's functions return.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why there is no PTX. The message says what was tried and what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An environment variable that only a build script has.
    #[error("{0} is not set: call rushmem_ptx from a build script (build.rs)")]
    NotABuildScript(&'static str),

    /// A variable with a value that means nothing.
    #[error("{name}={value}: expected {expected}")]
    Variable {
        /// The variable.
        name: &'static str,
        /// Its value.
        value: String,
        /// What it may be.
        expected: &'static str,
    },

    /// A variable with our prefix that nothing reads.
    #[error("unknown variable {name}; known are {known}")]
    UnknownVariable {
        /// The variable.
        name: String,
        /// The others.
        known: String,
    },

    /// A file could not be read or written.
    #[error("cannot {doing} {}: {source}", path.display())]
    Io {
        /// What was done with it.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },

    /// A manifest or lock file that does not say what it must.
    #[error("{}: {what}", path.display())]
    Manifest {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },

    /// The compiler that the user named cannot be used.
    #[error("{name}={}: {what}", path.display())]
    Override {
        /// The variable that named it.
        name: &'static str,
        /// The path in it.
        path: PathBuf,
        /// Why it cannot be used.
        what: String,
    },

    /// Neither a compiler nor fitting committed PTX.
    #[error(
        "no PTX for kernel crate `{krate}`: {committed}, and no compiler for the GPU was found\n\
         {looked}install one of these and build again:\n  \
         rustup toolchain install nightly --component rust-src\n  \
         apt-get install rustc-web rust-web-src    (Debian 12)"
    )]
    NoToolchain {
        /// The kernel crate.
        krate: String,
        /// Why its committed PTX was not used.
        committed: String,
        /// The compilers that were looked at, a line each.
        looked: String,
    },

    /// `RUSHMEM_PTX=committed`, and what is committed does not fit.
    #[error(
        "no PTX for kernel crate `{krate}`: {committed}, and RUSHMEM_PTX=committed forbids to compile it"
    )]
    NotCommitted {
        /// The kernel crate.
        krate: String,
        /// Why its committed PTX was not used.
        committed: String,
    },

    /// A compiler or `cargo` could not be started.
    #[error("cannot run {}: {source}", program.display())]
    Spawn {
        /// The program.
        program: PathBuf,
        /// Why not.
        source: std::io::Error,
    },

    /// The compiler refused.
    #[error("{what} failed for the GPU\n{output}")]
    Compile {
        /// What was compiled.
        what: String,
        /// What the compiler said.
        output: String,
    },

    /// The PTX breaks a rule.
    #[error("the PTX of kernel crate `{krate}` cannot be used:{}", listed(violations))]
    Refused {
        /// The kernel crate.
        krate: String,
        /// All of them.
        violations: Vec<Violation>,
    },

    /// `ptxas` is missing or refused.
    #[error("{0}")]
    Ptxas(String),
}

impl Error {
    /// For `map_err` on file operations.
    pub(crate) fn io(doing: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        move |source| Self::Io { doing, path: path.into(), source }
    }
}

fn listed(violations: &[Violation]) -> String {
    violations.iter().map(|v| format!("\n  {v}")).collect()
}
