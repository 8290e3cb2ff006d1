//! Extended reliable connections (XRC): their domains, and the shared receive queues of these.
//!
//! A request on such a connection names a shared receive queue of the connection's domain. Any connection of the domain reaches
//! all of its queues.

use super::layout::{command, layout, response};

command! { ALLOC_XRCD -> AllocXrcdOut;
    /// ALLOC_XRCD: makes an XRC domain.
    pub struct AllocXrcd[16] {}
}

response! {
    /// Answer to [`AllocXrcd`].
    pub struct AllocXrcdOut[16] {
        /// Number of the domain.
        xrcd: u32 = 0x48, 24;
    }
}

command! { DEALLOC_XRCD -> DeallocXrcdOut;
    /// DEALLOC_XRCD: destroys an XRC domain, which nothing may use any more.
    pub struct DeallocXrcd[16] {
        /// Number of the domain.
        xrcd: u32 = 0x48, 24;
    }
}

response! {
    /// Answer to [`DeallocXrcd`].
    pub struct DeallocXrcdOut[16] {}
}

layout! {
    /// Context of a shared receive queue of an XRC domain. Each entry names its successor.
    pub struct XrcSrqContext[64] {
        /// log2 of the number of entries.
        log_xrc_srq_size: u8 = 0x004, 4;
        /// Entries are signed.
        wq_signature: bool = 0x020, 1;
        /// log2 of the bytes of an entry, less 4.
        log_rq_stride: u8 = 0x025, 3;
        /// XRC domain.
        xrcd: u32 = 0x028, 24;
        /// The doorbell record lies in a umem.
        dbr_umem_valid: bool = 0x047, 1;
        /// Completion queue of all its messages.
        cqn: u32 = 0x048, 24;
        /// The umem that holds the doorbell record. No public document has the place of this field.
        dbr_umem_id: u32 = 0x060, 32;
        /// Value that its completions carry.
        user_index: u32 = 0x088, 24;
        /// Protection domain, also of the remote memory that its requests name.
        pd: u32 = 0x0c8, 24;
        /// Limit watermark: fewer posted entries than this raise an event, once.
        lwm: u16 = 0x0e0, 16;
        /// Read back: entries that are posted.
        wqe_cnt: u16 = 0x0f0, 16;
        /// Offset of the doorbell record in its umem, bytes.
        dbr_addr: u64 = 0x140, 64;
    }
}

command! { CREATE_XRC_SRQ -> CreateXrcSrqOut;
    /// CREATE_XRC_SRQ: makes a shared receive queue of an XRC domain in a umem.
    pub struct CreateXrcSrq[272] {
        /// The queue.
        context: XrcSrqContext = 0x080, 512;
        /// Offset of the queue in its umem, bytes.
        umem_offset: u64 = 0x280, 64;
        /// The umem that holds the queue.
        umem_id: u32 = 0x2c0, 32;
        /// The queue lies in a umem.
        umem_valid: bool = 0x2e0, 1;
    }
}

response! {
    /// Answer to [`CreateXrcSrq`].
    pub struct CreateXrcSrqOut[16] {
        /// Number of the queue.
        xrc_srqn: u32 = 0x48, 24;
    }
}

command! { ARM_XRC_SRQ -> ArmXrcSrqOut;
    /// ARM_XRC_SRQ: sets the limit watermark.
    pub struct ArmXrcSrq[16] {
        /// [`ArmXrcSrq::XRC_SRQ`].
        op_mod: u16 = 0x30, 16;
        /// Number of the queue.
        xrc_srqn: u32 = 0x48, 24;
        /// The watermark.
        lwm: u16 = 0x70, 16;
    }
}

impl ArmXrcSrq {
    /// The number is of a queue of an XRC domain.
    pub const XRC_SRQ: u16 = 1;
}

response! {
    /// Answer to [`ArmXrcSrq`].
    pub struct ArmXrcSrqOut[16] {}
}

command! { QUERY_XRC_SRQ -> QueryXrcSrqOut;
    /// QUERY_XRC_SRQ: asks for a queue's context.
    pub struct QueryXrcSrq[16] {
        /// Number of the queue.
        xrc_srqn: u32 = 0x48, 24;
    }
}

response! {
    /// Answer to [`QueryXrcSrq`].
    pub struct QueryXrcSrqOut[272] {
        /// The queue.
        context: XrcSrqContext = 0x080, 512;
    }
}

command! { DESTROY_XRC_SRQ -> DestroyXrcSrqOut;
    /// DESTROY_XRC_SRQ: destroys a queue.
    pub struct DestroyXrcSrq[16] {
        /// Number of the queue.
        xrc_srqn: u32 = 0x48, 24;
    }
}

response! {
    /// Answer to [`DestroyXrcSrq`].
    pub struct DestroyXrcSrqOut[16] {}
}
