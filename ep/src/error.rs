//! Errors of an exchange.

/// Result of calls of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The reason why a call of this crate failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An invalid shape.
    #[error("{0}")]
    Shape(String),
    /// A wrong argument, or a call at the wrong time.
    #[error("{call}: {what}")]
    Misuse {
        /// The name of the call.
        call: &'static str,
        /// What is wrong, with values, and the remedy.
        what: String,
    },
    /// A token chose an expert that does not exist.
    #[error("token {token} has expert {expert} as its choice {choice}, but there are {experts} experts: use 0 to {}, or -1 for none", experts - 1)]
    BadChoice {
        /// Index of the token.
        token: usize,
        /// Index of the choice among those of the token.
        choice: usize,
        /// The expert.
        expert: i32,
        /// The number of experts.
        experts: usize,
    },
    /// This PE sends an expert more rows than there is room for.
    #[error(
        "expert {expert} gets more than {capacity} rows from this PE: raise `capacity`, or send fewer tokens"
    )]
    FullExpert {
        /// The expert.
        expert: u32,
        /// Room for rows from one PE.
        capacity: usize,
    },
    /// A PE receives more rows than it has room for.
    #[error("PE {pe} gets {rows} rows and has room for {max_rows}: raise `max_rows`, or send fewer tokens")]
    FullPe {
        /// The PE.
        pe: u32,
        /// How many rows it would receive.
        rows: u32,
        /// Room for rows.
        max_rows: usize,
    },
    /// Another PE rejected the call.
    #[error("PE {pe} refused this call: see its error")]
    Refused {
        /// That PE.
        pe: u32,
    },
    /// The runtime failed.
    #[error(transparent)]
    Runtime(#[from] rushmem::Error),
}

impl From<Error> for rushmem::AppError {
    fn from(error: Error) -> Self {
        match error {
            Error::Runtime(error) => error.into(),
            other => Box::<dyn std::error::Error + Send + Sync>::from(other).into(),
        }
    }
}
