//! Counts the calls, messages and bytes that a PE exchanges through the bootstrap.

use std::sync::atomic::{AtomicU64, Ordering};

/// Number of calls and bytes that a PE has exchanged through the bootstrap so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Number of messages sent to other PEs.
    pub messages: u64,
    /// Total size of the messages sent to other PEs, in bytes.
    pub message_bytes: u64,
    /// Number of collective calls made.
    pub calls: u64,
    /// Bytes received in collective calls: the contributions of all PEs, including its own.
    pub call_bytes: u64,
}

/// Counters from which [`Traffic`] is read.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    messages: AtomicU64,
    message_bytes: AtomicU64,
    calls: AtomicU64,
    call_bytes: AtomicU64,
}

impl Meter {
    pub(crate) fn message(&self, bytes: &[u8]) {
        self.messages.fetch_add(1, Ordering::Relaxed);
        self.message_bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
    }

    /// Counts a collective call that returned these contributions.
    pub(crate) fn call(&self, parts: &[Vec<u8>]) {
        let bytes = parts.iter().map(|part| part.len() as u64).sum();
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.call_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> Traffic {
        let [messages, message_bytes, calls, call_bytes] =
            [&self.messages, &self.message_bytes, &self.calls, &self.call_bytes]
                .map(|counter| counter.load(Ordering::Relaxed));
        Traffic { messages, message_bytes, calls, call_bytes }
    }
}
