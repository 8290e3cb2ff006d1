//! The client through which a PE sends requests to the sanitizer engine, which runs in the process of PE 0.

use std::io::{self, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Mutex;

use rushmem_base::lock;
use rushmem_sanitizer::{Finding, Reply, Request, Wire};

use super::queue::{Kind, Sender};

/// Maximum number of bytes of unsent requests that a process buffers.
const MAX_HELD_BYTES: usize = 64 << 10;

/// Connection of a PE's process to the sanitizer engine.
///
/// Requests whose order does not matter to other processes are buffered, and sent with the next one whose order does.
#[derive(Debug)]
pub(super) struct Client(Mutex<Connection>);

#[derive(Debug)]
struct Connection {
    /// `None` after the connection to the engine has failed, or the last request has been sent.
    sender: Option<Sender>,
    /// The socket on which the engine's replies arrive.
    replies: BufReader<UnixStream>,
    /// Encoded requests that have not been sent yet.
    message: Vec<u8>,
    wire: Wire,
}

impl Client {
    pub(super) fn new(sender: Sender, replies: UnixStream) -> Self {
        let (replies, message) = (BufReader::new(replies), Vec::new());
        Self(Mutex::new(Connection { sender: Some(sender), replies, message, wire: Wire::default() }))
    }

    /// Sends requests that have no reply.
    ///
    /// On return, their position among the requests of all processes is fixed, unless all of them are private to this
    /// process. Those are only buffered.
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

    /// Sends a request and returns the engine's reply, or `None` if the connection has failed.
    pub(super) fn ask(&self, request: &Request) -> Option<Reply> {
        let mut connection = lock(&self.0);
        connection.add(request);
        connection.send(Kind::Ask);
        connection.sender.as_ref()?;
        connection.receive()
    }

    /// Sends the buffered requests.
    pub(super) fn flush(&self) {
        let mut connection = lock(&self.0);
        if !connection.message.is_empty() {
            connection.send(Kind::Tell);
        }
    }

    /// Sends the buffered requests, and announces that this process will send no more.
    pub(super) fn end(&self) {
        self.flush();
        let mut connection = lock(&self.0);
        connection.send(Kind::End);
        connection.sender = None;
    }

    /// Waits until all PEs have finished, and returns the findings of the job, or none if the connection has failed.
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

/// Writes a reply of the engine to the socket of a PE.
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
