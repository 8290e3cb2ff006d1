//! Extended reliable connections (XRC): XRC domains and their shared receive queues.
//!
//! A request on such a connection names a shared receive queue of the connection's domain. Every connection of a domain
//! reaches all of its queues.

use super::layout::{command, layout, response};

command! { ALLOC_XRCD -> AllocXrcdOut;
    /// ALLOC_XRCD: allocates an XRC domain.
    pub struct AllocXrcd[16] {}
}

response! {
    /// Output of [`AllocXrcd`].
    pub struct AllocXrcdOut[16] {
        /// ID of the new domain.
        xrcd: u32 = 0x48, 24;
    }
}

command! { DEALLOC_XRCD -> DeallocXrcdOut;
    /// DEALLOC_XRCD: deallocates an XRC domain. Nothing may still use it.
    pub struct DeallocXrcd[16] {
        /// ID of the domain.
        xrcd: u32 = 0x48, 24;
    }
}

response! {
    /// Output of [`DeallocXrcd`].
    pub struct DeallocXrcdOut[16] {}
}

layout! {
    /// Context of a shared receive queue of an XRC domain. Each entry names its successor.
    pub struct XrcSrqContext[64] {
        /// log2 of the number of entries.
        log_xrc_srq_size: u8 = 0x004, 4;
        /// Entries are signed.
        wq_signature: bool = 0x020, 1;
        /// log2 of the size of an entry in bytes, minus 4.
        log_rq_stride: u8 = 0x025, 3;
        /// ID of the XRC domain.
        xrcd: u32 = 0x028, 24;
        /// The doorbell record is in a umem.
        dbr_umem_valid: bool = 0x047, 1;
        /// CQN of the completion queue for all of its messages.
        cqn: u32 = 0x048, 24;
        /// The umem that holds the doorbell record. No public document gives the position of this field.
        dbr_umem_id: u32 = 0x060, 32;
        /// Value carried in its completions.
        user_index: u32 = 0x088, 24;
        /// Protection domain, which also applies to the remote memory that requests name.
        pd: u32 = 0x0c8, 24;
        /// Limit watermark: an event is raised, once, when fewer entries than this are posted.
        lwm: u16 = 0x0e0, 16;
        /// Read back: number of posted entries.
        wqe_cnt: u16 = 0x0f0, 16;
        /// Offset of the doorbell record in its umem, in bytes.
        dbr_addr: u64 = 0x140, 64;
    }
}

command! { CREATE_XRC_SRQ -> CreateXrcSrqOut;
    /// CREATE_XRC_SRQ: creates a shared receive queue of an XRC domain in a umem.
    pub struct CreateXrcSrq[272] {
        /// Context of the queue.
        context: XrcSrqContext = 0x080, 512;
        /// Offset of the queue in its umem, in bytes.
        umem_offset: u64 = 0x280, 64;
        /// The umem that holds the queue.
        umem_id: u32 = 0x2c0, 32;
        /// The queue is in a umem.
        umem_valid: bool = 0x2e0, 1;
    }
}

response! {
    /// Output of [`CreateXrcSrq`].
    pub struct CreateXrcSrqOut[16] {
        /// SRQN of the new queue.
        xrc_srqn: u32 = 0x48, 24;
    }
}

command! { ARM_XRC_SRQ -> ArmXrcSrqOut;
    /// ARM_XRC_SRQ: sets the limit watermark.
    pub struct ArmXrcSrq[16] {
        /// Must be [`ArmXrcSrq::XRC_SRQ`].
        op_mod: u16 = 0x30, 16;
        /// SRQN of the queue.
        xrc_srqn: u32 = 0x48, 24;
        /// The new watermark.
        lwm: u16 = 0x70, 16;
    }
}

impl ArmXrcSrq {
    /// The SRQN is that of a queue of an XRC domain.
    pub const XRC_SRQ: u16 = 1;
}

response! {
    /// Output of [`ArmXrcSrq`].
    pub struct ArmXrcSrqOut[16] {}
}

command! { QUERY_XRC_SRQ -> QueryXrcSrqOut;
    /// QUERY_XRC_SRQ: queries the context of a queue.
    pub struct QueryXrcSrq[16] {
        /// SRQN of the queue.
        xrc_srqn: u32 = 0x48, 24;
    }
}

response! {
    /// Output of [`QueryXrcSrq`].
    pub struct QueryXrcSrqOut[272] {
        /// Context of the queue.
        context: XrcSrqContext = 0x080, 512;
    }
}

command! { DESTROY_XRC_SRQ -> DestroyXrcSrqOut;
    /// DESTROY_XRC_SRQ: destroys a queue.
    pub struct DestroyXrcSrq[16] {
        /// SRQN of the queue.
        xrc_srqn: u32 = 0x48, 24;
    }
}

response! {
    /// Output of [`DestroyXrcSrq`].
    pub struct DestroyXrcSrqOut[16] {}
}
