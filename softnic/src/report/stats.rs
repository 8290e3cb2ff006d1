//! Counters of an adapter.

/// Counters of an adapter since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Doorbells processed.
    pub doorbells: u64,
    /// Send WQEs executed or flushed.
    pub wqes: u64,
    /// CQEs written.
    pub cqes: u64,
    /// CQEs written with an error. Included in `cqes`.
    pub error_cqes: u64,
    /// Payload bytes that this adapter has transferred as a requester.
    pub bytes: u64,
    /// Packets handed to the fabric.
    pub packets_sent: u64,
    /// Packets received from the fabric.
    pub packets_received: u64,
    /// Bytes of `packets_sent`, from the base transport header to the CRC.
    pub bytes_sent: u64,
    /// Bytes of `packets_received`, from the base transport header to the CRC.
    pub bytes_received: u64,
    /// Part of `packets_sent` that went through shared memory to another adapter of this machine.
    pub shared_sent: u64,
    /// Part of `packets_received` that came through shared memory.
    pub shared_received: u64,
    /// Part of `packets_sent` that shared a UDP message with other packets to the same software adapter.
    pub segmented: u64,
    /// Packets sent again.
    pub retransmitted: u64,
    /// Requests that had been executed before and were answered again.
    pub duplicates: u64,
    /// Requests received after a gap.
    pub out_of_order: u64,
    /// Packets dropped as invalid: wrong CRC, bad header, unknown QP or sender, or a repeated READ that its key does
    /// not allow.
    pub dropped: u64,
    /// Responses that do not answer any request in flight.
    pub stale: u64,
    /// Messages of unreliable services that were not delivered because of the address, QP, key, access rights or lack
    /// of a receive.
    pub lost: u64,
    /// Packets that the kernel has refused to send.
    pub send_failures: u64,
    /// Faults injected.
    pub faults: u64,
}
