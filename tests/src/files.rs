//! Exchanges start-up data between PEs through files in a shared folder, as a minimal custom bootstrap.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use rushmem::Error;
use rushmem::bootstrap::{Exchange, ExchangeError};

/// Time limit for the start-up of all processes, longer than any takes to start.
const STARTUP_TIMEOUT: Duration = Duration::from_secs(30);

/// A start-up exchange in which each process writes its part to a file named after its PE number.
pub struct Files {
    folder: PathBuf,
    pe: u32,
    n_pes: u32,
}

impl Files {
    /// Parses the folder, this PE's number and the number of PEs from command-line arguments.
    ///
    /// # Errors
    /// - [`Error::Misuse`] if one is missing
    pub fn from_args(mut args: impl Iterator<Item = String>) -> Result<Files, Error> {
        let folder = args.next();
        let (pe, n_pes) =
            (args.next().and_then(|n| n.parse().ok()), args.next().and_then(|n| n.parse().ok()));
        match (folder, pe, n_pes) {
            (Some(folder), Some(pe), Some(n_pes)) => Ok(Files { folder: folder.into(), pe, n_pes }),
            _ => Err(Error::misuse("suite_pe", "files FOLDER PE N")),
        }
    }
}

impl Exchange for Files {
    fn pe(&self) -> u32 {
        self.pe
    }

    fn n_pes(&self) -> u32 {
        self.n_pes
    }

    fn allgather(&self, mine: &[u8]) -> Result<Vec<Vec<u8>>, ExchangeError> {
        let draft = self.folder.join(format!("{}.draft", self.pe));
        std::fs::write(&draft, mine)?;
        // Write to a draft and rename it, so the file is complete when it appears.
        std::fs::rename(&draft, self.folder.join(self.pe.to_string()))?;
        let begin = Instant::now();
        let read = |pe: u32| loop {
            match std::fs::read(self.folder.join(pe.to_string())) {
                Ok(bytes) => return Ok(bytes),
                Err(error) if begin.elapsed() > STARTUP_TIMEOUT => return Err(error.into()),
                Err(_) => std::thread::sleep(Duration::from_millis(5)),
            }
        };
        (0..self.n_pes).map(read).collect()
    }
}
