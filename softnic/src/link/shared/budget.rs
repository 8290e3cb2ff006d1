//! A limit on the descriptors that rings take from the rest of the process.
#![allow(unsafe_code, reason = "reads the limit of descriptors")]

use std::sync::atomic::{AtomicU64, Ordering};

/// Number of ring halves in this process.
static ENDS: AtomicU64 = AtomicU64::new(0);

/// One ring end, which uses a descriptor. Dropping it makes room for another.
#[derive(Debug)]
pub(super) struct Share(());

impl Share {
    /// Counts one more ring half. Returns `None` if they would use more than a quarter of the process's descriptors.
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

/// Returns the descriptor limit of the process.
fn limit() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a live variable of the type that the call fills. An error leaves 0, and so there are no rings.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    limit.rlim_cur
}
