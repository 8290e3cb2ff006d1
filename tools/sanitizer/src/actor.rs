//! The natures of actors.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::access::Call;

/// The kind of an operation in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Transfer {
    /// A put, with or without a signal, or a store to a peer.
    Put,
    /// A get.
    Get,
    /// A signal or an atomic.
    Word,
    /// The part of one PE in a collective call.
    Collective,
    /// A fence, toward one PE.
    Fence,
}

/// The nature of an actor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Actor {
    /// A thread of the host.
    Host {
        /// Its PE.
        pe: u32,
        /// Its number in the PE; 0 is the thread that started the PE.
        thread: u32,
    },
    /// A stream.
    Stream {
        /// Its PE.
        pe: u32,
        /// Its number in the PE.
        stream: u32,
    },
    /// A GPU thread.
    Thread {
        /// Its PE.
        pe: u32,
        /// The number of its launch in the PE.
        launch: u32,
        /// Its block.
        block: u32,
        /// Its number in the block.
        thread: u32,
    },
    /// An operation in flight.
    Operation {
        /// The PE that posted it.
        pe: u32,
        /// The PE that it accesses.
        target: u32,
        /// Its kind.
        transfer: Transfer,
        /// The call that posted it.
        call: Call,
    },
}

impl Actor {
    /// Returns the actor as it takes part in `call`: an operation of several stores has several calls.
    pub(crate) fn in_call(self, call: Call) -> Self {
        match self {
            Self::Operation { pe, target, transfer, .. } => Self::Operation { pe, target, transfer, call },
            other => other,
        }
    }

    /// Returns the PE.
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
