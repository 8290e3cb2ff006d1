//! Commands for extended reliable connections (XRC): XRC domains and their shared receive queues.
//!
//! A request on such a connection names a shared receive queue of the connection's domain. Every connection of a domain
//! can reach all of the domain's queues.

use super::layout::{command, layout, response};

command! { ALLOC_XRCD -> AllocXrcdOut;
    /// ALLOC_XRCD: allocates an XRC domain, which groups connections with the shared receive queues that they can
    /// reach.
    pub struct AllocXrcd[16] {}
}

response! {
    /// The NIC's reply to [`AllocXrcd`], with the ID of the new XRC domain.
    pub struct AllocXrcdOut[16] {
        /// ID of the new XRC domain.
        xrcd: u32 = 0x48, 24;
    }
}

command! { DEALLOC_XRCD -> DeallocXrcdOut;
    /// DEALLOC_XRCD: deallocates an XRC domain, which nothing may still use.
    pub struct DeallocXrcd[16] {
        /// ID of the XRC domain.
        xrcd: u32 = 0x48, 24;
    }
}

response! {
    /// The NIC's reply to [`DeallocXrcd`]. It carries no data beyond its status.
    pub struct DeallocXrcdOut[16] {}
}

layout! {
    /// The context of a shared receive queue in an XRC domain. Its entries form a linked list.
    pub struct XrcSrqContext[64] {
        /// log2 of the number of entries.
        log_xrc_srq_size: u8 = 0x004, 4;
        /// Entries carry an XOR signature that the NIC checks.
        wq_signature: bool = 0x020, 1;
        /// log2 of the size of an entry in bytes, minus 4.
        log_rq_stride: u8 = 0x025, 3;
        /// ID of the XRC domain that the queue belongs to.
        xrcd: u32 = 0x028, 24;
        /// Offset of the queue within its first page, in units of 1/64 page; zero with a umem.
        page_offset: u8 = 0x040, 6;
        /// The doorbell record is in a umem.
        dbr_umem_valid: bool = 0x047, 1;
        /// CQN of the queue for completions of the received messages.
        cqn: u32 = 0x048, 24;
        /// ID of the umem that holds the doorbell record. No public document gives the position of this field.
        dbr_umem_id: u32 = 0x060, 32;
        /// log2 of the page size, minus 12; ignored with a umem.
        log_page_size: u8 = 0x082, 6;
        /// ID chosen by software, carried in the queue's completions.
        user_index: u32 = 0x088, 24;
        /// Protection domain of the queue, which also applies to the memory that remote requests access.
        pd: u32 = 0x0c8, 24;
        /// Limit watermark: an event is raised, once, when fewer entries than this are posted.
        lwm: u16 = 0x0e0, 16;
        /// Number of posted entries. Only set in query results.
        wqe_cnt: u16 = 0x0f0, 16;
        /// Offset of the doorbell record in its umem, in bytes. Without a umem, its bus address.
        dbr_addr: u64 = 0x140, 64;
    }
}

command! { CREATE_XRC_SRQ -> CreateXrcSrqOut;
    /// CREATE_XRC_SRQ: creates a shared receive queue in an XRC domain, in a umem or in pages whose addresses follow the
    /// mailbox.
    pub struct CreateXrcSrq[272] {
        /// Settings of the new queue.
        context: XrcSrqContext = 0x080, 512;
        /// Offset of the queue in its umem, in bytes.
        umem_offset: u64 = 0x280, 64;
        /// ID of the umem that holds the queue.
        umem_id: u32 = 0x2c0, 32;
        /// The queue is in a umem.
        umem_valid: bool = 0x2e0, 1;
    }
}

response! {
    /// The NIC's reply to [`CreateXrcSrq`], with the new queue's number (SRQN).
    pub struct CreateXrcSrqOut[16] {
        /// Shared receive queue number (SRQN) of the new queue.
        xrc_srqn: u32 = 0x48, 24;
    }
}

command! { ARM_XRC_SRQ -> ArmXrcSrqOut;
    /// ARM_XRC_SRQ: sets the limit watermark of a shared receive queue in an XRC domain.
    pub struct ArmXrcSrq[16] {
        /// Must be [`ArmXrcSrq::XRC_SRQ`].
        op_mod: u16 = 0x30, 16;
        /// Shared receive queue number (SRQN).
        xrc_srqn: u32 = 0x48, 24;
        /// The new limit: an event is raised, once, when fewer entries than this are posted.
        lwm: u16 = 0x70, 16;
    }
}

impl ArmXrcSrq {
    /// Value of [`ArmXrcSrq::op_mod`]: the queue belongs to an XRC domain.
    pub const XRC_SRQ: u16 = 1;
}

response! {
    /// The NIC's reply to [`ArmXrcSrq`]. It carries no data beyond its status.
    pub struct ArmXrcSrqOut[16] {}
}

command! { QUERY_XRC_SRQ -> QueryXrcSrqOut;
    /// QUERY_XRC_SRQ: queries the context of a shared receive queue in an XRC domain.
    pub struct QueryXrcSrq[16] {
        /// Shared receive queue number (SRQN).
        xrc_srqn: u32 = 0x48, 24;
    }
}

response! {
    /// The NIC's reply to [`QueryXrcSrq`], with the queue's settings and state.
    pub struct QueryXrcSrqOut[272] {
        /// Settings and state of the queue.
        context: XrcSrqContext = 0x080, 512;
    }
}

command! { DESTROY_XRC_SRQ -> DestroyXrcSrqOut;
    /// DESTROY_XRC_SRQ: destroys a shared receive queue in an XRC domain.
    pub struct DestroyXrcSrq[16] {
        /// Shared receive queue number (SRQN).
        xrc_srqn: u32 = 0x48, 24;
    }
}

response! {
    /// The NIC's reply to [`DestroyXrcSrq`]. It carries no data beyond its status.
    pub struct DestroyXrcSrqOut[16] {}
}
