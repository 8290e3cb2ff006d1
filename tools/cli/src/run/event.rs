//! What a supervisor waits for.

use std::io;

use rushmem::bootstrap;

use super::sys::Exit;

/// An event of a job.
pub(super) enum Event {
    /// The process of PE `.0` of this node has exited.
    Exited(u32, io::Result<Exit>),
    /// This launcher received a signal.
    Signal(i32),
    /// The job's server sent an event.
    Server(bootstrap::ServerEvent),
    /// The launcher's output has been closed by its reader.
    OutputClosed,
}
