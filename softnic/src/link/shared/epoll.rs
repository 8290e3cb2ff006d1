//! A set of descriptors to wait for.
#![allow(unsafe_code, reason = "system calls on an epoll")]

use super::mapping::checked;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Maximum number of descriptors reported at once.
const EVENTS: usize = 16;

/// The set. A closed descriptor leaves it by itself.
#[derive(Debug)]
pub(super) struct Epoll(OwnedFd);

impl Epoll {
    pub(super) fn new() -> io::Result<Epoll> {
        // SAFETY: takes no pointers; the result is a new descriptor that nothing else owns.
        Ok(Epoll(unsafe { OwnedFd::from_raw_fd(checked(libc::epoll_create1(libc::EPOLL_CLOEXEC))?) }))
    }

    /// Adds a descriptor, which [`Epoll::ready`] reports as `token` while it is readable or closed by the peer.
    ///
    /// # Errors
    ///
    /// The errors of the system call.
    pub(super) fn add(&self, fd: BorrowedFd<'_>, token: u64) -> io::Result<()> {
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: token };
        let (epoll, add) = (self.0.as_raw_fd(), libc::EPOLL_CTL_ADD);
        // SAFETY: a live event; the descriptors are open.
        checked(unsafe { libc::epoll_ctl(epoll, add, fd.as_raw_fd(), &raw mut event) }).map(|_| ())
    }

    /// Returns the tokens of some descriptors that are ready now.
    pub(super) fn ready(&self) -> impl Iterator<Item = u64> + use<> {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; EVENTS];
        // SAFETY: room for the number of events given. The call does not wait.
        let got =
            unsafe { libc::epoll_wait(self.0.as_raw_fd(), events.as_mut_ptr(), EVENTS as libc::c_int, 0) };
        events.into_iter().take(usize::try_from(got).unwrap_or(0)).map(|event| event.u64)
    }
}

impl AsFd for Epoll {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
