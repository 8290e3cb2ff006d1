//! Events that the supervisor of a job's PEs waits for.

use std::io;

use rushmem::bootstrap;

use super::sys::Exit;

pub(super) enum Event {
    /// The process of PE `.0` has exited.
    Exited(u32, io::Result<Exit>),
    /// This launcher received a signal.
    Signal(i32),
    /// The job's server reported a loss, confirmed an exit, or refused this launcher.
    Server(bootstrap::ServerEvent),
    /// The reader of the launcher's output has closed it.
    OutputClosed,
    /// News from the other node of this index.
    Node(usize, NodeEvent),
}

pub(super) enum NodeEvent {
    /// All PEs of the node are running.
    Started,
    /// Its agent has a sentence for the user.
    Note(String),
    /// Its agent terminated the PEs for this reason.
    Failed(String),
    /// The connection is closed, for this reason.
    Closed(String),
}
