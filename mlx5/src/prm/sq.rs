//! Send queues (SQ) and receive queues (RQ) for Ethernet frames.

use super::layout::{command, layout, numbers, response};
use super::rmp::Wq;

numbers! {
    /// State of a send or receive queue.
    pub struct QueueState(u8) {
        /// Reset: the queue does nothing.
        RST = 0;
        /// Ready: the queue sends or receives.
        RDY = 1;
        /// Error: the queue only flushes its entries.
        ERR = 3;
    }
}

layout! {
    /// The context of a send queue.
    pub struct SqContext[240] {
        /// The queue accepts the reserved lkey, which addresses memory by bus addresses.
        rlky: bool = 0x000, 1;
        /// Entries are completed with an error after the queue has failed.
        flush_in_error_en: bool = 0x003, 1;
        /// One entry may contain several frames.
        allow_multi_pkt_send_wqe: bool = 0x004, 1;
        /// How many headers of each frame must be inline.
        min_wqe_inline_mode: u8 = 0x005, 3;
        /// State of the queue.
        state: QueueState = 0x008, 4;
        /// The queue may change memory keys.
        reg_umr: bool = 0x00c, 1;
        /// Entries may say where the headers are.
        allow_swp: bool = 0x00d, 1;
        /// The queue is connected to a receive queue in the NIC.
        hairpin: bool = 0x00e, 1;
        /// Format of timestamps: 0 for the free-running clock.
        ts_format: u8 = 0x01a, 2;
        /// Number that completions contain.
        user_index: u32 = 0x028, 24;
        /// Completion queue.
        cqn: u32 = 0x048, 24;
        /// Limit of the queue's rate, by its index.
        packet_pacing_rate_limit_index: u16 = 0x0f0, 16;
        /// Number of transport interfaces.
        tis_lst_sz: u16 = 0x100, 16;
        /// The first transport interface.
        tis_num_0: u32 = 0x168, 24;
        /// The ring.
        wq: Wq = 0x180, 1536;
    }
}

layout! {
    /// The context of a receive queue.
    pub struct RqContext[240] {
        /// The queue accepts the reserved lkey.
        rlky: bool = 0x000, 1;
        /// Frames wait for a receive for a while.
        delay_drop_en: bool = 0x001, 1;
        /// Frames are delivered with their check sequence.
        scatter_fcs: bool = 0x002, 1;
        /// VLAN tags stay in the frames.
        vsd: bool = 0x003, 1;
        /// Where the entries come from: 0 for the queue's own ring.
        mem_rq_type: u8 = 0x004, 4;
        /// State of the queue.
        state: QueueState = 0x008, 4;
        /// Entries are completed with an error after the queue has failed.
        flush_in_error_en: bool = 0x00d, 1;
        /// The queue is connected to a send queue in the NIC.
        hairpin: bool = 0x00e, 1;
        /// Format of timestamps: 0 for the free-running clock.
        ts_format: u8 = 0x01a, 2;
        /// Number that completions contain.
        user_index: u32 = 0x028, 24;
        /// Completion queue.
        cqn: u32 = 0x048, 24;
        /// Set of counters.
        counter_set_id: u8 = 0x060, 8;
        /// Receive memory pool, if the entries come from one.
        rmpn: u32 = 0x088, 24;
        /// The ring.
        wq: Wq = 0x180, 1536;
    }
}

command! { CREATE_SQ -> CreateSqOut;
    /// CREATE_SQ: creates a send queue, in a umem or in pages whose addresses follow the mailbox.
    pub struct CreateSq[272] {
        /// Settings of the new queue.
        context: SqContext = 0x100, 1920;
    }
}

response! {
    /// The NIC's reply to [`CreateSq`].
    pub struct CreateSqOut[16] {
        /// Number of the new queue (SQN).
        sqn: u32 = 0x48, 24;
    }
}

command! { MODIFY_SQ -> ModifySqOut;
    /// MODIFY_SQ: changes the state of a send queue.
    pub struct ModifySq[272] {
        /// State in which the queue is.
        sq_state: QueueState = 0x40, 4;
        /// Number of the queue (SQN).
        sqn: u32 = 0x48, 24;
        /// Which settings besides the state change.
        modify_bitmask: u64 = 0x80, 64;
        /// The new state, and new settings.
        context: SqContext = 0x100, 1920;
    }
}

response! {
    /// The NIC's reply to [`ModifySq`].
    pub struct ModifySqOut[16] {}
}

command! { QUERY_SQ -> QuerySqOut;
    /// QUERY_SQ: queries the context of a send queue.
    pub struct QuerySq[16] {
        /// Number of the queue (SQN).
        sqn: u32 = 0x48, 24;
    }
}

response! {
    /// The NIC's reply to [`QuerySq`].
    pub struct QuerySqOut[272] {
        /// Settings and state.
        context: SqContext = 0x100, 1920;
    }
}

command! { DESTROY_SQ -> DestroySqOut;
    /// DESTROY_SQ: destroys a send queue.
    pub struct DestroySq[16] {
        /// Number of the queue (SQN).
        sqn: u32 = 0x48, 24;
    }
}

response! {
    /// The NIC's reply to [`DestroySq`].
    pub struct DestroySqOut[16] {}
}

command! { CREATE_RQ -> CreateRqOut;
    /// CREATE_RQ: creates a receive queue, in a umem or in pages whose addresses follow the mailbox.
    pub struct CreateRq[272] {
        /// Settings of the new queue.
        context: RqContext = 0x100, 1920;
    }
}

response! {
    /// The NIC's reply to [`CreateRq`].
    pub struct CreateRqOut[16] {
        /// Number of the new queue (RQN).
        rqn: u32 = 0x48, 24;
    }
}

command! { MODIFY_RQ -> ModifyRqOut;
    /// MODIFY_RQ: changes the state and settings of a receive queue.
    pub struct ModifyRq[272] {
        /// State in which the queue is.
        rq_state: QueueState = 0x40, 4;
        /// Number of the queue (RQN).
        rqn: u32 = 0x48, 24;
        /// Which settings besides the state change: [`ModifyRq::VSD`], [`ModifyRq::COUNTERS`].
        modify_bitmask: u64 = 0x80, 64;
        /// The new state, and new settings.
        context: RqContext = 0x100, 1920;
    }
}

impl ModifyRq {
    /// Bit of `modify_bitmask`: whether VLAN tags stay in the frames.
    pub const VSD: u64 = 1 << 1;
    /// Bit of `modify_bitmask`: the set of counters.
    pub const COUNTERS: u64 = 1 << 3;
}

response! {
    /// The NIC's reply to [`ModifyRq`].
    pub struct ModifyRqOut[16] {}
}

command! { QUERY_RQ -> QueryRqOut;
    /// QUERY_RQ: queries the context of a receive queue.
    pub struct QueryRq[16] {
        /// Number of the queue (RQN).
        rqn: u32 = 0x48, 24;
    }
}

response! {
    /// The NIC's reply to [`QueryRq`].
    pub struct QueryRqOut[272] {
        /// Settings and state.
        context: RqContext = 0x100, 1920;
    }
}

command! { DESTROY_RQ -> DestroyRqOut;
    /// DESTROY_RQ: destroys a receive queue.
    pub struct DestroyRq[16] {
        /// Number of the queue (RQN).
        rqn: u32 = 0x48, 24;
    }
}

response! {
    /// The NIC's reply to [`DestroyRq`].
    pub struct DestroyRqOut[16] {}
}
