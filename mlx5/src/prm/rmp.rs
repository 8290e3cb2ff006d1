//! Receive memory pools, which verbs call shared receive queues.

use super::layout::{command, layout, numbers, response};

numbers! {
    /// In which order the entries of a work queue are used.
    pub struct WqType(u8) {
        /// Each entry names its successor.
        LINKED_LIST = 0;
        /// In the order of their indices.
        CYCLIC = 1;
    }
}

numbers! {
    /// State of a receive memory pool.
    pub struct RmpState(u8) {
        /// Operational.
        RDY = 1;
        /// Failed.
        ERR = 3;
    }
}

layout! {
    /// A work queue.
    pub struct Wq[192] {
        /// Order of the entries.
        wq_type: WqType = 0x000, 4;
        /// Entries are signed.
        wq_signature: bool = 0x004, 1;
        /// Limit watermark: an event is raised, once, when fewer entries than this are posted.
        lwm: u16 = 0x030, 16;
        /// Protection domain.
        pd: u32 = 0x048, 24;
        /// Offset of the doorbell record in its umem, in bytes.
        dbr_addr: u64 = 0x080, 64;
        /// Read back: number of entries that the NIC has fetched.
        hw_counter: u32 = 0x0c0, 32;
        /// Read back: number of entries that the NIC has been told of.
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
        /// The umem that holds the doorbell record.
        dbr_umem_id: u32 = 0x140, 32;
        /// The umem that holds the queue, at offset 0.
        wq_umem_id: u32 = 0x160, 32;
    }
}

layout! {
    /// Receive memory pool context.
    pub struct RmpContext[240] {
        /// State of the pool.
        state: RmpState = 0x008, 4;
        /// Entries of a cyclic queue lack the segment that names a successor.
        basic_cyclic_rcv_wqe: bool = 0x020, 1;
        /// The work queue of the pool.
        wq: Wq = 0x180, 1536;
    }
}

command! { CREATE_RMP -> CreateRmpOut;
    /// CREATE_RMP: creates a receive memory pool in a umem.
    pub struct CreateRmp[272] {
        /// Context of the pool.
        context: RmpContext = 0x100, 1920;
    }
}

response! {
    /// Output of [`CreateRmp`].
    pub struct CreateRmpOut[16] {
        /// RMPN of the new pool.
        rmpn: u32 = 0x48, 24;
    }
}

command! { MODIFY_RMP -> ModifyRmpOut;
    /// MODIFY_RMP: modifies the limit watermark.
    pub struct ModifyRmp[272] {
        /// The current state of the pool.
        rmp_state: RmpState = 0x40, 4;
        /// RMPN of the pool.
        rmpn: u32 = 0x48, 24;
        /// Whether to modify the watermark.
        lwm: bool = 0xbf, 1;
        /// Context with the new values.
        context: RmpContext = 0x100, 1920;
    }
}

response! {
    /// Output of [`ModifyRmp`].
    pub struct ModifyRmpOut[16] {}
}

command! { QUERY_RMP -> QueryRmpOut;
    /// QUERY_RMP: queries the context of a pool.
    pub struct QueryRmp[16] {
        /// RMPN of the pool.
        rmpn: u32 = 0x48, 24;
    }
}

response! {
    /// Output of [`QueryRmp`].
    pub struct QueryRmpOut[272] {
        /// Context of the pool.
        context: RmpContext = 0x100, 1920;
    }
}

command! { DESTROY_RMP -> DestroyRmpOut;
    /// DESTROY_RMP: destroys a pool. No queue pair may still use it.
    pub struct DestroyRmp[16] {
        /// RMPN of the pool.
        rmpn: u32 = 0x48, 24;
    }
}

response! {
    /// Output of [`DestroyRmp`].
    pub struct DestroyRmpOut[16] {}
}
