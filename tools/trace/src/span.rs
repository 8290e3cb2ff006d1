//! Spans of a timeline, and the tracks on which they are drawn.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};

/// A row of the timeline, which shows the activity of one actor of a PE.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Track {
    /// Calls of the host program.
    Host,
    /// Kernels that the host launches to perform single operations, outside of all streams.
    Operations,
    /// Kernel launches in a stream. Stream 0 is the PE's default stream.
    Stream {
        /// Index of the stream, starting at 0.
        number: u32,
    },
    /// Calls of one thread of a kernel.
    Lane {
        /// Index of the thread's block in the grid.
        block: u32,
        /// Index of the thread in its block.
        thread: u32,
    },
    /// A send queue: its doorbells, and its WQEs from execution to completion.
    Queue {
        /// QPN of the send queue.
        qpn: u32,
    },
    /// Data that arrives at the PE's NIC.
    Arrivals,
    /// Packets that the PE's NIC sends and receives.
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

/// Kind of a span, which determines how it is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Category {
    /// A call of the host program.
    Host,
    /// A launch of a kernel, from the host's point of view.
    Launch,
    /// A kernel, as executed by one of its threads.
    Kernel,
    /// A call to the device library made by a kernel.
    Call,
    /// A call that waits for a word of memory or for completions.
    Wait,
    /// A collective call, which waits for the other members of its team.
    Collective,
    /// Work of a NIC, such as executing a WQE.
    Nic,
    /// A packet that a NIC sends or receives.
    Packet,
}

impl Category {
    /// Returns the name of the category in trace files.
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

/// A source line of the program, from which a call was made.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Site {
    /// Path of the source file.
    pub file: Cow<'static, str>,
    /// Line number, starting at 1.
    pub line: u32,
}

impl Site {
    /// Formats ` at FILE:LINE`, or nothing for `None`.
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

/// A word in the symmetric memory of a PE, on which waits and signals operate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Word {
    /// PE that owns the memory.
    pub pe: u32,
    /// Offset of the word in the symmetric memory, in bytes.
    pub offset: u64,
}

/// Optional properties of a span. Which of them are set depends on the kind of span.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Detail {
    /// The other PE of a transfer, or the PE that is waited for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peer: Option<u32>,
    /// Number of bytes transferred.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Offset in the peer's symmetric memory that is read or written, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remote: Option<u64>,
    /// Word that the call changes, such as a signal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changes: Option<Word>,
    /// Word that the call waits for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub awaits: Option<Word>,
    /// Name of the object in symmetric memory that is accessed, and the position in it, as text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
    /// Slot and generation of the team that makes a collective call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub team: Option<(u32, u32)>,
    /// QPN of the send queue that executes the operation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub qpn: Option<u32>,
    /// Index of a WQE in its queue, or sequence number of a packet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub index: Option<u64>,
    /// Additional text, such as the condition of a wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<Cow<'static, str>>,
}

/// An activity of a PE that took some time, or happened at a point in time.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    /// Rank of the PE.
    pub pe: u32,
    /// Track on which the span is drawn.
    pub track: Track,
    /// Name of the activity, such as that of the call.
    pub name: Cow<'static, str>,
    /// Kind of the activity.
    pub category: Category,
    /// Source line that made the call, if known.
    pub site: Option<Site>,
    /// Start time, in nanoseconds since 1970.
    pub begin: u64,
    /// End time, in nanoseconds since 1970. `None` while the span is open.
    pub end: Option<u64>,
    /// Further properties, such as peer and size.
    pub detail: Detail,
}

impl Span {
    /// Returns whether the activity is a call that waits, which includes collective calls.
    pub fn is_wait(&self) -> bool {
        matches!(self.category, Category::Wait | Category::Collective)
    }

    /// Returns whether the activity is ringing a send queue's doorbell.
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
