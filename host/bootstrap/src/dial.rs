//! Connects to a job's server and performs mutual authentication.

use std::io::{self, ErrorKind};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use rushmem_base::crowd_deadline;
use socket2::{SockRef, TcpKeepalive};

use crate::auth::{Role, Token, nonce};
use crate::deadline::UntilDeadline;
use crate::error::Error;
use crate::wire::{HANDSHAKE_LIMIT, Message, PROTOCOL, read_frame, write_frame};

/// Pause between two attempts to connect.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// Timeout of one write after the handshake, before scaling by the number of PEs.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// Returns the timeout of one write in a job of `n_pes` PEs. With many of them, the reader may have to wait for a core.
pub(crate) fn write_timeout(n_pes: u32) -> Duration {
    crowd_deadline(WRITE_TIMEOUT, n_pes)
}

/// Parameters of a connection to a job's server.
pub(crate) struct Dial<'a> {
    /// Address of the job's server, as `host:port`.
    pub(crate) server: &'a str,
    pub(crate) token: &'a Token,
    pub(crate) n_pes: u32,
    pub(crate) within: Duration,
    /// Whether to retry while the server is not listening yet.
    pub(crate) retry: bool,
}

impl Dial<'_> {
    /// Connects to the job's server, and returns once both sides have proved that they know the token.
    pub(crate) fn open(&self) -> Result<TcpStream, Error> {
        let begin = Instant::now();
        loop {
            let stream = self.connect(begin)?;
            match self.handshake(&stream, begin) {
                Ok(()) => return Ok(stream),
                // A server with too many unauthenticated connections closes the oldest, which may be this one.
                Err(Error::Closed { .. }) if begin.elapsed() + RETRY_PAUSE < self.within => {
                    std::thread::sleep(RETRY_PAUSE)
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Exchanges challenges and proofs with the server. Both must know the job's token.
    fn handshake(&self, stream: &TcpStream, begin: Instant) -> Result<(), Error> {
        tune(stream, self.n_pes).map_err(|source| self.unreachable(begin, source))?;
        let mut socket = UntilDeadline::new(stream, begin + self.within);
        let theirs = match self.read(&mut socket)? {
            Message::Hello { protocol: PROTOCOL, nonce } => nonce,
            Message::Hello { protocol, .. } => {
                let why = format!(
                    "it speaks protocol {protocol}, this build {PROTOCOL}; use the same build of rushmem everywhere"
                );
                return Err(self.stranger(why));
            }
            _ => return Err(self.stranger("its first message is not a greeting".into())),
        };
        let ours = nonce()?;
        let proof = self.token.proof(Role::Pe, &theirs, &ours);
        let auth = Message::Auth { protocol: PROTOCOL, nonce: ours, proof };
        write_frame(&mut socket, &auth).map_err(|error| self.failed(error))?;
        match self.read(&mut socket)? {
            Message::Proof { proof } if self.token.verify(Role::Launcher, &theirs, &ours, &proof) => {}
            Message::Proof { .. } => return Err(self.stranger("it does not know this job's token".into())),
            Message::Refused { reason } => return Err(Error::Refused { server: self.server.into(), reason }),
            _ => return Err(self.stranger("it does not prove that it knows this job's token".into())),
        }
        socket.release(write_timeout(self.n_pes)).map_err(|source| self.unreachable(begin, source))
    }

    fn connect(&self, begin: Instant) -> Result<TcpStream, Error> {
        loop {
            let left = self.within.saturating_sub(begin.elapsed()).max(Duration::from_millis(1));
            let error = match connect_to_any_address(self.server, left) {
                Ok(stream) => return Ok(stream),
                Err(error) => error,
            };
            if !self.retry || begin.elapsed() + RETRY_PAUSE >= self.within {
                return Err(self.unreachable(begin, error));
            }
            std::thread::sleep(RETRY_PAUSE);
        }
    }

    fn read(&self, socket: &mut UntilDeadline<'_>) -> Result<Message, Error> {
        match read_frame(socket, HANDSHAKE_LIMIT) {
            Ok(Some(message)) => Ok(message),
            Ok(None) => Err(Error::Closed { server: self.server.into() }),
            Err(error) => Err(self.failed(error)),
        }
    }

    /// Converts an I/O error of the handshake: the server closed the connection, did not answer, or speaks another
    /// protocol.
    fn failed(&self, error: io::Error) -> Error {
        let server = self.server.into();
        match error.kind() {
            ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::UnexpectedEof => {
                Error::Closed { server }
            }
            _ if is_timeout(&error) => {
                Error::NoAnswer { server, call: "the greeting".into(), waited: self.within }
            }
            _ => self.stranger(error.to_string()),
        }
    }

    fn stranger(&self, why: String) -> Error {
        Error::NotLauncher { server: self.server.into(), why }
    }

    fn unreachable(&self, begin: Instant, source: io::Error) -> Error {
        let waited = Duration::from_millis(begin.elapsed().as_millis() as u64);
        Error::Connect { server: self.server.into(), waited, source }
    }
}

/// Connects to the first address of `server` that accepts. A host may listen on IPv4 or IPv6 only.
fn connect_to_any_address(server: &str, within: Duration) -> io::Result<TcpStream> {
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

/// Sets the options of a connection: small messages are sent immediately, and keep-alive detects the loss of a host.
pub(crate) fn tune(stream: &TcpStream, n_pes: u32) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_write_timeout(Some(write_timeout(n_pes)))?;
    let keepalive = TcpKeepalive::new()
        .with_time(Duration::from_secs(5))
        .with_interval(Duration::from_secs(2))
        .with_retries(3);
    SockRef::from(stream).set_tcp_keepalive(&keepalive)
}

#[cfg(test)]
mod tests {
    use rushmem_base::cores;

    use super::*;

    #[test]
    fn write_timeout_grows_with_pes_per_core() {
        assert_eq!(write_timeout(2), WRITE_TIMEOUT);
        assert_eq!(write_timeout(64 * cores()), 8 * WRITE_TIMEOUT);
    }
}
