//! A bound on the descriptors that rings take from the programs of the process.
#![allow(unsafe_code, reason = "reads the limit of descriptors")]

use std::sync::atomic::{AtomicU64, Ordering};

/// Ends of rings in this process.
static ENDS: AtomicU64 = AtomicU64::new(0);

/// The end of a ring, which has a descriptor. Dropping it makes room for another one.
#[derive(Debug)]
pub(super) struct Share(());

impl Share {
    /// Counts one more end. Returns `None` if all together would take more than a quarter of the descriptors of the process.
    pub(super) fn take() -> Option<Share> {
        let limit = limit() / 4;
        let more = |ends| (ends < limit).then_some(ends + 1);
        // Relaxed: only a count.
        ENDS.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok().map(|_| Share(()))
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        ENDS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Returns how many descriptors the process may have.
fn limit() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a live variable of the type that the call fills. An error leaves 0, and so there are no rings.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    limit.rlim_cur
}
