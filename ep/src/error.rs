//! Errors of dispatch and combine.

/// Result of this crate's functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The reason why a dispatch, a combine or another function of this crate failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The sizes of a [`Shape`](crate::Shape) are invalid, or do not fit the job.
    #[error("{0}")]
    Shape(String),
    /// A function got a wrong argument, or was called at the wrong time.
    #[error("{call}: {what}")]
    Misuse {
        /// Name of the function.
        call: &'static str,
        /// What is wrong with the call, with values, and the remedy.
        what: String,
    },
    /// A token chose an expert that does not exist.
    #[error("token {token} has expert {expert} as its choice {choice}, but there are {experts} experts: use 0 to {}, or -1 for none", experts - 1)]
    BadChoice {
        /// Index of the token in the batch.
        token: usize,
        /// Index of the choice among the token's choices.
        choice: usize,
        /// Index of the chosen expert.
        expert: i32,
        /// Number of experts that exist.
        experts: usize,
    },
    /// A PE would receive more rows than it has room for.
    #[error("PE {pe} gets {rows} rows and has room for {max_rows}: raise `max_rows`, or send fewer tokens")]
    FullPe {
        /// Rank of the PE that would receive too many rows.
        pe: u32,
        /// Number of rows that the PE would receive.
        rows: u32,
        /// Number of rows for which each PE has room.
        max_rows: usize,
    },
    /// Another PE rejected the dispatch.
    #[error("PE {pe} refused this call: see its error")]
    Refused {
        /// Rank of the PE that rejected the dispatch.
        pe: u32,
    },
    /// The Rushmem runtime returned an error.
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
