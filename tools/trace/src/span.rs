//! Spans, and the tracks that they are drawn on.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};

/// A row of the timeline.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Track {
    /// The host.
    Host,
    /// The operations that the host performs by kernels, beside all streams.
    Operations,
    /// A stream of launches. The PE's own stream has the number 0.
    Stream {
        /// Its number.
        number: u32,
    },
    /// A thread of a kernel.
    Lane {
        /// The block.
        block: u32,
        /// The thread in the block.
        thread: u32,
    },
    /// A send queue: its doorbells, and its WQEs from their execution to their completion.
    Queue {
        /// The QP number.
        qpn: u32,
    },
    /// The arrivals at a NIC.
    Arrivals,
    /// The packets of a NIC.
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

/// The kind of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Category {
    /// A call of the host.
    Host,
    /// A launch of a kernel.
    Launch,
    /// A kernel in one of its threads.
    Kernel,
    /// A call of a kernel.
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
    /// Returns its name in files.
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

/// A line of the program.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Site {
    /// The file.
    pub file: Cow<'static, str>,
    /// The line.
    pub line: u32,
}

impl Site {
    /// Returns ` at FILE:LINE`, or nothing without a line.
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

/// A word of the symmetric memory of a PE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Word {
    /// The PE.
    pub pe: u32,
    /// The offset.
    pub offset: u64,
}

/// The properties of a span. Each kind of span has some of them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Detail {
    /// The other PE.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peer: Option<u32>,
    /// The bytes that it moves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// The offset that it reads or writes at the peer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remote: Option<u64>,
    /// The word that it changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changes: Option<Word>,
    /// The word that it waits for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub awaits: Option<Word>,
    /// The object that this memory belongs to and the byte in it, as text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
    /// The slot and the generation of the team of a collective call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub team: Option<(u32, u32)>,
    /// The QP number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub qpn: Option<u32>,
    /// The index of a WQE, or the sequence number of a packet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub index: Option<u64>,
    /// Anything else, as text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<Cow<'static, str>>,
}

/// Something that took time, or happened at one time.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    /// The PE.
    pub pe: u32,
    /// The row that it is drawn on.
    pub track: Track,
    /// Its name.
    pub name: Cow<'static, str>,
    /// Its kind.
    pub category: Category,
    /// The line of the program, if there is one.
    pub site: Option<Site>,
    /// The time at which it began, in nanoseconds.
    pub begin: u64,
    /// The time at which it ended, in nanoseconds; `None` if it has not ended.
    pub end: Option<u64>,
    /// Its properties.
    pub detail: Detail,
}

impl Span {
    /// Returns whether it is a call that waits.
    pub fn is_wait(&self) -> bool {
        matches!(self.category, Category::Wait | Category::Collective)
    }

    /// Returns whether it is a doorbell of a send queue.
    pub(crate) fn is_doorbell(&self) -> bool {
        self.category == Category::Nic && self.name == "doorbell"
    }

    /// Returns whether it is a WQE.
    pub(crate) fn is_wqe(&self) -> bool {
        let is_in_queue = self.category == Category::Nic && matches!(self.track, Track::Queue { .. });
        is_in_queue && self.detail.index.is_some()
    }

    /// Returns its length in nanoseconds, up to `now` if it has not ended.
    pub fn ns(&self, now: u64) -> u64 {
        self.end.unwrap_or(now).saturating_sub(self.begin)
    }
}
