//! The errors of an exchange.

/// The result of a call of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The reason why a call of this crate failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A shape that no exchange can have.
    #[error("{0}")]
    Shape(String),
    /// A wrong argument, or a call at a wrong time.
    #[error("{call}: {what}")]
    Misuse {
        /// The name of the call.
        call: &'static str,
        /// The reason, with values and the remedy.
        what: String,
    },
    /// A token chose an expert that does not exist.
    #[error("token {token} has expert {expert} as its choice {choice}, but there are {experts} experts: use 0 to {}, or -1 for none", experts - 1)]
    BadChoice {
        /// The token.
        token: usize,
        /// The number of the choice.
        choice: usize,
        /// The expert.
        expert: i32,
        /// The number of experts.
        experts: usize,
    },
    /// An expert gets more rows from this PE than it has room for.
    #[error(
        "expert {expert} gets more than {capacity} rows from this PE: raise `capacity`, or send fewer tokens"
    )]
    FullExpert {
        /// The expert.
        expert: u32,
        /// The room for rows of a PE.
        capacity: usize,
    },
    /// A PE gets more rows than it has room for.
    #[error("PE {pe} gets {rows} rows and has room for {max_rows}: raise `max_rows`, or send fewer tokens")]
    FullPe {
        /// The PE.
        pe: u32,
        /// The number of its rows.
        rows: u32,
        /// The room for rows.
        max_rows: usize,
    },
    /// Another PE refused the call.
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
