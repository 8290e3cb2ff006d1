//! The thread of the connection manager. It waits for messages, for timeouts and for the end of peers.

use super::Cm;
use crate::errno::Errno;
use crate::sys;
use rushmem_softnic::Mad;
use std::io::{Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, Once, PoisonError};
use std::time::Instant;

/// Messages that have arrived, and the bell of the thread.
pub(super) struct Inbox {
    /// Device and message.
    mads: Mutex<Vec<(u32, Mad)>>,
    bell: UnixStream,
    /// The end that the thread hears.
    ear: UnixStream,
    started: Once,
}

impl Inbox {
    pub(super) fn new() -> Result<Inbox, Errno> {
        let (bell, ear) = UnixStream::pair().map_err(Errno::from)?;
        bell.set_nonblocking(true).map_err(Errno::from)?;
        ear.set_nonblocking(true).map_err(Errno::from)?;
        Ok(Inbox { mads: Mutex::default(), bell, ear, started: Once::new() })
    }

    /// Adds a message of a device.
    pub(super) fn put(&self, device: u32, mad: Mad) {
        self.mads.lock().unwrap_or_else(PoisonError::into_inner).push((device, mad));
        self.ring();
    }

    /// Makes the thread look for what there is to do.
    pub(super) fn ring(&self) {
        // A full socket rings already.
        let _ = (&self.bell).write(&[1]);
    }

    fn take(&self) -> Vec<(u32, Mad)> {
        let mut rings = [0; 64];
        while (&self.ear).read(&mut rings).is_ok_and(|count| count == rings.len()) {}
        std::mem::take(&mut self.mads.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Cm {
    /// Starts the thread, once.
    ///
    /// # Errors
    ///
    /// Returns the error of starting a thread.
    pub(super) fn start(&'static self) -> Result<(), Errno> {
        let mut result = Ok(());
        self.inbox.started.call_once(|| {
            let thread = std::thread::Builder::new().name("rdma_cm".into());
            result = thread.spawn(move || self.work()).map(drop).map_err(Errno::from);
        });
        result
    }

    fn work(&self) {
        loop {
            let (mut fds, due) = self.state().waits();
            fds.push(self.inbox.ear.as_raw_fd());
            let now = Instant::now();
            sys::wait(&fds, due.map(|due| due.saturating_duration_since(now)));
            let mads = self.inbox.take();
            let mut state = self.state();
            for (device, mad) in mads {
                state.receive(device, &mad);
            }
            state.look_at_peers();
            state.time_out(Instant::now(), &self.inbox);
        }
    }
}
