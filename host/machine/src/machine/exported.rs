//! Memory of other PEs, and the files by which processes of a node pass it on.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rushmem_cuda::{ExportedBuffer, IPC_HANDLE_BYTES};
use rushmem_error::{Error, Result};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::Region;

/// Memory of another PE.
pub enum PeerMemory {
    /// Memory of a PE in this process.
    Local(Region),
    /// Memory of a PE in another process of the node.
    Remote {
        /// What [`Machine::export`](super::Machine::export) returned there.
        exported: ExportedMemory,
        /// Length of the memory in bytes.
        bytes: u64,
    },
}

/// What other processes of the node need to map memory.
#[derive(Clone)]
pub struct ExportedMemory {
    /// What the files are.
    pub layout: Layout,
    /// File descriptors, which processes pass on over Unix sockets.
    pub files: Vec<Arc<OwnedFd>>,
}

/// How the files of an [`ExportedMemory`] make up the memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Layout {
    /// The only file is the memory.
    Whole,
    /// The only file contains the CUDA IPC handle of an allocation.
    CudaIpc {
        /// Offset of the memory in the allocation, in bytes.
        offset: u64,
    },
    /// Each file is an allocation of CUDA's virtual memory. They are mapped one after the other.
    CudaVirtual {
        /// Offset of the memory in the first allocation, in bytes.
        offset: u64,
        /// Length of each allocation, in bytes.
        lens: Vec<u64>,
    },
}

impl ExportedMemory {
    /// Exports memory that is a file.
    ///
    /// # Errors
    /// It is none.
    pub(super) fn whole(region: &Region) -> Result<Self, String> {
        let why = "it is host memory of the application, which other processes cannot map";
        let file = region.file.as_ref().ok_or(why)?;
        Ok(Self { layout: Layout::Whole, files: vec![Arc::clone(file)] })
    }

    /// Exports GPU memory of the application.
    ///
    /// # Errors
    /// The errors of the operating system.
    pub(super) fn of_buffer(buffer: ExportedBuffer) -> Result<Self> {
        Ok(match buffer {
            ExportedBuffer::Ipc { handle, offset } => {
                let file = file_of(&handle).map_err(failed)?;
                Self { layout: Layout::CudaIpc { offset }, files: vec![Arc::new(file)] }
            }
            ExportedBuffer::Virtual { allocations, offset } => {
                let (files, lens) = allocations.into_iter().unzip();
                Self { layout: Layout::CudaVirtual { offset, lens }, files }
            }
        })
    }

    /// Returns the GPU memory that [`of_buffer`](Self::of_buffer) has exported.
    ///
    /// # Errors
    /// - [`Error::Unavailable`] if it is other memory, or a file is too short.
    pub(super) fn buffer(&self) -> Result<ExportedBuffer> {
        match (&self.layout, self.files.as_slice()) {
            (&Layout::CudaIpc { offset }, [file]) => {
                let handle = handle_in(file).map_err(failed)?;
                Ok(ExportedBuffer::Ipc { handle, offset })
            }
            (Layout::CudaVirtual { offset, lens }, files) if lens.len() == files.len() => {
                let allocations = files.iter().cloned().zip(lens.iter().copied()).collect();
                Ok(ExportedBuffer::Virtual { allocations, offset: *offset })
            }
            _ => Err(self.unknown()),
        }
    }

    /// Returns the file that is the memory.
    ///
    /// # Errors
    /// - [`Error::Unavailable`] if it is other memory.
    pub(super) fn file(&self) -> Result<&Arc<OwnedFd>> {
        match (&self.layout, self.files.as_slice()) {
            (Layout::Whole, [file]) => Ok(file),
            _ => Err(self.unknown()),
        }
    }

    fn unknown(&self) -> Error {
        Error::Unavailable {
            what: format!("a mapping of {:?}", self.layout),
            why: format!("this machine does not map such memory from {} files", self.files.len()),
        }
    }
}

fn failed(error: Errno) -> Error {
    let why = format!("{}; set RUSHMEM_PEER_PATH=auto", std::io::Error::from(error));
    Error::Unavailable { what: "a file with the handle of GPU memory".into(), why }
}

/// Returns an anonymous file that contains `handle`.
fn file_of(handle: &[u8]) -> Result<OwnedFd, Errno> {
    let file = memfd_create(c"rushmem", MemfdFlags::CLOEXEC)?;
    rustix::io::pwrite(&file, handle, 0)?;
    Ok(file)
}

fn handle_in(file: &OwnedFd) -> Result<[u8; IPC_HANDLE_BYTES], Errno> {
    let mut handle = [0; IPC_HANDLE_BYTES];
    match rustix::io::pread(file, &mut handle, 0)? {
        IPC_HANDLE_BYTES => Ok(handle),
        _ => Err(Errno::NODATA),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ipc_handles_travel_in_a_file() {
        let handle = std::array::from_fn(|i| i as u8);
        let exported = ExportedMemory::of_buffer(ExportedBuffer::Ipc { handle, offset: 512 }).unwrap();
        let ExportedBuffer::Ipc { handle: found, offset: 512 } = exported.buffer().unwrap() else {
            panic!("another buffer")
        };
        assert_eq!(found, handle);
        let file = Arc::new(file_of(&handle[1..]).unwrap());
        let short = ExportedMemory { files: vec![file], ..exported };
        assert!(short.buffer().is_err());
    }

    #[test]
    fn allocations_keep_their_order_and_need_a_file_each() {
        let file = |byte| Arc::new(file_of(&[byte; IPC_HANDLE_BYTES]).unwrap());
        let allocations = vec![(file(1), 4096), (file(2), 8192)];
        let exported =
            ExportedMemory::of_buffer(ExportedBuffer::Virtual { allocations, offset: 16 }).unwrap();
        let ExportedBuffer::Virtual { allocations, offset: 16 } = exported.buffer().unwrap() else {
            panic!("another buffer")
        };
        let found: Vec<_> =
            allocations.iter().map(|(file, len)| (handle_in(file).unwrap()[0], *len)).collect();
        assert_eq!(found, [(1, 4096), (2, 8192)]);
        assert!(exported.file().is_err());
        let fewer = ExportedMemory { files: Vec::new(), ..exported };
        assert!(fewer.buffer().is_err());
    }
}
