//! Errors of the command `rushmem`, with their exit codes.

use rushmem::{bootstrap, config};

/// An error of the command itself, as opposed to a failure of a program that it runs.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The command line is invalid.
    #[error("{0}")]
    Usage(String),
    /// A setting is invalid.
    #[error(transparent)]
    Config(#[from] config::Error),
    /// This machine does not meet a requirement.
    #[error("{0}")]
    Environment(String),
    /// The job's server or its connection failed.
    #[error(transparent)]
    Bootstrap(#[from] bootstrap::Error),
    /// A job that the command itself started failed.
    #[error(transparent)]
    Job(#[from] rushmem::Error),
    /// A benchmark failed.
    #[error("benchmark `{bench}` failed: {error}")]
    Benchmark { bench: &'static str, error: Box<Error> },
    /// A bug in this program.
    #[error("internal error: {0}; please report it")]
    Internal(String),
}

impl Error {
    /// Returns the exit code: 2 for usage and configuration, 3 for the environment, 4 for internal errors.
    pub(crate) fn code(&self) -> u8 {
        match self {
            Error::Usage(_)
            | Error::Config(_)
            | Error::Job(rushmem::Error::Config(_))
            | Error::Bootstrap(bootstrap::Error::Token) => 2,
            Error::Environment(_) | Error::Bootstrap(_) | Error::Job(_) => 3,
            Error::Benchmark { error, .. } => error.code(),
            Error::Internal(_) => 4,
        }
    }
}
