//! The protocol between a job's server, its PEs and its launchers, over TCP.
//!
//! A frame is a 4-byte length, followed by a message of that length. A message is a 1-byte kind, followed by its fields
//! in order. Numbers are little-endian; text and byte strings are preceded by a 4-byte length. Received bytes are never
//! trusted: [`Message::decode`] accepts arbitrary input, and [`read_frame`] allocates no more memory than bytes have
//! arrived.

use std::io::{self, Read, Write};
use std::time::Duration;

use rushmem_base::Pes;

use crate::epoch::Epoch;
use crate::error::{Failure, PeerLost};
use crate::messages::PeerMessage;

/// Protocol version. Peers with different versions refuse each other.
pub const PROTOCOL: u32 = 5;

/// Size of a nonce and of a proof, in bytes.
pub const PROOF_BYTES: usize = 32;

/// Largest message that is accepted before the other side has proved that it knows the job's token, in bytes.
pub const HANDSHAKE_LIMIT: usize = 256;

/// Largest text in a message, in bytes. Longer text is truncated.
const TEXT_LIMIT: usize = 4096;

/// Largest message from one PE to another, in bytes.
pub const MESSAGE_LIMIT: usize = 64 << 10;

/// Largest total of all contributions to one allgather, in bytes.
const GATHER_LIMIT: usize = 256 << 20;

/// Returns the largest contribution of one of `n_pes` PEs to an allgather, in bytes.
pub const fn part_limit(n_pes: u32) -> usize {
    let share = GATHER_LIMIT / if n_pes == 0 { 1 } else { n_pes as usize };
    if share < 16 << 20 { share } else { 16 << 20 }
}

/// Returns the largest message that a server of `n_pes` PEs accepts, in bytes.
pub const fn server_limit(n_pes: u32) -> usize {
    part_limit(n_pes) + TEXT_LIMIT + 64
}

/// Returns the largest message that a PE of a job of `n_pes` PEs accepts from its server, in bytes.
pub const fn client_limit(n_pes: u32) -> usize {
    GATHER_LIMIT + 64 + 8 * n_pes as usize + 64 * TEXT_LIMIT
}

/// A message of the protocol. Each variant's description starts with its sender, where "launcher" means the job's
/// server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Message {
    /// Launcher: opens the conversation with its protocol version and a challenge.
    Hello {
        /// Protocol version of the launcher: [`PROTOCOL`].
        protocol: u32,
        /// Challenge: fresh random bytes.
        nonce: [u8; PROOF_BYTES],
    },
    /// PE or observer: answers the challenge, and sends another.
    Auth {
        /// Protocol version of the PE or observer: [`PROTOCOL`].
        protocol: u32,
        /// Challenge: fresh random bytes.
        nonce: [u8; PROOF_BYTES],
        /// HMAC over both challenges; see [`Token::proof`](crate::Token::proof).
        proof: [u8; PROOF_BYTES],
    },
    /// Launcher: answers the challenge of the other side.
    Proof {
        /// HMAC over both challenges; see [`Token::proof`](crate::Token::proof).
        proof: [u8; PROOF_BYTES],
    },
    /// Launcher: refuses the other side and closes the connection.
    Refused {
        /// Why the connection is refused, and what to do about it.
        reason: String,
    },
    /// PE: joins the job. The reply is `Gathered` once all PEs have joined.
    Join {
        /// PE number that the process joins as.
        pe: u32,
        /// Number of PEs that this process expects.
        n_pes: u32,
        /// Build ID of the process. All PEs must have the same.
        build: String,
        /// PID and host name of the process, for messages.
        origin: String,
    },
    /// Observer: requests reports of lost PEs. In return, it reports how the processes of its node exit.
    Observe {
        /// Rank of the observer's node.
        node: u32,
    },
    /// PE: enters a collective call. The reply is `Gathered` or `Failed`.
    Gather {
        /// Kind and tag of the call, which must be equal on all PEs.
        call: String,
        /// The PE's contribution to the call.
        bytes: Vec<u8>,
    },
    /// PE: its deadline has passed. The reply is `Failed`, unless the call has just completed.
    GiveUp {
        /// How long the PE has waited, in milliseconds.
        waited_ms: u64,
    },
    /// PE: leaves the job with an error. The reply is `Left`.
    Abort {
        /// Why the PE leaves, for the error messages of the other PEs.
        reason: String,
        /// Exit code for all other PEs, if the PE exits the whole job.
        exit: Option<u8>,
    },
    /// PE or observer: leaves the job without an error. The reply is `Left`.
    Finish,
    /// Observer: the process of a PE has exited. The reply is `Noted`, which follows the reports of all earlier losses.
    Exited {
        /// PE whose process has exited.
        pe: u32,
        /// How the process exited, as part of a sentence: `exited with code 3`.
        how: String,
    },
    /// PE: sends a message to another PE. There is no reply.
    Send {
        /// PE number of the receiver.
        to: u32,
        /// Content of the message: at most [`MESSAGE_LIMIT`] bytes.
        bytes: Vec<u8>,
    },
    /// PE: waits for the next epoch. The reply is `Epoch` or `Failed`.
    FormEpoch {
        /// Whether processes that replace lost PEs may be in the epoch.
        admits: bool,
    },
    /// Launcher: relays a message from another PE.
    FromPeer(PeerMessage),
    /// Launcher: the collective call has completed.
    Gathered {
        /// Contributions of all PEs, in PE order.
        parts: Vec<Vec<u8>>,
    },
    /// Launcher: a collective call of the start of the job, for a process that replaces a lost one. The reply to its `Join`
    /// follows the last of them.
    Past {
        /// Kind and tag of the call.
        call: String,
        /// Contributions of all PEs, in PE order.
        parts: Vec<Vec<u8>>,
    },
    /// Launcher: the PEs have formed this epoch, which clears a survivable failure.
    Epoch(Epoch),
    /// Launcher: the job's collective calls have failed, permanently unless the failure is survivable.
    Failed(Failure),
    /// Launcher: a PE was lost, which is a failure, too.
    Lost(PeerLost),
    /// Launcher: confirms that the other side has left.
    Left,
    /// Launcher: confirms an observer's `Exited`.
    Noted {
        /// PE that the observer reported as exited.
        pe: u32,
    },
    /// Launcher: asks a PE for a sign of life. The reply is `Pong`.
    Ping {
        /// How long the launcher may be silent from now on before it counts as lost, in milliseconds.
        silence_ms: u64,
    },
    /// PE: answers `Ping`.
    Pong,
}

/// The reason why bytes do not decode to a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// A field is longer than the rest of the message.
    #[error("the message is truncated")]
    Short,
    /// Bytes are left after the last field of the message.
    #[error("the message is too long for its kind")]
    Long,
    /// The first byte does not match any kind of message.
    #[error("unknown kind {0} of message")]
    Kind(u8),
    /// Text is not valid UTF-8, or too long.
    #[error("the text is too long or not UTF-8")]
    Text,
}

impl Message {
    /// Returns whether this message reports a failure that no epoch clears.
    pub(crate) fn is_final_failure(&self) -> bool {
        match self {
            Message::Failed(failure) => !failure.is_survivable(),
            Message::Lost(lost) => !lost.survivable,
            _ => false,
        }
    }

    /// Encodes this message, without the length of its frame.
    pub fn encode(&self) -> Vec<u8> {
        let mut to = Writer(Vec::new());
        match self {
            Message::Hello { protocol, nonce } => to.kind(1).u32(*protocol).raw(nonce),
            Message::Auth { protocol, nonce, proof } => to.kind(2).u32(*protocol).raw(nonce).raw(proof),
            Message::Proof { proof } => to.kind(3).raw(proof),
            Message::Refused { reason } => to.kind(4).text(reason),
            Message::Join { pe, n_pes, build, origin } => {
                to.kind(5).u32(*pe).u32(*n_pes).text(build).text(origin)
            }
            Message::Observe { node } => to.kind(6).u32(*node),
            Message::Gather { call, bytes } => to.kind(7).text(call).bytes(bytes),
            Message::GiveUp { waited_ms } => to.kind(8).u64(*waited_ms),
            Message::Abort { reason, exit } => to.kind(9).text(reason).exit(*exit),
            Message::Finish => to.kind(10),
            Message::Exited { pe, how } => to.kind(11).u32(*pe).text(how),
            Message::Gathered { parts } => to.kind(12).parts(parts),
            Message::Failed(Failure::Lost(lost)) => to.kind(13).lost(lost),
            Message::Failed(Failure::Mismatch { calls }) => {
                to.kind(14).u32(calls.len() as u32);
                calls.iter().fold(&mut to, |to, (call, pes)| to.text(call).pes(&pes.0))
            }
            Message::Failed(Failure::Missing { call, waited, missing, n_pes }) => {
                to.kind(15).text(call).u64(waited.as_millis() as u64).pes(&missing.0).u32(*n_pes)
            }
            Message::Failed(Failure::Left { call, pes }) => to.kind(16).text(call).pes(&pes.0),
            Message::Failed(Failure::Builds { first_pe, first_build, pe, build }) => {
                to.kind(17).u32(*first_pe).text(first_build).u32(*pe).text(build)
            }
            Message::Lost(lost) => to.kind(18).lost(lost),
            Message::Left => to.kind(19),
            Message::Noted { pe } => to.kind(20).u32(*pe),
            Message::Send { to: pe, bytes } => to.kind(21).u32(*pe).bytes(bytes),
            Message::FromPeer(PeerMessage { from, bytes }) => to.kind(22).u32(*from).bytes(bytes),
            Message::FormEpoch { admits } => to.kind(23).kind((*admits).into()),
            Message::Epoch(Epoch { number, pes, joined }) => to.kind(24).u32(*number).pes(pes).pes(joined),
            Message::Ping { silence_ms } => to.kind(25).u64(*silence_ms),
            Message::Pong => to.kind(26),
            Message::Past { call, parts } => to.kind(27).text(call).parts(parts),
        };
        to.0
    }

    /// Decodes one message, as encoded by [`Message::encode`].
    ///
    /// # Errors
    ///
    /// - [`Malformed::Short`], [`Malformed::Long`]: the length does not match the kind of message.
    /// - [`Malformed::Kind`]: the kind is unknown.
    /// - [`Malformed::Text`]: a text is not UTF-8 or too long.
    pub fn decode(bytes: &[u8]) -> Result<Message, Malformed> {
        let mut from = Reader(bytes);
        let message = match from.u8()? {
            1 => Message::Hello { protocol: from.u32()?, nonce: from.raw()? },
            2 => Message::Auth { protocol: from.u32()?, nonce: from.raw()?, proof: from.raw()? },
            3 => Message::Proof { proof: from.raw()? },
            4 => Message::Refused { reason: from.text()? },
            5 => Message::Join {
                pe: from.u32()?,
                n_pes: from.u32()?,
                build: from.text()?,
                origin: from.text()?,
            },
            6 => Message::Observe { node: from.u32()? },
            7 => Message::Gather { call: from.text()?, bytes: from.bytes()?.to_vec() },
            8 => Message::GiveUp { waited_ms: from.u64()? },
            9 => Message::Abort { reason: from.text()?, exit: from.exit()? },
            10 => Message::Finish,
            11 => Message::Exited { pe: from.u32()?, how: from.text()? },
            12 => Message::Gathered { parts: from.parts()? },
            13 => Message::Failed(Failure::Lost(from.lost()?)),
            14 => {
                let calls = from.list(|from| Ok((from.text()?, from.pes()?)))?;
                Message::Failed(Failure::Mismatch { calls })
            }
            15 => Message::Failed(Failure::Missing {
                call: from.text()?,
                waited: Duration::from_millis(from.u64()?),
                missing: from.pes()?,
                n_pes: from.u32()?,
            }),
            16 => Message::Failed(Failure::Left { call: from.text()?, pes: from.pes()? }),
            17 => Message::Failed(Failure::Builds {
                first_pe: from.u32()?,
                first_build: from.text()?,
                pe: from.u32()?,
                build: from.text()?,
            }),
            18 => Message::Lost(from.lost()?),
            19 => Message::Left,
            20 => Message::Noted { pe: from.u32()? },
            21 => Message::Send { to: from.u32()?, bytes: from.bytes()?.to_vec() },
            22 => Message::FromPeer(PeerMessage { from: from.u32()?, bytes: from.bytes()?.to_vec() }),
            23 => Message::FormEpoch { admits: from.flag()? },
            24 => Message::Epoch(Epoch { number: from.u32()?, pes: from.pes()?.0, joined: from.pes()?.0 }),
            25 => Message::Ping { silence_ms: from.u64()? },
            26 => Message::Pong,
            27 => Message::Past { call: from.text()?, parts: from.parts()? },
            kind => return Err(Malformed::Kind(kind)),
        };
        if from.0.is_empty() { Ok(message) } else { Err(Malformed::Long) }
    }
}

struct Writer(Vec<u8>);

impl Writer {
    fn kind(&mut self, kind: u8) -> &mut Self {
        self.0.push(kind);
        self
    }

    fn u32(&mut self, value: u32) -> &mut Self {
        self.raw(&value.to_le_bytes())
    }

    fn u64(&mut self, value: u64) -> &mut Self {
        self.raw(&value.to_le_bytes())
    }

    fn raw(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend_from_slice(bytes);
        self
    }

    fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.u32(bytes.len() as u32).raw(bytes)
    }

    fn text(&mut self, text: &str) -> &mut Self {
        let mut end = text.len().min(TEXT_LIMIT);
        // Truncate at a character boundary, so the text remains valid UTF-8.
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        self.bytes(&text.as_bytes()[..end])
    }

    fn parts(&mut self, parts: &[Vec<u8>]) -> &mut Self {
        self.u32(parts.len() as u32);
        parts.iter().fold(self, |to, part| to.bytes(part))
    }

    fn pes(&mut self, pes: &[u32]) -> &mut Self {
        self.u32(pes.len() as u32);
        pes.iter().fold(self, |to, pe| to.u32(*pe))
    }

    fn lost(&mut self, lost: &PeerLost) -> &mut Self {
        match lost.pe {
            Some(pe) => self.kind(1).u32(pe),
            None => self.kind(0),
        };
        self.text(&lost.reason).exit(lost.exit).kind(lost.survivable.into())
    }

    fn exit(&mut self, code: Option<u8>) -> &mut Self {
        match code {
            Some(code) => self.kind(1).kind(code),
            None => self.kind(0),
        }
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, n: usize) -> Result<&'a [u8], Malformed> {
        let (head, tail) = self.0.split_at_checked(n).ok_or(Malformed::Short)?;
        self.0 = tail;
        Ok(head)
    }

    fn raw<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        self.take(N)?.try_into().map_err(|_| Malformed::Short)
    }

    fn u8(&mut self) -> Result<u8, Malformed> {
        self.raw::<1>().map(|[byte]| byte)
    }

    fn u32(&mut self) -> Result<u32, Malformed> {
        self.raw().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, Malformed> {
        self.raw().map(u64::from_le_bytes)
    }

    fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let n = self.u32()?;
        self.take(n as usize)
    }

    fn text(&mut self) -> Result<String, Malformed> {
        let bytes = self.bytes()?;
        if bytes.len() > TEXT_LIMIT {
            return Err(Malformed::Text);
        }
        std::str::from_utf8(bytes).map(String::from).map_err(|_| Malformed::Text)
    }

    /// Reads a list, preceded by its length. Does not preallocate: memory grows with the bytes that have arrived, not
    /// with the claimed length.
    fn list<T>(
        &mut self,
        mut one: impl FnMut(&mut Self) -> Result<T, Malformed>,
    ) -> Result<Vec<T>, Malformed> {
        let n = self.u32()?;
        let mut list = Vec::new();
        for _ in 0..n {
            list.push(one(self)?);
        }
        Ok(list)
    }

    fn parts(&mut self) -> Result<Vec<Vec<u8>>, Malformed> {
        self.list(|from| from.bytes().map(<[u8]>::to_vec))
    }

    fn pes(&mut self) -> Result<Pes, Malformed> {
        self.list(Reader::u32).map(Pes)
    }

    fn lost(&mut self) -> Result<PeerLost, Malformed> {
        let pe = match self.u8()? {
            0 => None,
            1 => Some(self.u32()?),
            kind => return Err(Malformed::Kind(kind)),
        };
        Ok(PeerLost { pe, reason: self.text()?, exit: self.exit()?, survivable: self.flag()? })
    }

    fn flag(&mut self) -> Result<bool, Malformed> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            kind => Err(Malformed::Kind(kind)),
        }
    }

    fn exit(&mut self) -> Result<Option<u8>, Malformed> {
        match self.u8()? {
            0 => Ok(None),
            1 => self.u8().map(Some),
            kind => Err(Malformed::Kind(kind)),
        }
    }
}

/// Writes one message as a frame, in a single write.
///
/// # Errors
///
/// - [`io::Error`]: the writer failed.
pub fn write_frame(to: &mut impl Write, message: &Message) -> io::Result<()> {
    to.write_all(&frame(message))
}

pub(crate) fn frame(message: &Message) -> Vec<u8> {
    frame_of(&message.encode())
}

/// Returns the frame with this body, whose length must fit into four bytes.
#[must_use]
pub fn frame_of(body: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(4 + body.len());
    frame.extend_from_slice(&(body.len() as u32).to_le_bytes());
    frame.extend_from_slice(body);
    frame
}

/// Reads one frame with a message of at most `limit` bytes. Returns `None` if the stream is closed between two frames.
///
/// # Errors
///
/// - [`io::ErrorKind::InvalidData`]: the frame is too long or does not decode.
/// - [`io::ErrorKind::UnexpectedEof`]: the stream is closed within a frame.
/// - Any other [`io::Error`]: the reader failed.
pub fn read_frame(from: &mut impl Read, limit: usize) -> io::Result<Option<Message>> {
    let Some(body) = read_body(from, limit)? else { return Ok(None) };
    Message::decode(&body).map(Some).map_err(|why| io::Error::new(io::ErrorKind::InvalidData, why))
}

/// Reads the body of one frame, of at most `limit` bytes. Returns `None` if the stream is closed between two frames.
///
/// # Errors
///
/// - [`io::ErrorKind::InvalidData`]: the frame is too long.
/// - [`io::ErrorKind::UnexpectedEof`]: the stream is closed within a frame.
/// - Any other [`io::Error`]: the reader failed.
pub fn read_body(from: &mut impl Read, limit: usize) -> io::Result<Option<Vec<u8>>> {
    let mut length = [0; 4];
    // The first byte alone, to tell a stream that was closed between frames from one that broke within a length.
    match from.read(&mut length[..1]) {
        Ok(0) => return Ok(None),
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::Interrupted => return read_body(from, limit),
        Err(error) => return Err(error),
    }
    from.read_exact(&mut length[1..])?;
    let length = u32::from_le_bytes(length);
    if length as usize > limit {
        let message = format!("a frame of {length} bytes exceeds the limit of {limit} bytes");
        return Err(io::Error::new(io::ErrorKind::InvalidData, message));
    }
    // Read through `take` instead of allocating `length` bytes: the other side may claim any length up to the limit.
    let mut body = Vec::new();
    if from.by_ref().take(length.into()).read_to_end(&mut body)? < length as usize {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(Some(body))
}

/// Checks that `bytes` either fail to decode, or decode to a message that encodes to the same bytes. Then reads them as
/// a stream of frames.
///
/// The body of the fuzz target `wire` and of a test.
///
/// # Panics
///
/// If the check fails.
pub fn check_any_bytes(bytes: &[u8]) {
    if let Ok(message) = Message::decode(bytes) {
        assert_eq!(message.encode(), bytes, "{message:?}");
    }
    let mut from = bytes;
    while let Ok(Some(message)) = read_frame(&mut from, HANDSHAKE_LIMIT) {
        assert!(message.encode().len() <= HANDSHAKE_LIMIT, "{message:?}");
    }
}

#[cfg(test)]
mod tests;
