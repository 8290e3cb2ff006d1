//! What ends the command early, and with which exit code.

use rushmem::{bootstrap, config};

/// An error of the command itself; what the programs that it runs do is no error here.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The command line makes no sense.
    #[error("{0}")]
    Usage(String),
    /// A setting is wrong.
    #[error(transparent)]
    Config(#[from] config::Error),
    /// This machine lacks something.
    #[error("{0}")]
    Environment(String),
    /// The job's server or its connection failed.
    #[error(transparent)]
    Bootstrap(#[from] bootstrap::Error),
    /// A job of the command's own failed.
    #[error(transparent)]
    Job(#[from] rushmem::Error),
    /// A promise of our own code was broken.
    #[error("internal error: {0}; please report it")]
    Internal(String),
}

impl Error {
    /// The exit code: 2 usage and configuration, 3 environment, 4 internal.
    pub(crate) fn code(&self) -> u8 {
        match self {
            Error::Usage(_)
            | Error::Config(_)
            | Error::Job(rushmem::Error::Config(_))
            | Error::Bootstrap(bootstrap::Error::Token) => 2,
            Error::Environment(_) | Error::Bootstrap(_) | Error::Job(_) => 3,
            Error::Internal(_) => 4,
        }
    }
}
