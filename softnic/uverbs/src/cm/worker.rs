//! The thread of the connection manager, which waits for messages, timeouts, and peers that exit.

use super::Cm;
use crate::errno::Errno;
use crate::sys;
use rushmem_softnic::Mad;
use std::io::{Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, Once, PoisonError};
use std::time::Instant;

/// Messages that have arrived, and a socket pair that wakes the thread.
pub(super) struct Inbox {
    /// Each message with the index of its device.
    mads: Mutex<Vec<(u32, Mad)>>,
    bell: UnixStream,
    /// End of the socket pair that the worker thread polls.
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

    /// Adds a message received by a device.
    pub(super) fn put(&self, device: u32, mad: Mad) {
        self.mads.lock().unwrap_or_else(PoisonError::into_inner).push((device, mad));
        self.ring();
    }

    /// Wakes the worker thread, to make it check messages and timers.
    pub(super) fn ring(&self) {
        // If the socket is full, the thread will wake anyway.
        let _ = (&self.bell).write(&[1]);
    }

    fn take(&self) -> Vec<(u32, Mad)> {
        let mut rings = [0; 64];
        while (&self.ear).read(&mut rings).is_ok_and(|count| count == rings.len()) {}
        std::mem::take(&mut self.mads.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Cm {
    /// Starts the thread, unless it is running.
    ///
    /// # Errors
    ///
    /// The error of starting a thread.
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
            // The messages are processed under one lock, so commands do not come in between.
            let mut state = self.state();
            for (device, mad) in mads {
                state.receive(device, &mad);
            }
            state.look_at_peers();
            state.time_out(Instant::now(), &self.inbox);
        }
    }
}
