//! Receive memory pools: what verbs call shared receive queues.

use super::layout::{command, layout, numbers, response};

numbers! {
    /// The order in which a work queue's entries are used.
    pub struct WqType(u8) {
        /// Each entry names its successor.
        LINKED_LIST = 0;
        /// In order of their indices.
        CYCLIC = 1;
    }
}

numbers! {
    /// The state of a receive memory pool.
    pub struct RmpState(u8) {
        /// It works.
        RDY = 1;
        /// It has failed.
        ERR = 3;
    }
}

layout! {
    /// A work queue.
    pub struct Wq[192] {
        /// The order of the entries.
        wq_type: WqType = 0x000, 4;
        /// Entries are signed.
        wq_signature: bool = 0x004, 1;
        /// Limit watermark: fewer posted entries than this raise an event, once.
        lwm: u16 = 0x030, 16;
        /// Protection domain.
        pd: u32 = 0x048, 24;
        /// Offset of the doorbell record in its umem, bytes.
        dbr_addr: u64 = 0x080, 64;
        /// Read back: entries that the NIC has taken.
        hw_counter: u32 = 0x0c0, 32;
        /// Read back: entries that the NIC knows of.
        sw_counter: u32 = 0x0e0, 32;
        /// log2 of the bytes of an entry.
        log_wq_stride: u8 = 0x10c, 4;
        /// log2 of the page size, less 12; ignored with a umem.
        log_wq_pg_sz: u8 = 0x113, 5;
        /// log2 of the number of entries.
        log_wq_sz: u8 = 0x11b, 5;
        /// The doorbell record lies in a umem.
        dbr_umem_valid: bool = 0x120, 1;
        /// The queue lies in a umem.
        wq_umem_valid: bool = 0x121, 1;
        /// The umem that holds the doorbell record.
        dbr_umem_id: u32 = 0x140, 32;
        /// The umem that holds the queue. It starts with the umem.
        wq_umem_id: u32 = 0x160, 32;
    }
}

layout! {
    /// Receive memory pool context.
    pub struct RmpContext[240] {
        /// Whether it works.
        state: RmpState = 0x008, 4;
        /// The entries of a cyclic queue do not begin with the segment that names a successor.
        basic_cyclic_rcv_wqe: bool = 0x020, 1;
        /// The queue.
        wq: Wq = 0x180, 1536;
    }
}

command! { CREATE_RMP -> CreateRmpOut;
    /// CREATE_RMP: makes a receive memory pool in a umem.
    pub struct CreateRmp[272] {
        /// The pool.
        context: RmpContext = 0x100, 1920;
    }
}

response! {
    /// Answer to [`CreateRmp`].
    pub struct CreateRmpOut[16] {
        /// Number of the pool.
        rmpn: u32 = 0x48, 24;
    }
}

command! { MODIFY_RMP -> ModifyRmpOut;
    /// MODIFY_RMP: changes the limit watermark.
    pub struct ModifyRmp[272] {
        /// The state that the pool has.
        rmp_state: RmpState = 0x40, 4;
        /// Number of the pool.
        rmpn: u32 = 0x48, 24;
        /// The watermark is to change.
        lwm: bool = 0xbf, 1;
        /// The pool.
        context: RmpContext = 0x100, 1920;
    }
}

response! {
    /// Answer to [`ModifyRmp`].
    pub struct ModifyRmpOut[16] {}
}

command! { QUERY_RMP -> QueryRmpOut;
    /// QUERY_RMP: asks for a pool's context.
    pub struct QueryRmp[16] {
        /// Number of the pool.
        rmpn: u32 = 0x48, 24;
    }
}

response! {
    /// Answer to [`QueryRmp`].
    pub struct QueryRmpOut[272] {
        /// The pool.
        context: RmpContext = 0x100, 1920;
    }
}

command! { DESTROY_RMP -> DestroyRmpOut;
    /// DESTROY_RMP: destroys a pool, which no queue pair may use any more.
    pub struct DestroyRmp[16] {
        /// Number of the pool.
        rmpn: u32 = 0x48, 24;
    }
}

response! {
    /// Answer to [`DestroyRmp`].
    pub struct DestroyRmpOut[16] {}
}
