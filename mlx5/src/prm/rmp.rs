//! Receive memory pools (RMP), which the verbs API calls shared receive queues.

use super::layout::{command, layout, numbers, response};

numbers! {
    /// How the NIC finds the next entry of a work queue.
    pub struct WqType(u8) {
        /// Each entry contains the index of the next.
        LINKED_LIST = 0;
        /// Entries are used in the order of their indices, around the ring.
        CYCLIC = 1;
    }
}

numbers! {
    /// Whether a receive memory pool is operational.
    pub struct RmpState(u8) {
        /// Operational: the pool serves receives.
        RDY = 1;
        /// Failed: the pool serves no more receives.
        ERR = 3;
    }
}

layout! {
    /// The work queue of a receive memory pool: its size, memory and doorbell record.
    pub struct Wq[192] {
        /// How the NIC finds the next entry.
        wq_type: WqType = 0x000, 4;
        /// Entries carry an XOR signature that the NIC checks.
        wq_signature: bool = 0x004, 1;
        /// How the end of a received frame is padded in memory: 0 for not at all.
        end_padding_mode: u8 = 0x005, 2;
        /// Offset of the queue within its first page, in units of 1/64 page; zero with a umem.
        page_offset: u8 = 0x02b, 5;
        /// Limit watermark: an event is raised, once, when fewer entries than this are posted.
        lwm: u16 = 0x030, 16;
        /// Protection domain of the queue.
        pd: u32 = 0x048, 24;
        /// UAR page through which the doorbells of a send queue are rung.
        uar_page: u32 = 0x068, 24;
        /// Offset of the doorbell record in its umem, in bytes. Without a umem, its bus address.
        dbr_addr: u64 = 0x080, 64;
        /// Number of entries that the NIC has fetched. Only set in query results.
        hw_counter: u32 = 0x0c0, 32;
        /// Number of entries that the doorbell record has announced. Only set in query results.
        sw_counter: u32 = 0x0e0, 32;
        /// log2 of the size of an entry, in bytes.
        log_wq_stride: u8 = 0x10c, 4;
        /// log2 of the page size, minus 12; ignored with a umem.
        log_wq_pg_sz: u8 = 0x113, 5;
        /// log2 of the number of entries.
        log_wq_sz: u8 = 0x11b, 5;
        /// The doorbell record is in a umem.
        dbr_umem_valid: bool = 0x120, 1;
        /// The queue is in a umem.
        wq_umem_valid: bool = 0x121, 1;
        /// ID of the umem that holds the doorbell record.
        dbr_umem_id: u32 = 0x140, 32;
        /// ID of the umem that holds the queue, at offset 0.
        wq_umem_id: u32 = 0x160, 32;
    }
}

layout! {
    /// The context of a receive memory pool: its state and its work queue.
    pub struct RmpContext[240] {
        /// Whether the pool is operational.
        state: RmpState = 0x008, 4;
        /// Entries of a cyclic queue omit the leading segment that links to the next entry.
        basic_cyclic_rcv_wqe: bool = 0x020, 1;
        /// The queue from which receives are taken.
        wq: Wq = 0x180, 1536;
    }
}

command! { CREATE_RMP -> CreateRmpOut;
    /// CREATE_RMP: creates a receive memory pool, in a umem or in pages whose addresses follow the mailbox.
    pub struct CreateRmp[272] {
        /// Settings of the new pool.
        context: RmpContext = 0x100, 1920;
    }
}

response! {
    /// The NIC's reply to [`CreateRmp`], with the new pool's number (RMPN).
    pub struct CreateRmpOut[16] {
        /// Receive memory pool number (RMPN) of the new pool.
        rmpn: u32 = 0x48, 24;
    }
}

command! { MODIFY_RMP -> ModifyRmpOut;
    /// MODIFY_RMP: sets the limit watermark of a receive memory pool.
    pub struct ModifyRmp[272] {
        /// The pool's current state, which the NIC checks.
        rmp_state: RmpState = 0x40, 4;
        /// Receive memory pool number (RMPN).
        rmpn: u32 = 0x48, 24;
        /// Whether to set the limit watermark, [`Wq::lwm`].
        lwm: bool = 0xbf, 1;
        /// Context that holds the new watermark.
        context: RmpContext = 0x100, 1920;
    }
}

response! {
    /// The NIC's reply to [`ModifyRmp`]. It carries no data beyond its status.
    pub struct ModifyRmpOut[16] {}
}

command! { QUERY_RMP -> QueryRmpOut;
    /// QUERY_RMP: queries the context of a receive memory pool.
    pub struct QueryRmp[16] {
        /// Receive memory pool number (RMPN).
        rmpn: u32 = 0x48, 24;
    }
}

response! {
    /// The NIC's reply to [`QueryRmp`], with the pool's settings and state.
    pub struct QueryRmpOut[272] {
        /// Settings and state of the pool.
        context: RmpContext = 0x100, 1920;
    }
}

command! { DESTROY_RMP -> DestroyRmpOut;
    /// DESTROY_RMP: destroys a receive memory pool. No queue pair may still use it.
    pub struct DestroyRmp[16] {
        /// Receive memory pool number (RMPN).
        rmpn: u32 = 0x48, 24;
    }
}

response! {
    /// The NIC's reply to [`DestroyRmp`]. It carries no data beyond its status.
    pub struct DestroyRmpOut[16] {}
}
