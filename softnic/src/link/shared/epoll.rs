//! An epoll instance, which waits for any number of file descriptors.

use rustix::event::{Timespec, epoll};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Maximum number of descriptors reported per call.
const EVENTS: usize = 16;

/// An epoll instance. Closing a descriptor removes it from the instance.
#[derive(Debug)]
pub(super) struct Epoll(OwnedFd);

impl Epoll {
    pub(super) fn new() -> io::Result<Epoll> {
        Ok(Epoll(epoll::create(epoll::CreateFlags::CLOEXEC)?))
    }

    /// Adds a descriptor, which [`Epoll::ready`] reports as `token` while it is readable or its peer has closed it.
    ///
    /// # Errors
    ///
    /// Errors of the system call.
    pub(super) fn add(&self, fd: BorrowedFd<'_>, token: u64) -> io::Result<()> {
        Ok(epoll::add(&self.0, fd, epoll::EventData::new_u64(token), epoll::EventFlags::IN)?)
    }

    /// Returns the tokens of descriptors that are ready now, up to [`EVENTS`] of them.
    pub(super) fn ready(&self) -> impl Iterator<Item = u64> + use<> {
        let mut events = [const { MaybeUninit::<epoll::Event>::uninit() }; EVENTS];
        let now = Timespec::default();
        let (found, _) = epoll::wait(&self.0, &mut events, Some(&now)).unwrap_or_default();
        let mut tokens = [0; EVENTS];
        let count = found.len();
        tokens.iter_mut().zip(found).for_each(|(token, event)| *token = event.data.u64());
        tokens.into_iter().take(count)
    }
}

impl AsFd for Epoll {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
