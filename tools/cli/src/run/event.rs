//! Events that the supervisor of a node's PEs waits for.

use std::io;

use rushmem::bootstrap;

use super::sys::Exit;

pub(super) enum Event {
    /// The process of PE `.0` of this node has exited.
    Exited(u32, io::Result<Exit>),
    /// This launcher received a signal.
    Signal(i32),
    /// The job's server reported a loss, confirmed an exit, or refused this launcher.
    Server(bootstrap::ServerEvent),
    /// The reader of the launcher's output has closed it.
    OutputClosed,
}
