//! A TCP stream with one deadline for a whole handshake, so a peer that sends byte by byte cannot prolong it.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// A TCP stream whose reads and writes fail with `TimedOut` after a fixed point in time.
pub(crate) struct UntilDeadline<'a> {
    stream: &'a TcpStream,
    end: Instant,
}

impl<'a> UntilDeadline<'a> {
    /// Limits all reads and writes of `stream` to the time before `end`, until [`UntilDeadline::release`].
    pub(crate) fn new(stream: &'a TcpStream, end: Instant) -> UntilDeadline<'a> {
        UntilDeadline { stream, end }
    }

    /// Removes the deadline. From now on, each write may take `write`, and reads have no limit.
    pub(crate) fn release(self, write: Duration) -> io::Result<()> {
        self.stream.set_read_timeout(None)?;
        self.stream.set_write_timeout(Some(write))
    }

    // Read and write timeouts of a socket apply per call, so they are set to the remaining time before each call.
    fn remaining(&self) -> io::Result<Option<Duration>> {
        match self.end.saturating_duration_since(Instant::now()) {
            remaining if remaining.is_zero() => Err(ErrorKind::TimedOut.into()),
            remaining => Ok(Some(remaining)),
        }
    }
}

impl Read for UntilDeadline<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(self.remaining()?)?;
        self.stream.read(buffer)
    }
}

impl Write for UntilDeadline<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(self.remaining()?)?;
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;
    use crate::dial::is_timeout;

    #[test]
    fn slow_bytes_do_not_extend_the_deadline() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (receiver, _) = listener.accept().unwrap();
        let trickle = thread::spawn(move || {
            while sender.write_all(&[1]).is_ok() {
                thread::sleep(Duration::from_millis(20));
            }
        });
        let begin = Instant::now();
        let mut socket = UntilDeadline::new(&receiver, begin + Duration::from_millis(200));
        let error = socket.read_exact(&mut [0; 1 << 10]).unwrap_err();
        assert!(is_timeout(&error), "{error}");
        assert!(begin.elapsed() < Duration::from_secs(5));
        drop(receiver);
        trickle.join().unwrap();
    }
}
