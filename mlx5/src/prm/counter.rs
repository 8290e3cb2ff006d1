//! Queue counters: sets of error counters that queue pairs share.

use super::layout::{command, response};

command! { ALLOC_Q_COUNTER -> AllocQCounterOut;
    /// ALLOC_Q_COUNTER: allocates a counter set.
    pub struct AllocQCounter[16] {}
}

response! {
    /// Output of [`AllocQCounter`].
    pub struct AllocQCounterOut[16] {
        /// ID of the new counter set.
        counter_set_id: u8 = 0x58, 8;
    }
}

command! { DEALLOC_Q_COUNTER -> DeallocQCounterOut;
    /// DEALLOC_Q_COUNTER: deallocates a counter set.
    pub struct DeallocQCounter[16] {
        /// ID of the counter set.
        counter_set_id: u8 = 0x58, 8;
    }
}

response! {
    /// Output of [`DeallocQCounter`].
    pub struct DeallocQCounterOut[16] {}
}

command! { QUERY_Q_COUNTER -> QueryQCounterOut;
    /// QUERY_Q_COUNTER: queries the counts of a counter set.
    pub struct QueryQCounter[32] {
        /// Resets the counts to zero after reading.
        clear: bool = 0xc0, 1;
        /// ID of the counter set.
        counter_set_id: u8 = 0xf8, 8;
    }
}

response! {
    /// Output of [`QueryQCounter`]: the counts that loss and reordering affect.
    pub struct QueryQCounterOut[256] {
        /// Packets received ahead of a missing one.
        out_of_sequence: u32 = 0x1c0, 32;
        /// Requests received again.
        duplicate_request: u32 = 0x200, 32;
        /// Sequence NAKs received.
        packet_seq_err: u32 = 0x280, 32;
        /// Acknowledgements that timed out.
        local_ack_timeout_err: u32 = 0x300, 32;
    }
}
