//! Requests of kernels for connections.

use std::sync::atomic::Ordering;

use rushmem_error::{Error, Result};

use super::Connections;

impl Connections {
    /// Takes the requests of kernels. Returns the indices of the QPs that they need for the first time, and of those whose
    /// connection has failed.
    ///
    /// # Errors
    /// An error if the handshakes cannot be read.
    pub fn take_wanted(&self) -> Result<[Vec<usize>; 2]> {
        let [mut first, mut next] = [Vec::new(), Vec::new()];
        for (i, taken) in self.taken.iter().enumerate() {
            // Without failover, kernels request a connection once.
            if !self.shape.failover && taken.load(Ordering::Acquire) != 0 {
                continue;
            }
            // Kernels never withdraw a request, so each is reported once per epoch.
            let Some(request) = self.handshakes.request(i)? else { continue };
            if taken.swap(request.word(), Ordering::AcqRel) != request.word() {
                if request.number == 1 { first.push(i) } else { next.push(i) }
            }
        }
        Ok([first, next])
    }

    /// Informs kernels that QP `i` will not be connected, and returns the error.
    pub(super) fn deny(&self, i: usize, why: &str) -> Error {
        if let Err(error) = self.handshakes.answer(i, None) {
            tracing::error!("cannot inform the kernels about a failed connection: {error}");
        }
        Error::NoConnection { pe: self.me, peer: self.place(i).0, why: why.into() }
    }
}

/// Returns the peer whose connection has failed.
pub(in super::super) fn peer_of(error: &Error) -> Option<u32> {
    match error {
        Error::NoConnection { peer, .. } | Error::ConnectionLost { peer, .. } => Some(*peer),
        _ => None,
    }
}
