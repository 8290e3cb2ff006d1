//! The things whose steps the engine orders: hosts, streams, GPU threads and operations in flight.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::access::Call;

/// The kind of an operation in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Transfer {
    /// A put, with or without a signal, or stores to a peer.
    Put,
    /// A get.
    Get,
    /// A signal or an atomic.
    Word,
    /// The part of one PE in a collective call.
    Collective,
    /// A fence that orders the operations of a PE to one other PE.
    Fence,
}

/// Something with its own program order: a host thread, a stream, a GPU thread, or an operation in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Actor {
    /// A host thread of a PE.
    Host {
        /// The PE that the host thread belongs to.
        pe: u32,
        /// Index of the host thread in the PE. Thread 0 has started the PE.
        thread: u32,
    },
    /// A stream of a PE.
    Stream {
        /// The PE that owns the stream.
        pe: u32,
        /// Index of the stream in the PE.
        stream: u32,
    },
    /// A GPU thread of a kernel launch.
    Thread {
        /// The PE that launched the kernel.
        pe: u32,
        /// Index of the launch, counted per PE.
        launch: u32,
        /// Index of the thread's block in the launch.
        block: u32,
        /// Index of the thread in its block.
        thread: u32,
    },
    /// An operation in flight, such as a put.
    Operation {
        /// The PE that posted the operation.
        pe: u32,
        /// The PE whose memory the operation accesses.
        target: u32,
        /// The kind of the operation.
        transfer: Transfer,
        /// The call that posted the operation.
        call: Call,
    },
}

impl Actor {
    /// Returns a description of the actor in which an operation was posted by `call`. An operation that consists of
    /// several stores has several calls.
    pub(crate) fn in_call(self, call: Call) -> Self {
        match self {
            Self::Operation { pe, target, transfer, .. } => Self::Operation { pe, target, transfer, call },
            other => other,
        }
    }

    /// Returns the PE that the actor belongs to.
    pub fn pe(self) -> u32 {
        match self {
            Self::Host { pe, .. }
            | Self::Stream { pe, .. }
            | Self::Thread { pe, .. }
            | Self::Operation { pe, .. } => pe,
        }
    }
}

impl fmt::Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host { pe, thread: 0 } => write!(f, "PE {pe} host"),
            Self::Host { pe, thread } => write!(f, "PE {pe} host thread {thread}"),
            Self::Stream { pe, stream } => write!(f, "PE {pe} stream {stream}"),
            Self::Thread { pe, launch, block, thread } => {
                write!(f, "PE {pe} launch {launch} block {block} thread {thread}")
            }
            Self::Operation { pe, target, call, .. } => {
                write!(f, "PE {pe} {} (an operation in flight to PE {target})", call.name)
            }
        }
    }
}
