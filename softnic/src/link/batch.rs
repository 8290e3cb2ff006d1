//! A batch of outgoing datagrams, stored in one buffer.

use std::net::SocketAddrV4;
use std::ops::Range;

/// Number of bytes of sent datagrams that may accumulate before the unsent ones are moved to the front of the buffer.
const COMPACT: usize = 4 << 20;

/// One datagram of a [`Batch`].
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// QPN of the QP that sends the datagram.
    pub(crate) qpn: u32,
    pub(crate) peer: SocketAddrV4,
    pub(crate) bytes: Range<usize>,
}

/// Datagrams queued for the socket. Fault injection and capture modify the queue before it is sent.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub(crate) arena: Vec<u8>,
    pub(crate) entries: Vec<Entry>,
}

impl Batch {
    /// Adds a datagram of `len` bytes from a QP to a peer. The caller fills it.
    pub(crate) fn push(&mut self, (qpn, peer): (u32, SocketAddrV4), len: usize) -> &mut [u8] {
        let start = self.arena.len();
        self.arena.resize(start + len, 0);
        self.entries.push(Entry { qpn, peer, bytes: start..start + len });
        &mut self.arena[start..]
    }

    /// Removes the datagram that was added last.
    pub(crate) fn pop(&mut self) {
        if let Some(entry) = self.entries.pop() {
            self.arena.truncate(entry.bytes.start);
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Removes the first `n` datagrams, which were sent.
    pub(crate) fn drop_front(&mut self, n: usize) {
        self.entries.drain(..n);
        match self.entries.iter().map(|entry| entry.bytes.start).min() {
            None => self.arena.clear(),
            Some(first) if first >= COMPACT => {
                self.arena.drain(..first);
                for entry in &mut self.entries {
                    entry.bytes = entry.bytes.start - first..entry.bytes.end - first;
                }
            }
            Some(_) => {}
        }
    }
}
