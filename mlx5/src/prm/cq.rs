//! Commands on completion queues, and the context that describes one.

use super::layout::{command, layout, numbers, response};

numbers! {
    /// Whether a completion queue works, and otherwise why not.
    pub struct CqStatus(u8) {
        /// The queue is operational.
        OK = 0x0;
        /// The consumer was too slow, and entries were lost.
        OVERFLOW = 0x9;
        /// The NIC could not write an entry.
        WRITE_FAILURE = 0xa;
    }
}

layout! {
    /// The context of a completion queue: its size, memory, doorbell record and event settings.
    pub struct CqContext[64] {
        /// Whether the queue works. Only set in query results.
        status: CqStatus = 0x000, 4;
        /// Notifies the owner of the address space.
        as_notify: bool = 0x004, 1;
        /// The initiator is a source DCT.
        initiator_src_dct: bool = 0x005, 1;
        /// The doorbell record is in a umem.
        dbr_umem_valid: bool = 0x006, 1;
        /// Size of a completion-queue entry: 0 is 64 bytes, 1 is 128.
        cqe_sz: u8 = 0x008, 3;
        /// Collapsed queue: every completion is written to slot 0.
        cc: bool = 0x00b, 1;
        /// Solicited completions raise their event without waiting for moderation.
        scqe_break_moderation_en: bool = 0x00d, 1;
        /// Overrun ignore: the NIC does not check the consumer counter.
        oi: bool = 0x00e, 1;
        /// What starts the event-moderation period, encoded.
        cq_period_mode: u8 = 0x00f, 2;
        /// The NIC may write several completions as one compressed entry.
        cqe_comp_en: bool = 0x011, 1;
        /// Format of compressed completions, encoded.
        mini_cqe_res_format: u8 = 0x012, 2;
        /// Whether the queue is armed to raise an event. Only set in query results.
        st: u8 = 0x014, 4;
        /// Memory layout of compressed completions, encoded.
        cqe_comp_layout: u8 = 0x019, 7;
        /// ID of the umem that holds the doorbell record.
        dbr_umem_id: u32 = 0x020, 32;
        /// Offset of the first entry within its page, in units of 1/64 page; zero with a umem.
        page_offset: u8 = 0x054, 6;
        /// log2 of the number of entries.
        log_cq_size: u8 = 0x063, 5;
        /// UAR page used for arming.
        uar_page: u32 = 0x068, 24;
        /// Event moderation: how long an event may be delayed, in microseconds.
        cq_period: u16 = 0x084, 12;
        /// Event moderation: number of completions after which an event is raised without further delay.
        cq_max_count: u16 = 0x090, 16;
        /// Event queue number (EQN) of the queue that receives the events.
        c_eqn: u8 = 0x0b8, 8;
        /// log2 of the page size, minus 12; ignored with a umem.
        log_page_size: u8 = 0x0c3, 5;
        /// Index of the completion that caused the last event. Only set in query results.
        last_notified_index: u32 = 0x108, 24;
        /// Index of the last solicited completion. Only set in query results.
        last_solicit_index: u32 = 0x128, 24;
        /// Number of completions that the consumer has reported as consumed. Only set in query results.
        consumer_counter: u32 = 0x148, 24;
        /// Number of completions written by the NIC. Only set in query results.
        producer_counter: u32 = 0x168, 24;
        /// Offset of the doorbell record in its umem, in bytes. Without a umem, its bus address.
        dbr_addr: u64 = 0x1c0, 64;
    }
}

command! { CREATE_CQ -> CreateCqOut;
    /// CREATE_CQ: creates a completion queue, in a umem or in pages whose addresses follow the mailbox.
    pub struct CreateCq[272] {
        /// Settings of the queue.
        context: CqContext = 0x80, 512;
        /// Offset of the queue in the umem, in bytes.
        umem_offset: u64 = 0x280, 64;
        /// ID of the umem that holds the queue.
        umem_id: u32 = 0x2c0, 32;
        /// The queue is in a umem, so no page addresses follow the mailbox.
        umem_valid: bool = 0x2e0, 1;
    }
}

response! {
    /// The NIC's reply to [`CreateCq`], with the new queue's number (CQN).
    pub struct CreateCqOut[16] {
        /// Completion queue number (CQN) of the new queue.
        cqn: u32 = 0x48, 24;
    }
}

command! { MODIFY_CQ -> ModifyCqOut;
    /// MODIFY_CQ: modifies a completion queue, or moves it to memory of another size.
    ///
    /// The NIC writes [`RESIZE_CQ`](crate::CqeOpcode::RESIZE_CQ) as the last entry of the old queue and continues in
    /// the new one, at the index after that entry. Software must copy the unconsumed entries that precede it, shifted
    /// by one slot.
    pub struct ModifyCq[272] {
        /// 0 modifies the fields in `field_select`, [`ModifyCq::RESIZE`] the size.
        op_mod: u16 = 0x30, 16;
        /// Completion queue number (CQN).
        cqn: u32 = 0x48, 24;
        /// Bit mask of the fields to modify: [`ModifyCq::PERIOD`], [`ModifyCq::COUNT`]. For the size, see
        /// [`ModifyCq::LOG_SIZE`].
        field_select: u32 = 0x60, 32;
        /// New values of the selected fields.
        context: CqContext = 0x80, 512;
        /// Offset of the new queue in the umem, in bytes.
        umem_offset: u64 = 0x280, 64;
        /// ID of the umem that holds the new queue.
        umem_id: u32 = 0x2c0, 32;
        /// The new queue is in a umem, so no page addresses follow the mailbox.
        umem_valid: bool = 0x2e0, 1;
    }
}

impl ModifyCq {
    /// Bit of `field_select`: the period of event moderation.
    pub const PERIOD: u32 = 1;
    /// Bit of `field_select`: the number of completions of event moderation.
    pub const COUNT: u32 = 1 << 1;
    /// Bit of `field_select`: what starts the period of event moderation.
    pub const PERIOD_MODE: u32 = 1 << 4;
    /// Value of `op_mod` that changes the number of entries.
    pub const RESIZE: u16 = 1;
    /// Bit of `field_select` that selects the number of entries.
    pub const LOG_SIZE: u32 = 1;
}

response! {
    /// The NIC's reply to [`ModifyCq`]. It carries no data beyond its status.
    pub struct ModifyCqOut[16] {}
}

command! { QUERY_CQ -> QueryCqOut;
    /// QUERY_CQ: queries the context of a completion queue.
    pub struct QueryCq[16] {
        /// Completion queue number (CQN).
        cqn: u32 = 0x48, 24;
    }
}

response! {
    /// The NIC's reply to [`QueryCq`], with the queue's settings and state.
    pub struct QueryCqOut[272] {
        /// Settings and state of the queue.
        context: CqContext = 0x80, 512;
    }
}

command! { DESTROY_CQ -> DestroyCqOut;
    /// DESTROY_CQ: destroys a completion queue. No queue pair may still use it.
    pub struct DestroyCq[16] {
        /// Completion queue number (CQN).
        cqn: u32 = 0x48, 24;
    }
}

response! {
    /// The NIC's reply to [`DestroyCq`]. It carries no data beyond its status.
    pub struct DestroyCqOut[16] {}
}
