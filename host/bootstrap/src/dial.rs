//! Opens a connection to a job's launcher: connects, and proves both sides to each other.

use std::io::{self, ErrorKind};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use socket2::{SockRef, TcpKeepalive};

use crate::auth::{Role, Token, nonce};
use crate::error::Error;
use crate::wire::{Message, PROTOCOL, STRANGER_LIMIT, read_frame, write_frame};

/// Pause between two attempts to connect.
const RETRY: Duration = Duration::from_millis(100);

/// A launcher to connect to.
pub(crate) struct Dial<'a> {
    /// `host:port`.
    pub(crate) server: &'a str,
    pub(crate) token: &'a Token,
    pub(crate) within: Duration,
    /// Whether to try again while nobody listens: it may start later than we do.
    pub(crate) retry: bool,
}

impl Dial<'_> {
    /// A connection on which both sides have shown that they know the token.
    pub(crate) fn open(&self) -> Result<TcpStream, Error> {
        let begin = Instant::now();
        let mut stream = self.connect(begin)?;
        let tuned = tune(&stream).and_then(|()| stream.set_read_timeout(Some(self.within)));
        tuned.map_err(|source| self.unreachable(begin, source))?;

        let theirs = match self.read(&mut stream)? {
            Message::Hello { protocol: PROTOCOL, nonce } => nonce,
            Message::Hello { protocol, .. } => {
                let why =
                    format!("it speaks protocol {protocol}, this build {PROTOCOL}; use one build of rushmem");
                return Err(self.stranger(why));
            }
            _ => return Err(self.stranger("it does not greet as a launcher".into())),
        };
        let ours = nonce()?;
        let proof = self.token.proof(Role::Pe, &theirs, &ours);
        let auth = Message::Auth { protocol: PROTOCOL, nonce: ours, proof };
        write_frame(&mut stream, &auth).map_err(|source| self.unreachable(begin, source))?;
        match self.read(&mut stream)? {
            Message::Proof { proof } if self.token.verify(Role::Launcher, &theirs, &ours, &proof) => {}
            Message::Proof { .. } => return Err(self.stranger("it does not know this job's token".into())),
            Message::Refused { reason } => return Err(Error::Refused { server: self.server.into(), reason }),
            _ => return Err(self.stranger("it does not prove that it knows this job's token".into())),
        }
        stream.set_read_timeout(None).map_err(|source| self.unreachable(begin, source))?;
        Ok(stream)
    }

    fn connect(&self, begin: Instant) -> Result<TcpStream, Error> {
        loop {
            let left = self.within.saturating_sub(begin.elapsed()).max(Duration::from_millis(1));
            let error = match first_that_answers(self.server, left) {
                Ok(stream) => return Ok(stream),
                Err(error) => error,
            };
            if !self.retry || begin.elapsed() + RETRY >= self.within {
                return Err(self.unreachable(begin, error));
            }
            std::thread::sleep(RETRY);
        }
    }

    fn read(&self, stream: &mut TcpStream) -> Result<Message, Error> {
        match read_frame(stream, STRANGER_LIMIT) {
            Ok(Some(message)) => Ok(message),
            Ok(None) => Err(self.stranger("it closed the connection".into())),
            Err(error) if is_timeout(&error) => Err(Error::Silent {
                server: self.server.into(),
                call: "the greeting".into(),
                waited: self.within,
            }),
            Err(error) => Err(self.stranger(error.to_string())),
        }
    }

    fn stranger(&self, why: String) -> Error {
        Error::Stranger { server: self.server.into(), why }
    }

    fn unreachable(&self, begin: Instant, source: io::Error) -> Error {
        let waited = Duration::from_millis(begin.elapsed().as_millis() as u64);
        Error::Connect { server: self.server.into(), waited, source }
    }
}

fn first_that_answers(server: &str, within: Duration) -> io::Result<TcpStream> {
    let mut last = io::Error::new(ErrorKind::NotFound, "the name has no address");
    for addr in server.to_socket_addrs()? {
        match TcpStream::connect_timeout(&addr, within) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

pub(crate) fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

/// Small messages at once; and the death of a whole host is noticed, too.
pub(crate) fn tune(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_write_timeout(Some(Duration::from_secs(10)))?;
    let keepalive = TcpKeepalive::new()
        .with_time(Duration::from_secs(5))
        .with_interval(Duration::from_secs(2))
        .with_retries(3);
    SockRef::from(stream).set_tcp_keepalive(&keepalive)
}
