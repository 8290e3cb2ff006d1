//! Keeps the error of a dropped launch or stream until the PE shuts down and reports it.

use std::sync::Mutex;

use rushmem_base::lock;

use crate::Error;

/// The first error of a launch or stream that the program dropped without waiting for it.
#[derive(Default)]
pub(crate) struct Unreported(Mutex<Option<Error>>);

impl Unreported {
    /// Keeps `error`, unless an error is already kept.
    ///
    /// A launch that did not run is only a consequence: the launch that failed reports the cause.
    pub(crate) fn keep(&self, error: Error) {
        if !matches!(error, Error::NotRun { .. }) {
            lock(&self.0).get_or_insert(error);
        }
    }

    pub(crate) fn take(&self) -> Option<Error> {
        lock(&self.0).take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_cause_is_kept() {
        let unreported = Unreported::default();
        unreported.keep(Error::NotRun { kernel: "b", failed: "a" });
        unreported.keep(Error::Unrecorded);
        unreported.keep(Error::Panic("later".into()));
        assert!(matches!(unreported.take(), Some(Error::Unrecorded)));
        assert!(unreported.take().is_none());
    }
}
