//! The queue through which all processes of a job send requests to the sanitizer engine: a pipe that they share.
//!
//! The pipe orders the requests. The position of a message is fixed once it is written, so its sender need not wait for
//! the engine. Senders block while the pipe is full.
//!
//! Writes of up to `PIPE_BUF` bytes are atomic, so a message is split into parts of at most this length. Its last part
//! determines its position.

use std::io::{self, PipeReader, PipeWriter, Read, Write};

/// Maximum length of a message part, including its header, in bytes: the largest write to a pipe that is atomic.
const PART: usize = libc::PIPE_BUF;

/// Length of a part's header in bytes: the sender's index, the length of the content, and the kind.
const HEADER: usize = 4 + 2 + 1;

/// Number of bytes per read from the pipe. Equal to the default capacity of a pipe.
const READ: usize = 64 << 10;

/// The type of a message part, as encoded in its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    /// A part of a message, with more parts to follow.
    Part,
    /// The last part of a message whose requests need no reply.
    Tell,
    /// The last part of a message whose last request needs a reply. The sender waits for it.
    Ask,
    /// The sender will send no more requests.
    End,
    /// The sender's process has exited or failed. Sent on its behalf by the process of PE 0.
    Lost,
    /// The engine must stop. Sent by its own process.
    Stop,
}

/// All part kinds, indexed by their encoding.
const KINDS: [Kind; 6] = [Kind::Part, Kind::Tell, Kind::Ask, Kind::End, Kind::Lost, Kind::Stop];

#[derive(Debug)]
pub(super) struct Sender {
    number: u32,
    pipe: PipeWriter,
    part: Vec<u8>,
}

impl Sender {
    pub(super) fn new(number: u32, pipe: PipeWriter) -> Self {
        Self { number, pipe, part: Vec::with_capacity(PART) }
    }

    /// Sends a message, split into parts of at most [`PART`] bytes. The last part is of this kind.
    ///
    /// # Errors
    /// Errors of the operating system.
    pub(super) fn send(&mut self, kind: Kind, message: &[u8]) -> io::Result<()> {
        let mut contents = message.chunks(PART - HEADER).peekable();
        loop {
            let content = contents.next().unwrap_or_default();
            let is_last = contents.peek().is_none();
            self.part.clear();
            self.part.extend_from_slice(&self.number.to_le_bytes());
            self.part.extend_from_slice(&(content.len() as u16).to_le_bytes());
            self.part.push(if is_last { kind } else { Kind::Part } as u8);
            self.part.extend_from_slice(content);
            self.pipe.write_all(&self.part)?;
            if is_last {
                return Ok(());
            }
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Part<'a> {
    pub(super) sender: u32,
    pub(super) kind: Kind,
    pub(super) content: &'a [u8],
}

impl<'a> Part<'a> {
    /// Splits off the first message part in `bytes`, or returns `None` if it is incomplete. An unknown kind is treated
    /// as [`Kind::Lost`].
    fn split(bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let (header, rest) = bytes.split_first_chunk::<HEADER>()?;
        let [a, b, c, d, low, high, kind] = *header;
        let (content, rest) = rest.split_at_checked(u16::from_le_bytes([low, high]).into())?;
        let kind = KINDS.get(usize::from(kind)).copied().unwrap_or(Kind::Lost);
        Some((Self { sender: u32::from_le_bytes([a, b, c, d]), kind, content }, rest))
    }
}

/// Receives the messages of all processes from the pipe.
#[derive(Debug)]
pub(super) struct Receiver {
    pipe: PipeReader,
    bytes: Vec<u8>,
    filled: usize,
}

impl Receiver {
    pub(super) fn new(pipe: PipeReader) -> Self {
        Self { pipe, bytes: vec![0; READ + PART], filled: 0 }
    }

    /// Reads from the pipe, blocking until there are bytes. Returns `false` at EOF.
    ///
    /// # Errors
    /// Errors of the operating system.
    pub(super) fn wait(&mut self) -> io::Result<bool> {
        loop {
            match self.pipe.read(&mut self.bytes[self.filled..]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => {
                    let read = read?;
                    self.filled += read;
                    return Ok(read > 0);
                }
            }
        }
    }

    /// Passes all complete parts to `take`, and keeps an incomplete one.
    pub(super) fn take(&mut self, mut take: impl FnMut(Part<'_>)) {
        let mut rest = &self.bytes[..self.filled];
        while let Some((part, others)) = Part::split(rest) {
            take(part);
            rest = others;
        }
        let left = rest.len();
        self.bytes.copy_within(self.filled - left..self.filled, 0);
        self.filled = left;
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    fn received(reader: PipeReader) -> Vec<(u32, Kind, Vec<u8>)> {
        let (mut receiver, mut all) = (Receiver::new(reader), Vec::new());
        while receiver.wait().unwrap() {
            receiver.take(|part| all.push((part.sender, part.kind, part.content.to_vec())));
        }
        all
    }

    #[test]
    fn parts_of_one_message_keep_their_order_between_those_of_others() {
        let (reader, pipe) = io::pipe().unwrap();
        let messages = [0, 1, 2].map(|sender: u32| vec![sender as u8; 100_000 + sender as usize]);
        let all = thread::scope(|scope| {
            for (sender, message) in (0..).zip(&messages) {
                let mut sender = Sender::new(sender, pipe.try_clone().unwrap());
                scope.spawn(move || sender.send(Kind::Tell, message).unwrap());
            }
            drop(pipe);
            received(reader)
        });
        for (sender, message) in (0..).zip(&messages) {
            let parts: Vec<_> = all.iter().filter(|(of, ..)| *of == sender).collect();
            let content: Vec<u8> = parts.iter().flat_map(|(_, _, content)| content.clone()).collect();
            assert_eq!(&content, message);
            let (last, others) = parts.split_last().unwrap();
            assert!(last.1 == Kind::Tell && others.iter().all(|(_, kind, _)| *kind == Kind::Part));
        }
    }

    #[test]
    fn a_message_without_content_is_one_part() {
        let (reader, pipe) = io::pipe().unwrap();
        Sender::new(7, pipe).send(Kind::End, &[]).unwrap();
        assert_eq!(received(reader), [(7, Kind::End, Vec::new())]);
    }

    #[test]
    fn an_unknown_kind_is_a_loss_and_a_cut_part_waits() {
        let bytes = [3, 0, 0, 0, 1, 0, 99, 5];
        let (part, rest) = Part::split(&bytes).unwrap();
        assert_eq!(part, Part { sender: 3, kind: Kind::Lost, content: &[5] });
        assert!(rest.is_empty() && (0..bytes.len()).all(|length| Part::split(&bytes[..length]).is_none()));
    }
}
