//! Queue pairs: the commands. The structures that they carry are [`QpContext`] and [`AddressPath`].
//!
//! A reliable connection comes up by [`CreateQp`], [`Rst2Init`], [`Init2Rtr`], [`Rtr2Rts`], each carrying the context
//! fields that it sets.

mod context;
mod path;

pub use context::{AtomicMode, Mtu, PmState, QpContext, QpState, RqType, ServiceType};
pub use path::AddressPath;

/// [`QpContext::send_dbr_mode`]: doorbells of the send queue have a doorbell record.
pub const SEND_DBR: u8 = 0;
/// [`QpContext::send_dbr_mode`]: they have none, and a register of their own:
/// [`NO_DBR`](crate::doorbell::uar::NO_DBR).
pub const SEND_NO_DBR: u8 = 1;

use super::layout::{command, response};

/// Bits of the `opt_param_mask`: which *optional* fields of a transition count. Required ones always do.
pub mod opt_param {
    /// Remote read enable.
    pub const RRE: u32 = 1 << 1;
    /// Remote atomic enable.
    pub const RAE: u32 = 1 << 2;
    /// Remote write enable.
    pub const RWE: u32 = 1 << 3;
    /// Partition key index.
    pub const PKEY_INDEX: u32 = 1 << 4;
    /// Queue key.
    pub const Q_KEY: u32 = 1 << 5;
    /// Least RNR timer.
    pub const RNR_TIMEOUT: u32 = 1 << 6;
    /// Primary address path.
    pub const PRIMARY_ADDR_PATH: u32 = 1 << 7;
    /// Outstanding reads and atomics as initiator.
    pub const SRA_MAX: u32 = 1 << 8;
    /// Outstanding reads and atomics as target.
    pub const RRA_MAX: u32 = 1 << 9;
    /// Path migration state.
    pub const PM_STATE: u32 = 1 << 10;
    /// Retries without acknowledgement.
    pub const RETRY_COUNT: u32 = 1 << 12;
    /// Retries at a receiver that is not ready.
    pub const RNR_RETRY: u32 = 1 << 13;
    /// Acknowledgement timeout.
    pub const ACK_TIMEOUT: u32 = 1 << 14;
    /// Port of a bond that sends.
    pub const LAG_TX_AFF: u32 = 1 << 15;
    /// Port of the primary path.
    pub const PRI_PORT: u32 = 1 << 16;
    /// IP traffic class.
    pub const DSCP: u32 = 1 << 17;
    /// Shared receive queue.
    pub const SRQN: u32 = 1 << 18;
    /// Local address index.
    pub const SGID_INDEX: u32 = 1 << 23;
    /// Counter set.
    pub const COUNTER_SET: u32 = 1 << 25;
}

command! { CREATE_QP -> CreateQpOut;
    /// CREATE_QP: makes a queue pair in a umem, or in pages. The addresses of the pages follow the mailbox.
    pub struct CreateQp[272] {
        /// Optional fields present; see [`opt_param`].
        opt_param_mask: u32 = 0x80, 32;
        /// Enhanced connection establishment options.
        ece: u32 = 0xa0, 32;
        /// The queue pair.
        context: QpContext = 0xc0, 1856;
        /// Where in the umem the queues start, bytes.
        wq_umem_offset: u64 = 0x800, 64;
        /// The umem that holds the queues.
        wq_umem_id: u32 = 0x840, 32;
        /// The queues lie in a umem.
        wq_umem_valid: bool = 0x860, 1;
    }
}

response! {
    /// Answer to [`CreateQp`].
    pub struct CreateQpOut[16] {
        /// Number of the queue pair.
        qpn: u32 = 0x48, 24;
        /// Enhanced connection establishment options in force.
        ece: u32 = 0x60, 32;
    }
}

/// A state transition that carries a context: all have one table.
macro_rules! transition {
    ($opcode:ident, $(#[$doc:meta])* $name:ident) => {
        command! { $opcode -> ModifyQpOut;
            $(#[$doc])*
            pub struct $name[272] {
                /// Number of the queue pair.
                qpn: u32 = 0x48, 24;
                /// Optional fields that count; see [`opt_param`].
                opt_param_mask: u32 = 0x80, 32;
                /// Enhanced connection establishment options.
                ece: u32 = 0xa0, 32;
                /// The fields to set.
                context: QpContext = 0xc0, 1856;
            }
        }
    };
}

transition! { RST2INIT_QP,
    /// RST2INIT_QP: port, access rights.
    Rst2Init
}
transition! { INIT2RTR_QP,
    /// INIT2RTR_QP: the peer and the path to it, MTU, receive sequence.
    Init2Rtr
}
transition! { RTR2RTS_QP,
    /// RTR2RTS_QP: timeouts, retries, send sequence.
    Rtr2Rts
}
transition! { SQERR2RTS_QP,
    /// SQERR2RTS_QP: back to work after an error of the send queue.
    Sqerr2Rts
}
transition! { SQD_RTS_QP,
    /// SQD_RTS_QP: back to work after draining the send queue.
    Sqd2Rts
}

/// A change without change of state: the longer mailbox. The context extension behind `opt_param_mask_95_32` is not
/// modelled, so `qpc_ext` must be false.
macro_rules! change {
    ($opcode:ident, $(#[$doc:meta])* $name:ident) => {
        command! { $opcode -> ModifyQpOut;
            $(#[$doc])*
            pub struct $name[464] {
                /// The context's extension is present.
                qpc_ext: bool = 0x40, 1;
                /// Number of the queue pair.
                qpn: u32 = 0x48, 24;
                /// Optional fields that count; see [`opt_param`].
                opt_param_mask: u32 = 0x80, 32;
                /// Enhanced connection establishment options.
                ece: u32 = 0xa0, 32;
                /// The fields to set.
                context: QpContext = 0xc0, 1856;
                /// Optional fields of the extension that count.
                opt_param_mask_95_32: u64 = 0x840, 64;
            }
        }
    };
}

change! { INIT2INIT_QP,
    /// INIT2INIT_QP: changes a queue pair that is in INIT.
    Init2Init
}
change! { RTS2RTS_QP,
    /// RTS2RTS_QP: changes a queue pair that is in RTS.
    Rts2Rts
}

command! { MODIFY_2ERR_QP -> ModifyQpOut;
    /// 2ERR_QP: stops a queue pair; what is posted is flushed.
    pub struct ToErr[16] {
        /// Number of the queue pair.
        qpn: u32 = 0x48, 24;
    }
}

command! { MODIFY_2RST_QP -> ModifyQpOut;
    /// 2RST_QP: resets a queue pair; what is posted is forgotten.
    pub struct ToRst[16] {
        /// Number of the queue pair.
        qpn: u32 = 0x48, 24;
    }
}

response! {
    /// Answer to every state transition.
    pub struct ModifyQpOut[16] {
        /// Enhanced connection establishment options in force.
        ece: u32 = 0x60, 32;
    }
}

command! { QUERY_QP -> QueryQpOut;
    /// QUERY_QP: asks for a queue pair's context.
    pub struct QueryQp[16] {
        /// Number of the queue pair.
        qpn: u32 = 0x48, 24;
    }
}

response! {
    /// Answer to [`QueryQp`].
    pub struct QueryQpOut[272] {
        /// Enhanced connection establishment options in force.
        ece: u32 = 0x60, 32;
        /// Optional fields in force.
        opt_param_mask: u32 = 0x80, 32;
        /// The queue pair.
        context: QpContext = 0xc0, 1856;
    }
}

command! { DESTROY_QP -> DestroyQpOut;
    /// DESTROY_QP: destroys a queue pair.
    pub struct DestroyQp[16] {
        /// Number of the queue pair.
        qpn: u32 = 0x48, 24;
    }
}

response! {
    /// Answer to [`DestroyQp`].
    pub struct DestroyQpOut[16] {}
}
