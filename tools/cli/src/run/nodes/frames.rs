//! What the launcher and the agent of another node send to each other through ssh: frames of a length and a message.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, ErrorKind, Read, Write};
use std::time::Duration;

use rushmem::bootstrap::wire;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::run::output::Stream;
use crate::run::sys::Exit;

/// Line that an agent writes before its first frame. It follows whatever the shells of its host write.
pub(super) const GREETING: &str = concat!("rushmem agent ", env!("CARGO_PKG_VERSION"), " protocol 2");

/// Longest message, in bytes.
const LIMIT: usize = 16 << 20;

/// What the launcher sends to an agent.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum ToAgent {
    /// The first message: what to start.
    Start(Box<Order>),
    /// Send this signal to the group of a process.
    Signal { process: u32, signal: i32 },
    /// Start the PE of this process again. All its processes have exited or are to be killed.
    Restart { process: u32 },
    /// Ask the PEs to print which PE waits for which.
    AskForWaits,
    /// Exit: no process will be started any more.
    End,
}

/// The part of a job that runs on the agent's node. It contains the job's secret.
#[derive(Serialize, Deserialize)]
pub(super) struct Order {
    pub(super) n_pes: u32,
    pub(super) first: u32,
    pub(super) count: u32,
    pub(super) node: u32,
    pub(super) nodes: u32,
    pub(super) token: String,
    /// Addresses of the job's server, the likeliest first.
    pub(super) servers: Vec<String>,
    /// How long to try each of `servers`.
    pub(super) patience: Duration,
    pub(super) directory: OsString,
    pub(super) program: OsString,
    pub(super) args: Vec<OsString>,
    pub(super) variables: BTreeMap<String, OsString>,
    /// Number of GPUs that the PEs use, if not all of the node.
    pub(super) gpus: Option<u32>,
    /// File for the timeline of the job, if the user wants one.
    pub(super) trace: Option<OsString>,
}

/// What an agent sends to the launcher. Processes are numbered in the order in which they were asked for, by `Start` one
/// per PE and then by each `Restart`.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum FromAgent {
    /// All PEs of the node are running.
    Started,
    /// Bytes that a process has written.
    Output { process: u32, stream: Stream, bytes: Vec<u8> },
    /// A process has closed an output stream.
    Closed { process: u32, stream: Stream },
    /// A process has exited, or could not be started again.
    Exited { process: u32, exit: Exit },
    /// A sentence for the user.
    Note(String),
    /// The agent terminated its PEs for this reason.
    Failed(String),
}

impl std::fmt::Debug for Order {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Order({} PEs from PE {})", self.count, self.first)
    }
}

/// Writes a message as one frame.
///
/// # Errors
/// The error of the write, or `InvalidInput` for a message that exceeds the longest frame.
pub(super) fn write(to: &mut impl Write, message: &impl Serialize) -> io::Result<()> {
    let body = postcard::to_extend(message, Vec::new())
        .map_err(|error| io::Error::new(ErrorKind::InvalidInput, error))?;
    if body.len() > LIMIT {
        return Err(io::Error::new(ErrorKind::InvalidInput, "the message is too long"));
    }
    to.write_all(&wire::frame_of(&body))?;
    to.flush()
}

/// Reads the next message, or `None` if the stream was closed between two frames.
///
/// # Errors
/// The error of the read, or `InvalidData` for bytes that are not a message.
pub(super) fn read<M: DeserializeOwned>(from: &mut impl Read) -> io::Result<Option<M>> {
    let Some(body) = wire::read_body(from, LIMIT)? else { return Ok(None) };
    let invalid = |error| io::Error::new(ErrorKind::InvalidData, error);
    postcard::from_bytes(&body).map(Some).map_err(invalid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_its_own_frames() {
        let mut bytes = Vec::new();
        write(&mut bytes, &FromAgent::Output { process: 3, stream: Stream::Err, bytes: b"a\0\xff".to_vec() })
            .unwrap();
        let first_end = bytes.len();
        write(&mut bytes, &FromAgent::Exited { process: 1, exit: Exit::Signal(9) }).unwrap();
        let mut from = &bytes[..];
        let first: FromAgent = read(&mut from).unwrap().unwrap();
        assert!(
            matches!(&first, FromAgent::Output { process: 3, stream: Stream::Err, bytes } if bytes == b"a\0\xff"),
            "{first:?}"
        );
        let second: FromAgent = read(&mut from).unwrap().unwrap();
        assert!(matches!(second, FromAgent::Exited { process: 1, exit: Exit::Signal(9) }), "{second:?}");
        assert!(read::<FromAgent>(&mut from).unwrap().is_none());
        for end in 1..bytes.len() {
            let mut from = &bytes[..end];
            let last = std::iter::from_fn(|| read::<FromAgent>(&mut from).transpose()).last();
            assert_eq!(last.unwrap().is_ok(), end == first_end, "{end} of {} bytes", bytes.len());
        }
    }

    #[test]
    fn rejects_frames_that_are_no_messages() {
        for bytes in [&[255; 8][..], &[1, 0, 0, 0, 99], &[2, 0, 0, 0, 4, 200]] {
            let error = read::<FromAgent>(&mut &bytes[..]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidData, "{bytes:?}");
        }
    }

    fn frame(message: &FromAgent) -> Vec<u8> {
        let mut frame = Vec::new();
        write(&mut frame, message).unwrap();
        frame
    }

    #[test]
    fn fuzz_corpus() {
        let messages = [
            FromAgent::Started,
            FromAgent::Output { process: 3, stream: Stream::Err, bytes: b"line\n".to_vec() },
            FromAgent::Exited { process: 1, exit: Exit::Signal(9) },
            FromAgent::Failed("why".into()),
        ];
        let mut seeds: Vec<Vec<u8>> = messages.iter().map(frame).collect();
        seeds.push(seeds.concat());
        rushmem_corpus::target!("../../host", "agent").messages(seeds).run(20_000, |mut bytes| {
            while let Ok(Some(message)) = read::<FromAgent>(&mut bytes) {
                let same: FromAgent = read(&mut &frame(&message)[..]).unwrap().unwrap();
                assert_eq!(format!("{same:?}"), format!("{message:?}"));
            }
        });
    }

    #[test]
    fn debug_hides_the_token() {
        let order = Order {
            n_pes: 4,
            first: 2,
            count: 2,
            node: 1,
            nodes: 2,
            token: "secret".into(),
            servers: Vec::new(),
            patience: Duration::ZERO,
            directory: "/".into(),
            program: "a".into(),
            args: Vec::new(),
            variables: BTreeMap::new(),
            gpus: None,
            trace: None,
        };
        assert_eq!(format!("{order:?}"), "Order(2 PEs from PE 2)");
    }
}
