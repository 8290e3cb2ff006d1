//! Interrupts as event files of the client.

use crate::eq::{Interrupts, VECTORS};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::{Errno, write};
use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The event file of each MSI-X interrupt, if the client has given one.
pub(super) struct EventFiles(Mutex<Vec<Option<OwnedFd>>>);

impl EventFiles {
    pub(super) fn new() -> EventFiles {
        EventFiles(Mutex::new((0..VECTORS).map(|_| None).collect()))
    }

    fn files(&self) -> MutexGuard<'_, Vec<Option<OwnedFd>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets or removes the event file of an interrupt.
    pub(super) fn set(&self, vector: usize, file: Option<OwnedFd>) -> Result<(), Errno> {
        if let Some(file) = &file {
            // A full file must not hold up the adapter.
            fcntl_setfl(file, fcntl_getfl(file)? | OFlags::NONBLOCK)?;
        }
        *self.files().get_mut(vector).ok_or(Errno::INVAL)? = file;
        Ok(())
    }

    pub(super) fn clear(&self) {
        self.files().fill_with(|| None);
    }
}

impl Interrupts for EventFiles {
    fn raise(&self, vector: u16) {
        if let Some(Some(file)) = self.files().get(usize::from(vector)) {
            // The file is full if the interrupt is pending many times over. The client's mistakes are its own.
            let _ = write(file, &1u64.to_ne_bytes());
        }
    }
}
