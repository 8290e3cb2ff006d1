//! Event files: pipes from which programs read the events of their objects.
//!
//! The writing end belongs to this library, the reading end to the program.

use crate::errno::Errno;
use crate::sys::{self, Identity};
use crate::user;
use std::ffi::CString;
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Mutex, PoisonError};

/// Maximum length of an event, in bytes.
const MAX_EVENT_LEN: usize = 4096;

/// How the events in an event file are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Events have a fixed length that readers know.
    Fixed,
    /// Each read returns a whole event and discards what exceeds the buffer (a pipe in packet mode).
    Packets,
}

/// Writing end of an event file.
pub(crate) struct Channel {
    writer: OwnedFd,
    /// A second, non-blocking reading end, from which unread events are removed again.
    reader: OwnedFd,
    kind: Kind,
    /// Descriptor of the program's reading end, in this process.
    end: RawFd,
    /// The program's reading end, kept open here if the program is another process, which has duplicated it.
    _kept: Option<OwnedFd>,
    identity: Identity,
    /// Lock that is held while events are written or removed.
    turn: Mutex<()>,
}

impl Channel {
    /// Creates an event file. Returns it with the program's side of the pipe.
    pub(crate) fn new(kind: Kind) -> Result<(Arc<Channel>, RawFd), Errno> {
        let mut ends = [0; 2];
        let mode = if kind == Kind::Packets { libc::O_DIRECT } else { 0 };
        // SAFETY: a live array for two descriptors.
        if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK | mode) } != 0 {
            return Err(Errno::last());
        }
        let (end, writer) = (sys::owned(ends[0])?, sys::owned(ends[1])?);
        let identity = sys::identity(end.as_raw_fd()).ok_or(Errno::EIO)?;
        let name = CString::new(format!("/proc/self/fd/{}", end.as_raw_fd())).map_err(|_| Errno::EIO)?;
        let flags = libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK;
        // SAFETY: a C string that lives.
        let reader = sys::owned(unsafe { sys::open(libc::AT_FDCWD, name.as_ptr(), flags, 0) })?;
        // Programs get a blocking end, as from the kernel. `reader` has a separate file description.
        // SAFETY: takes numbers only.
        if unsafe { libc::fcntl(end.as_raw_fd(), libc::F_SETFL, 0) } != 0 {
            return Err(Errno::last());
        }
        let number = end.as_raw_fd();
        let kept = match user::other_process() {
            Some(_) => Some(end),
            None => {
                // The program closes it.
                let _ = end.into_raw_fd();
                None
            }
        };
        let turn = Mutex::default();
        let channel = Channel { writer, reader, kind, end: number, _kept: kept, identity, turn };
        Ok((Arc::new(channel), number))
    }

    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns the identity of the pipe that the program reads.
    pub(crate) fn identity(&self) -> Identity {
        self.identity
    }

    /// Whether `fd` is the program's side of the pipe.
    pub(crate) fn is(&self, fd: RawFd) -> bool {
        sys::identity(fd) == Some(self.identity)
    }

    /// Whether the program has closed its side of the pipe.
    pub(crate) fn is_closed(&self) -> bool {
        !self.is(self.end)
    }

    /// Appends an event. Returns `false` if the pipe was full, in which case the event is lost.
    pub(crate) fn send(&self, event: &[u8]) -> bool {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        self.put(event)
    }

    fn put(&self, event: &[u8]) -> bool {
        // SAFETY: the event's own bytes.
        let put = unsafe { libc::write(self.writer.as_raw_fd(), event.as_ptr().cast(), event.len()) };
        let whole = usize::try_from(put) == Ok(event.len());
        if !whole {
            tracing::error!(bytes = event.len(), "an event file is full: the event is lost");
        }
        whole
    }

    /// Removes the first unread byte.
    pub(crate) fn take_back_one(&self) {
        let mut byte = 0u8;
        // SAFETY: a live byte.
        unsafe { libc::read(self.reader.as_raw_fd(), (&raw mut byte).cast(), 1) };
    }

    /// Removes the unread events that `choose` selects and returns their number. `len` is the length of an event.
    pub(crate) fn take_back(&self, len: usize, choose: impl Fn(&[u8]) -> bool) -> u32 {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let mut buffer = [0; MAX_EVENT_LEN];
        let step = if self.kind == Kind::Fixed { len.min(MAX_EVENT_LEN) } else { MAX_EVENT_LEN };
        let mut unread: Vec<Vec<u8>> = Vec::new();
        loop {
            // SAFETY: `step` bytes of the buffer.
            let got = unsafe { libc::read(self.reader.as_raw_fd(), buffer.as_mut_ptr().cast(), step) };
            match usize::try_from(got) {
                Ok(got) if got > 0 => unread.push(buffer[..got].to_vec()),
                _ => break,
            }
        }
        let mut taken = 0;
        for event in unread {
            if choose(&event) {
                taken += 1;
            } else {
                self.put(&event);
            }
        }
        taken
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn read(fd: RawFd, room: usize) -> Vec<u8> {
        let mut buffer = vec![0; room];
        // SAFETY: all of the buffer.
        let got = unsafe { libc::read(fd, buffer.as_mut_ptr().cast(), room) };
        buffer.truncate(usize::try_from(got).unwrap());
        buffer
    }

    #[test]
    fn events_are_read_in_order_and_can_be_taken_back() {
        let (channel, fd) = Channel::new(Kind::Fixed).unwrap();
        assert!(channel.is(fd) && !channel.is(0));
        for value in [1u64, 2, 1, 3] {
            assert!(channel.send(&value.to_ne_bytes()));
        }
        assert_eq!(read(fd, 8), 1u64.to_ne_bytes());
        assert_eq!(channel.take_back(8, |event| event == 1u64.to_ne_bytes()), 1);
        assert_eq!(channel.take_back(8, |event| event == 1u64.to_ne_bytes()), 0);
        assert_eq!(read(fd, 8), 2u64.to_ne_bytes());
        assert_eq!(read(fd, 8), 3u64.to_ne_bytes());
        sys::close(fd);
        assert!(!channel.is(fd) && channel.is_closed());
    }

    #[test]
    fn packets_stay_apart() {
        let (channel, fd) = Channel::new(Kind::Packets).unwrap();
        channel.send(b"one");
        channel.send(b"three");
        assert_eq!(read(fd, 100), b"one");
        assert_eq!(channel.take_back(0, |event| event == b"one"), 0);
        assert_eq!(read(fd, 100), b"three");
        sys::close(fd);
    }
}
