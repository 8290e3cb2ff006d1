//! Counters of what an adapter has executed, sent, received and dropped.

/// Counters of an adapter since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Number of doorbells processed.
    pub doorbells: u64,
    /// Number of send WQEs executed or flushed.
    pub wqes: u64,
    /// Number of CQEs written.
    pub cqes: u64,
    /// Number of CQEs written with an error, which are included in `cqes`.
    pub error_cqes: u64,
    /// Payload bytes that this adapter has transferred as a requester.
    pub bytes: u64,
    /// Number of packets handed to the fabric for transmission.
    pub packets_sent: u64,
    /// Number of packets received from other adapters.
    pub packets_received: u64,
    /// Total length of `packets_sent` in bytes, from the base transport header to the CRC.
    pub bytes_sent: u64,
    /// Total length of `packets_received` in bytes, from the base transport header to the CRC.
    pub bytes_received: u64,
    /// Number of packets in `packets_sent` that went through shared memory to another adapter of this machine.
    pub shared_sent: u64,
    /// Number of packets in `packets_received` that came through shared memory.
    pub shared_received: u64,
    /// Number of packets in `packets_sent` that shared a UDP message with others (segmentation offload).
    pub segmented: u64,
    /// Number of packets sent again.
    pub retransmitted: u64,
    /// Number of requests that had been executed before and were answered again.
    pub duplicates: u64,
    /// Number of requests received after a missing one.
    pub out_of_order: u64,
    /// Number of packets dropped as invalid: wrong CRC, bad header, unknown QP or sender, or a repeated READ that its
    /// key does not allow.
    pub dropped: u64,
    /// Number of responses that do not answer any request in flight.
    pub stale: u64,
    /// Number of messages of unreliable services that were not delivered because of the address, QP, key, access rights
    /// or lack of a receive.
    pub lost: u64,
    /// Number of packets that the kernel has refused to send.
    pub send_failures: u64,
    /// Number of injected faults.
    pub faults: u64,
}
