//! The connection of a PE to the engine in the process of PE 0.

use std::io::{self, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Mutex;

use rushmem_base::lock;
use rushmem_sanitizer::{Finding, Reply, Request, Wire};

use super::queue::{Kind, Sender};

/// Maximum number of request bytes that a process holds back.
const MAX_HELD_BYTES: usize = 64 << 10;

/// A connection to the engine.
///
/// Requests that others cannot see are held back, and sent with the next one that they can see.
#[derive(Debug)]
pub(super) struct Client(Mutex<Connection>);

#[derive(Debug)]
struct Connection {
    /// `None` once the engine is lost, or the last request was sent.
    sender: Option<Sender>,
    /// The socket on which replies arrive.
    replies: BufReader<UnixStream>,
    /// The requests held back.
    message: Vec<u8>,
    wire: Wire,
}

impl Client {
    pub(super) fn new(sender: Sender, replies: UnixStream) -> Self {
        let (replies, message) = (BufReader::new(replies), Vec::new());
        Self(Mutex::new(Connection { sender: Some(sender), replies, message, wire: Wire::default() }))
    }

    /// Sends requests that have no reply. On return, their position in the order of all processes is fixed, unless
    /// others can see none of them.
    pub(super) fn tell(&self, requests: impl IntoIterator<Item = Request>) {
        let mut connection = lock(&self.0);
        let mut are_private = true;
        for request in requests {
            are_private &= request.is_private();
            connection.add(&request);
        }
        if !are_private || connection.message.len() > MAX_HELD_BYTES {
            connection.send(Kind::Tell);
        }
    }

    /// Sends a request and returns its reply, or `None` if the engine is lost.
    pub(super) fn ask(&self, request: &Request) -> Option<Reply> {
        let mut connection = lock(&self.0);
        connection.add(request);
        connection.send(Kind::Ask);
        connection.sender.as_ref()?;
        connection.receive()
    }

    /// Sends the requests held back.
    pub(super) fn flush(&self) {
        let mut connection = lock(&self.0);
        if !connection.message.is_empty() {
            connection.send(Kind::Tell);
        }
    }

    /// Sends the requests held back, and announces that no more will follow.
    pub(super) fn end(&self) {
        self.flush();
        let mut connection = lock(&self.0);
        connection.send(Kind::End);
        connection.sender = None;
    }

    /// Waits until all PEs have finished, and returns the findings of the job.
    pub(super) fn findings(&self) -> Vec<Finding> {
        match lock(&self.0).receive() {
            Some(Reply::Findings(findings)) => findings,
            _ => Vec::new(),
        }
    }
}

impl Connection {
    fn add(&mut self, request: &Request) {
        if self.sender.is_some()
            && let Err(error) = self.wire.encode(request, &mut self.message)
        {
            self.lose(&io::Error::other(error));
        }
    }

    fn send(&mut self, kind: Kind) {
        let Some(sender) = &mut self.sender else { return };
        let sent = sender.send(kind, &self.message);
        self.message.clear();
        if let Err(error) = sent {
            self.lose(&error);
        }
    }

    fn receive(&mut self) -> Option<Reply> {
        let reply = read(&mut self.replies).and_then(|bytes| Reply::decode(&bytes).map_err(io::Error::other));
        reply.map_err(|error| self.lose(&error)).ok()
    }

    fn lose(&mut self, error: &io::Error) {
        // The bootstrap reports that PE 0 has exited.
        tracing::debug!("the engine of the sanitizer is lost: {error}");
        self.sender = None;
        let _ = self.replies.get_ref().shutdown(Shutdown::Both);
    }
}

/// Writes a reply.
///
/// # Errors
/// Errors of the operating system.
pub(super) fn write(reply: &Reply, mut to: &UnixStream) -> io::Result<()> {
    let bytes = reply.encode().map_err(io::Error::other)?;
    let length = u32::try_from(bytes.len()).map_err(io::Error::other)?;
    to.write_all(&[&length.to_le_bytes()[..], &bytes].concat())
}

fn read(from: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut length = [0; size_of::<u32>()];
    from.read_exact(&mut length)?;
    let length = u64::from(u32::from_le_bytes(length));
    let mut content = Vec::new();
    if from.by_ref().take(length).read_to_end(&mut content)? as u64 != length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(content)
}
