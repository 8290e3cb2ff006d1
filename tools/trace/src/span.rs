//! Spans, and the tracks on which they are drawn.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};

/// A row of the timeline.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Track {
    /// Calls of the host.
    Host,
    /// Kernels with which the host performs operations, outside of all streams.
    Operations,
    /// Launches in a stream. Stream 0 is the PE's own.
    Stream {
        /// Index of the stream.
        number: u32,
    },
    /// A thread of a kernel.
    Lane {
        /// Index of the block in its grid.
        block: u32,
        /// Index of the thread in its block.
        thread: u32,
    },
    /// A send queue: its doorbells, and its WQEs from execution to completion.
    Queue {
        /// QPN of the queue.
        qpn: u32,
    },
    /// Data that arrives at a NIC.
    Arrivals,
    /// Packets that a NIC sends and receives.
    Packets,
}

impl fmt::Display for Track {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host => f.write_str("host"),
            Self::Operations => f.write_str("operations of the host"),
            Self::Stream { number: 0 } => f.write_str("launches"),
            Self::Stream { number } => write!(f, "stream {number}"),
            Self::Lane { block, thread } => write!(f, "block {block} thread {thread}"),
            Self::Queue { qpn } => write!(f, "QP {qpn:#x}"),
            Self::Arrivals => f.write_str("arrivals by NIC"),
            Self::Packets => f.write_str("packets"),
        }
    }
}

/// Kind of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Category {
    /// A call of the host.
    Host,
    /// A launch of a kernel.
    Launch,
    /// A kernel, as executed by one of its threads.
    Kernel,
    /// A call made by a kernel.
    Call,
    /// A call that waits for a word or for completions.
    Wait,
    /// A collective call.
    Collective,
    /// Work of a NIC.
    Nic,
    /// A packet.
    Packet,
}

impl Category {
    /// Returns the name used in files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Launch => "launch",
            Self::Kernel => "kernel",
            Self::Call => "call",
            Self::Wait => "wait",
            Self::Collective => "collective",
            Self::Nic => "nic",
            Self::Packet => "packet",
        }
    }
}

/// A source line of the program.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Site {
    /// File name.
    pub file: Cow<'static, str>,
    /// Line number.
    pub line: u32,
}

impl Site {
    /// Formats ` at FILE:LINE`, or nothing if there is no line.
    pub fn at(site: Option<&Self>) -> String {
        site.map_or_else(String::new, |site| format!(" at {site}"))
    }
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

impl From<&'static std::panic::Location<'static>> for Site {
    fn from(at: &'static std::panic::Location<'static>) -> Self {
        Self { file: Cow::Borrowed(at.file()), line: at.line() }
    }
}

/// A word in the symmetric memory of a PE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Word {
    /// PE that owns the memory.
    pub pe: u32,
    /// Offset in the symmetric memory, in bytes.
    pub offset: u64,
}

/// Properties of a span. Which of them are set depends on the kind of span.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Detail {
    /// The other PE of a transfer, or the PE that is waited for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peer: Option<u32>,
    /// Bytes moved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Offset that is read or written on the peer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remote: Option<u64>,
    /// Word that the call changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changes: Option<Word>,
    /// Word that the call waits for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub awaits: Option<Word>,
    /// Object that contains this memory and the position in it, as text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
    /// Slot and generation of the team that makes a collective call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub team: Option<(u32, u32)>,
    /// QPN of the queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub qpn: Option<u32>,
    /// Index of a WQE, or sequence number of a packet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub index: Option<u64>,
    /// Additional text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<Cow<'static, str>>,
}

/// Something that took time, or happened at a point in time.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    /// PE that it belongs to.
    pub pe: u32,
    /// Track on which it is drawn.
    pub track: Track,
    /// Name, such as that of the call.
    pub name: Cow<'static, str>,
    /// Its kind.
    pub category: Category,
    /// Source line, if any.
    pub site: Option<Site>,
    /// Start time, in nanoseconds.
    pub begin: u64,
    /// End time, in nanoseconds. `None` while the span is open.
    pub end: Option<u64>,
    /// Its properties.
    pub detail: Detail,
}

impl Span {
    /// Returns whether this is a call that waits.
    pub fn is_wait(&self) -> bool {
        matches!(self.category, Category::Wait | Category::Collective)
    }

    /// Returns whether this is a doorbell of a send queue.
    pub(crate) fn is_doorbell(&self) -> bool {
        self.category == Category::Nic && self.name == "doorbell"
    }

    pub(crate) fn is_wqe(&self) -> bool {
        let is_in_queue = self.category == Category::Nic && matches!(self.track, Track::Queue { .. });
        is_in_queue && self.detail.index.is_some()
    }

    /// Returns the duration in nanoseconds, up to `now` for an open span.
    pub fn ns(&self, now: u64) -> u64 {
        self.end.unwrap_or(now).saturating_sub(self.begin)
    }
}
