use std::path::PathBuf;

use rushmem_mlx5::prm::{CmdOpcode, DecodeError};

/// The result of this crate's calls.
pub type Result<T = (), E = Error> = std::result::Result<T, E>;

/// Why a comparison could not be made, or what it found.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// What NVIDIA's half needs is not there.
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
        /// What was run.
        command: String,
        /// What it said.
        log: String,
    },
    /// A record of WQEs cannot be read.
    #[error("line {line} of the record: {what}")]
    Record {
        /// The line, from 1.
        line: usize,
        /// What is wrong with it.
        what: String,
    },
    /// Some of what was run went wrong, and has been told.
    #[error("{0} of the runs went wrong: see above")]
    Failed(usize),
    /// What was run did not do what it should.
    #[error("{case}: {what}")]
    Wrong {
        /// The case.
        case: String,
        /// What is wrong.
        what: String,
    },
}

impl Error {
    /// A case that went wrong.
    pub(crate) fn wrong(case: impl ToString, what: impl ToString) -> Self {
        Self::Wrong { case: case.to_string(), what: what.to_string() }
    }
}
