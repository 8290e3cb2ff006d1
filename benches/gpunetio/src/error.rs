use std::path::PathBuf;

use rushmem_mlx5::prm::{CmdOpcode, DecodeError};

/// The result of this crate's calls.
pub type Result<T = (), E = Error> = std::result::Result<T, E>;

/// A failure of a comparison.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// NVIDIA's half lacks something that it needs.
    #[error("{0}")]
    Missing(String),
    /// The software ConnectX refused a call.
    #[error("the software ConnectX: {0}")]
    Nic(#[from] rushmem_softnic::Error),
    /// The software ConnectX refused a command.
    #[error("the software ConnectX refused {0}: {1}")]
    Command(CmdOpcode, DecodeError),
    /// Memory of a queue or heap could not be reached.
    #[error("memory of the software ConnectX: {0}")]
    Memory(#[from] rushmem_softnic::MemoryError),
    /// CUDA failed.
    #[error(transparent)]
    Cuda(#[from] rushmem::cuda::Error),
    /// Running our kernel natively failed.
    #[error(transparent)]
    Native(#[from] rushmem::native::Error),
    /// A file could not be used.
    #[error("{0}: {1}")]
    File(PathBuf, std::io::Error),
    /// nvcc refused NVIDIA's headers or our kernels.
    #[error("{command} failed:\n{log}")]
    Compile {
        /// The command line.
        command: String,
        /// Its output.
        log: String,
    },
    /// A record of WQEs cannot be read.
    #[error("line {line} of the record: {what}")]
    Record {
        /// The line, from 1.
        line: usize,
        /// The mistake in the line.
        what: String,
    },
    /// Some runs failed. Their errors have been printed.
    #[error("{0} runs failed: see above")]
    Failed(usize),
    /// A case had a wrong result.
    #[error("{case}: {what}")]
    Wrong {
        /// The case.
        case: String,
        /// The mistake.
        what: String,
    },
}

impl Error {
    /// Returns the error of a case with a wrong result.
    pub(crate) fn wrong(case: impl ToString, what: impl ToString) -> Self {
        Self::Wrong { case: case.to_string(), what: what.to_string() }
    }
}
