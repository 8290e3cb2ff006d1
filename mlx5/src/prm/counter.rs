//! Queue counters: sets of statistics, mostly of errors, that queue pairs share.

use super::layout::{command, response};

command! { ALLOC_Q_COUNTER -> AllocQCounterOut;
    /// ALLOC_Q_COUNTER: allocates a set of queue counters.
    pub struct AllocQCounter[16] {}
}

response! {
    /// The NIC's reply to [`AllocQCounter`], with the ID of the new counter set.
    pub struct AllocQCounterOut[16] {
        /// ID of the new set of queue counters.
        counter_set_id: u8 = 0x58, 8;
    }
}

command! { DEALLOC_Q_COUNTER -> DeallocQCounterOut;
    /// DEALLOC_Q_COUNTER: deallocates a set of queue counters.
    pub struct DeallocQCounter[16] {
        /// ID of the set of queue counters.
        counter_set_id: u8 = 0x58, 8;
    }
}

response! {
    /// The NIC's reply to [`DeallocQCounter`]. It carries no data beyond its status.
    pub struct DeallocQCounterOut[16] {}
}

command! { QUERY_Q_COUNTER -> QueryQCounterOut;
    /// QUERY_Q_COUNTER: reads a set of queue counters.
    pub struct QueryQCounter[32] {
        /// Resets the counters to zero after reading.
        clear: bool = 0xc0, 1;
        /// ID of the set of queue counters.
        counter_set_id: u8 = 0xf8, 8;
    }
}

response! {
    /// Output of [`QueryQCounter`], reduced to the counters that packet loss and reordering affect.
    pub struct QueryQCounterOut[256] {
        /// Number of frames and messages dropped because no receive was posted.
        out_of_buffer: u32 = 0x180, 32;
        /// Number of packets received ahead of a missing one.
        out_of_sequence: u32 = 0x1c0, 32;
        /// Number of duplicate requests received.
        duplicate_request: u32 = 0x200, 32;
        /// Number of NAKs for a sequence error received.
        packet_seq_err: u32 = 0x280, 32;
        /// Number of times that a requester's acknowledgement timer expired.
        local_ack_timeout_err: u32 = 0x300, 32;
    }
}
