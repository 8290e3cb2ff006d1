//! Limits the number of file descriptors that shared-memory rings use, so enough are left for the rest of the process.
#![allow(unsafe_code, reason = "reads the limit of descriptors")]

use std::sync::atomic::{AtomicU64, Ordering};

/// Number of ring ends in this process. Each uses a file descriptor.
static ENDS: AtomicU64 = AtomicU64::new(0);

/// Permission for one end of a ring to use a file descriptor. Dropping it allows another end.
#[derive(Debug)]
pub(super) struct Share(());

impl Share {
    /// Returns permission for one more ring end, or `None` if a quarter of the process's descriptors are in use by
    /// rings.
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

fn limit() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a live variable of the type that the call fills. An error leaves 0, and so there are no rings.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    limit.rlim_cur
}
