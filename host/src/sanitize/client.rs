//! The connection of a PE to the engine in the process of PE 0.

use std::io::{self, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Mutex;

use rushmem_base::lock;
use rushmem_sanitizer::Finding;
use serde::Serialize;

use super::request::{Reply, Request};

/// Bytes of requests that a process keeps back at most.
const KEPT: usize = 64 << 10;

/// Bytes of the length of a frame.
const LENGTH: usize = 4;

/// A connection to the engine.
///
/// Requests that others cannot see yet wait for the next one that they can, and travel with it.
#[derive(Debug)]
pub(super) struct Client(Mutex<Connection>);

#[derive(Debug)]
struct Connection {
    /// `None` if the engine is lost.
    stream: Option<BufReader<UnixStream>>,
    frame: Frame,
}

/// A frame: its length, and requests as JSON one after the other.
#[derive(Debug)]
pub(super) struct Frame(Vec<u8>);

impl Client {
    pub(super) fn new(stream: UnixStream) -> Self {
        Self(Mutex::new(Connection { stream: Some(BufReader::new(stream)), frame: Frame::new() }))
    }

    /// Makes requests without answers. Waits until the engine has them, unless others cannot see any of them.
    pub(super) fn tell(&self, requests: impl IntoIterator<Item = Request>) {
        let mut connection = lock(&self.0);
        let mut are_private = true;
        for request in requests {
            are_private &= request.is_private();
            connection.add(&request);
        }
        if !are_private || connection.frame.0.len() > KEPT {
            connection.send();
        }
    }

    /// Makes a request, and returns the answer, unless the engine is lost.
    pub(super) fn ask(&self, request: &Request) -> Option<Reply> {
        let mut connection = lock(&self.0);
        connection.add(request);
        connection.send()
    }

    /// Sends the requests that wait for others.
    pub(super) fn flush(&self) {
        let mut connection = lock(&self.0);
        if !connection.frame.is_empty() {
            connection.send();
        }
    }

    /// Waits for the end of all PEs, and returns the findings of the job.
    pub(super) fn end(&self) -> Vec<Finding> {
        self.flush();
        match lock(&self.0).send() {
            Some(Reply::Findings(findings)) => findings,
            _ => Vec::new(),
        }
    }
}

impl Connection {
    fn add(&mut self, request: &Request) {
        if self.stream.is_none() {
            return;
        }
        if let Err(error) = self.frame.add(request) {
            self.lose(&error);
        }
    }

    /// Sends the frame, and returns the answer to its last request. The empty frame asks for the findings.
    fn send(&mut self) -> Option<Reply> {
        let stream = self.stream.as_mut()?;
        let reply = self.frame.write(stream.get_mut()).and_then(|()| {
            let bytes = read(stream)?.ok_or(io::ErrorKind::UnexpectedEof)?;
            Ok(serde_json::from_slice(&bytes)?)
        });
        match reply {
            Ok(reply) => Some(reply),
            Err(error) => {
                self.lose(&error);
                None
            }
        }
    }

    fn lose(&mut self, error: &io::Error) {
        // The bootstrap reports the end of PE 0.
        tracing::debug!("the engine of the sanitizer is lost: {error}");
        self.stream = None;
    }
}

impl Frame {
    pub(super) fn new() -> Self {
        Self(vec![0; LENGTH])
    }

    fn is_empty(&self) -> bool {
        self.0.len() == LENGTH
    }

    pub(super) fn add(&mut self, value: &impl Serialize) -> io::Result<()> {
        Ok(serde_json::to_writer(&mut self.0, value)?)
    }

    /// Writes the frame, and empties it.
    pub(super) fn write(&mut self, to: &mut impl Write) -> io::Result<()> {
        let length = u32::try_from(self.0.len() - LENGTH).map_err(io::Error::other)?;
        self.0[..LENGTH].copy_from_slice(&length.to_le_bytes());
        let written = to.write_all(&self.0);
        self.0.truncate(LENGTH);
        written
    }
}

/// Reads the content of a frame. Returns `None` at the end of the stream.
pub(super) fn read(from: &mut impl Read) -> io::Result<Option<Vec<u8>>> {
    let mut length = [0; LENGTH];
    match from.read_exact(&mut length) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        other => other?,
    }
    let length = u64::from(u32::from_le_bytes(length));
    let mut content = Vec::new();
    if from.by_ref().take(length).read_to_end(&mut content)? as u64 != length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(Some(content))
}
