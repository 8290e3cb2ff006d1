//! Event queues: the commands that create them, and their entries. On Linux, only the kernel uses them.

use super::layout::{command, layout, numbers, response};

numbers! {
    /// What an event-queue entry reports.
    pub struct EventType(u8) {
        /// A completion queue that was armed has received a completion.
        COMP = 0x00;
        /// A completion queue has failed.
        CQ_ERROR = 0x04;
        /// A work queue has failed.
        WQ_CATAS_ERROR = 0x05;
        /// A port has changed its state.
        PORT_CHANGE = 0x09;
        /// A command has completed.
        CMD = 0x0a;
        /// The peer sent a request that the queue pair does not support.
        WQ_INVAL_REQ_ERROR = 0x10;
        /// The peer accessed memory without permission.
        WQ_ACCESS_ERROR = 0x11;
        /// A failed queue pair has taken its last entry from a shared receive queue.
        SRQ_LAST_WQE = 0x13;
        /// A shared receive queue has fallen below its limit.
        SRQ_RQ_LIMIT = 0x14;
        /// A DC target has closed its last connection.
        DCT_DRAINED = 0x1c;
    }
}

layout! {
    /// The context of an event queue.
    pub struct EqContext[64] {
        /// Overrun ignore: the NIC does not check the consumer counter.
        oi: bool = 0x00e, 1;
        /// Offset of the first entry within its page, in units of 1/64 page.
        page_offset: u8 = 0x054, 6;
        /// log2 of the number of entries.
        log_eq_size: u8 = 0x063, 5;
        /// UAR page of the queue's doorbells.
        uar_page: u32 = 0x068, 24;
        /// MSI-X vector that the queue raises.
        intr: u16 = 0x0b4, 12;
        /// log2 of the page size, minus 12.
        log_page_size: u8 = 0x0c3, 5;
        /// Number of entries that the consumer has reported as consumed. Only set in query results.
        consumer_counter: u32 = 0x148, 24;
        /// Number of entries written by the NIC. Only set in query results.
        producer_counter: u32 = 0x168, 24;
    }
}

command! { CREATE_EQ -> CreateEqOut;
    /// CREATE_EQ: creates an event queue in pages whose addresses follow the mailbox.
    pub struct CreateEq[272] {
        /// Settings of the queue.
        context: EqContext = 0x080, 512;
        /// Bit mask of the [`EventType`]s below 64 that the queue receives.
        event_bitmask: u64 = 0x2c0, 64;
    }
}

response! {
    /// The NIC's reply to [`CreateEq`], with the new queue's number (EQN).
    pub struct CreateEqOut[16] {
        /// Event queue number (EQN) of the new queue.
        eq_number: u8 = 0x58, 8;
    }
}

command! { DESTROY_EQ -> DestroyEqOut;
    /// DESTROY_EQ: destroys an event queue.
    pub struct DestroyEq[16] {
        /// Event queue number (EQN).
        eq_number: u8 = 0x58, 8;
    }
}

response! {
    /// The NIC's reply to [`DestroyEq`]. It carries no data beyond its status.
    pub struct DestroyEqOut[16] {}
}

layout! {
    /// An entry of an event queue.
    pub struct Eqe[64] {
        /// What the entry reports.
        event_type: EventType = 0x008, 8;
        /// Details of the type; for a port, one of the constants of [`Eqe`].
        event_sub_type: u8 = 0x018, 8;
        /// The CQ that failed, or bit mask of the completed commands.
        first: u32 = 0x100, 32;
        /// The port that changed, in the upper four bits.
        port: u8 = 0x140, 8;
        /// Why a CQ failed.
        cq_syndrome: u8 = 0x158, 8;
        /// What the number in `number` is; see [`Eqe::OF_QP`] and [`Eqe::OF_SRQ`].
        queue_type: u8 = 0x1a0, 8;
        /// Number of the queue concerned: CQN, QPN, SRQN or DCTN.
        number: u32 = 0x1c0, 32;
        /// Bit 0 alternates with each pass over the ring.
        owner: u8 = 0x1f8, 8;
    }
}

impl Eqe {
    /// Value of `event_sub_type`: the port went down.
    pub const PORT_DOWN: u8 = 1;
    /// Value of `event_sub_type`: the port is active.
    pub const PORT_ACTIVE: u8 = 4;
    /// Value of `event_sub_type`: the LID of the port has changed.
    pub const PORT_LID: u8 = 6;
    /// Value of `queue_type`: a queue pair.
    pub const OF_QP: u8 = 0;
    /// Value of `queue_type`: a shared receive queue.
    pub const OF_SRQ: u8 = 3;
    /// Value of `cq_syndrome`: the CQ has overrun.
    pub const CQ_OVERRUN: u8 = 1;
}
