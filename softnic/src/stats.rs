//! Counters of one adapter.

/// What an adapter has done since it started. Counts wrap never in practice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Doorbells seen.
    pub doorbells: u64,
    /// Send work-queue entries executed, flushed ones included.
    pub wqes: u64,
    /// Completions written.
    pub cqes: u64,
    /// Of these, errors.
    pub error_cqes: u64,
    /// Payload bytes moved by this adapter as a requester.
    pub bytes: u64,
    /// Packets handed to the fabric.
    pub packets_sent: u64,
    /// Packets taken from the fabric.
    pub packets_received: u64,
    /// Packets sent again.
    pub retransmitted: u64,
    /// Packets that arrived twice and were answered again.
    pub duplicates: u64,
    /// Packets that arrived ahead of a missing one.
    pub out_of_order: u64,
    /// Packets dropped because they were broken: CRC, headers, unknown QP or sender.
    pub dropped: u64,
    /// Messages of unreliable services that nobody took: an address that leads nowhere, no such QP, key or right, no
    /// receive entry.
    pub lost: u64,
    /// Packets that the kernel refused to send.
    pub send_failures: u64,
    /// Faults injected on purpose.
    pub faults: u64,
}
