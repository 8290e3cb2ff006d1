use std::path::PathBuf;

use rushmem_mlx5::prm::{CmdOpcode, DecodeError};

/// The result of this crate's functions, by default without a value.
pub type Result<T = (), E = Error> = std::result::Result<T, E>;

/// The reason why a comparison failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Something that the comparison needs is missing, such as nvcc, NVIDIA's headers or a GPU.
    #[error("{0}")]
    Missing(String),
    /// The software ConnectX refused a call.
    #[error("the software ConnectX: {0}")]
    Nic(#[from] rushmem_softnic::Error),
    /// The software ConnectX refused a command.
    #[error("the software ConnectX refused {0}: {1}")]
    Command(CmdOpcode, DecodeError),
    /// The memory of a queue or heap is not accessible.
    #[error("memory of the software ConnectX: {0}")]
    Memory(#[from] rushmem_softnic::MemoryError),
    /// A CUDA call failed.
    #[error(transparent)]
    Cuda(#[from] rushmem::cuda::Error),
    /// Our kernel failed when it ran natively on the CPU.
    #[error(transparent)]
    Native(#[from] rushmem::native::Error),
    /// A file could not be read or written.
    #[error("{0}: {1}")]
    File(PathBuf, std::io::Error),
    /// nvcc rejected NVIDIA's headers or our kernels.
    #[error("{command} failed:\n{log}")]
    Compile {
        /// The command line with which nvcc was run.
        command: String,
        /// Output of nvcc, with its error messages.
        log: String,
    },
    /// A line of a text file (recorded WQEs or a measurement plan) is malformed.
    #[error("line {line} of the record: {what}")]
    Record {
        /// Number of the malformed line, from 1.
        line: usize,
        /// What is wrong with the line.
        what: String,
    },
    /// Number of measurement runs that failed. Their errors have already been printed.
    #[error("{0} runs failed: see above")]
    Failed(usize),
    /// The result of an operation differs from the expected one.
    #[error("{case}: {what}")]
    Wrong {
        /// Name of the case.
        case: String,
        /// How the result differs from the expected one.
        what: String,
    },
}

impl Error {
    pub(crate) fn wrong(case: impl ToString, what: impl ToString) -> Self {
        Self::Wrong { case: case.to_string(), what: what.to_string() }
    }
}
