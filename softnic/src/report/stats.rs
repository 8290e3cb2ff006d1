//! Counters of one adapter.

/// Counters of one adapter since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Doorbells seen.
    pub doorbells: u64,
    /// Send WQEs executed, including flushed ones.
    pub wqes: u64,
    /// Completions written.
    pub cqes: u64,
    /// Error completions written; `cqes` counts them as well.
    pub error_cqes: u64,
    /// Payload bytes moved by this adapter as a requester.
    pub bytes: u64,
    /// Packets handed to the fabric.
    pub packets_sent: u64,
    /// Packets received from the fabric.
    pub packets_received: u64,
    /// Bytes of these packets, from the base transport header to the checksum.
    pub bytes_sent: u64,
    /// Bytes of `packets_received`, likewise.
    pub bytes_received: u64,
    /// Packets of `packets_sent` that went through shared memory to another adapter of this machine.
    pub shared_sent: u64,
    /// Packets of `packets_received` that came through shared memory.
    pub shared_received: u64,
    /// Packets of `packets_sent` that the kernel carried together with others, as one datagram to another software adapter.
    pub segmented: u64,
    /// Packets retransmitted.
    pub retransmitted: u64,
    /// Packets that arrived twice and were answered again.
    pub duplicates: u64,
    /// Packets that arrived ahead of a missing one.
    pub out_of_order: u64,
    /// Packets dropped as invalid: wrong CRC, bad headers, unknown QP, unknown sender, or a repeated READ that its key
    /// does not allow.
    pub dropped: u64,
    /// Responses that answer no request in flight.
    pub stale: u64,
    /// Messages of unreliable services that were not delivered: bad address, QP, key or right, or no posted receive.
    pub lost: u64,
    /// Packets that the kernel refused to send.
    pub send_failures: u64,
    /// Faults injected.
    pub faults: u64,
}
