//! Queue counters: sets of error counters that queue pairs share.

use super::layout::{command, response};

command! { ALLOC_Q_COUNTER -> AllocQCounterOut;
    /// ALLOC_Q_COUNTER: makes a counter set.
    pub struct AllocQCounter[16] {}
}

response! {
    /// Answer to [`AllocQCounter`].
    pub struct AllocQCounterOut[16] {
        /// Number of the counter set.
        counter_set_id: u8 = 0x58, 8;
    }
}

command! { DEALLOC_Q_COUNTER -> DeallocQCounterOut;
    /// DEALLOC_Q_COUNTER: destroys a counter set.
    pub struct DeallocQCounter[16] {
        /// Number of the counter set.
        counter_set_id: u8 = 0x58, 8;
    }
}

response! {
    /// Answer to [`DeallocQCounter`].
    pub struct DeallocQCounterOut[16] {}
}

command! { QUERY_Q_COUNTER -> QueryQCounterOut;
    /// QUERY_Q_COUNTER: asks for the counts of a counter set.
    pub struct QueryQCounter[32] {
        /// Sets the counts to zero after reading.
        clear: bool = 0xc0, 1;
        /// Number of the counter set.
        counter_set_id: u8 = 0xf8, 8;
    }
}

response! {
    /// Answer to [`QueryQCounter`]: the counts that loss and reordering raise.
    pub struct QueryQCounterOut[256] {
        /// Packets that arrived ahead of a missing one.
        out_of_sequence: u32 = 0x1c0, 32;
        /// Requests that arrived again.
        duplicate_request: u32 = 0x200, 32;
        /// Sequence NAKs from peers.
        packet_seq_err: u32 = 0x280, 32;
        /// Acknowledgements that did not come in time.
        local_ack_timeout_err: u32 = 0x300, 32;
    }
}
