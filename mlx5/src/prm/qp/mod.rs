//! Queue pairs: the commands. They carry the structures [`QpContext`] and [`AddressPath`].
//!
//! A reliable connection is brought up by [`CreateQp`], [`Rst2Init`], [`Init2Rtr`] and [`Rtr2Rts`], each of which
//! carries the context fields that it sets.

mod context;
mod path;

pub use context::{AtomicMode, Mtu, PmState, QpContext, QpState, RqType, ServiceType};
pub use path::AddressPath;

/// [`QpContext::send_dbr_mode`]: send doorbells use a doorbell record.
pub const SEND_DBR: u8 = 0;
/// [`QpContext::send_dbr_mode`]: send doorbells use no record, but a separate register:
/// [`NO_DBR`](crate::doorbell::uar::NO_DBR).
pub const SEND_NO_DBR: u8 = 1;

use super::layout::{command, response};

/// Bits of the `opt_param_mask`: which *optional* fields of a transition are valid. Required ones always are.
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
    /// Minimum RNR timer.
    pub const RNR_TIMEOUT: u32 = 1 << 6;
    /// Primary path to the peer.
    pub const PRIMARY_ADDR_PATH: u32 = 1 << 7;
    /// Number of outstanding reads and atomics as initiator.
    pub const SRA_MAX: u32 = 1 << 8;
    /// Number of outstanding reads and atomics as target.
    pub const RRA_MAX: u32 = 1 << 9;
    /// Path migration state.
    pub const PM_STATE: u32 = 1 << 10;
    /// Retries after a missing acknowledgement.
    pub const RETRY_COUNT: u32 = 1 << 12;
    /// Retries while the receiver is not ready.
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
    /// Index of the local address (GID).
    pub const SGID_INDEX: u32 = 1 << 23;
    /// Counter set.
    pub const COUNTER_SET: u32 = 1 << 25;
}

command! { CREATE_QP -> CreateQpOut;
    /// CREATE_QP: creates a queue pair, in a umem or in pages whose addresses follow the mailbox.
    pub struct CreateQp[272] {
        /// Optional fields that are valid; see [`opt_param`].
        opt_param_mask: u32 = 0x80, 32;
        /// Enhanced connection establishment options.
        ece: u32 = 0xa0, 32;
        /// Context of the queue pair.
        context: QpContext = 0xc0, 1856;
        /// Offset of the queues in the umem, in bytes.
        wq_umem_offset: u64 = 0x800, 64;
        /// The umem that holds the queues.
        wq_umem_id: u32 = 0x840, 32;
        /// The queues are in a umem.
        wq_umem_valid: bool = 0x860, 1;
    }
}

response! {
    /// Output of [`CreateQp`].
    pub struct CreateQpOut[16] {
        /// QPN of the new queue pair.
        qpn: u32 = 0x48, 24;
        /// Enhanced connection establishment options in effect.
        ece: u32 = 0x60, 32;
    }
}

/// A state transition that carries a context. All of them have the same table.
macro_rules! transition {
    ($opcode:ident, $(#[$doc:meta])* $name:ident) => {
        command! { $opcode -> ModifyQpOut;
            $(#[$doc])*
            pub struct $name[272] {
                /// QPN of the queue pair.
                qpn: u32 = 0x48, 24;
                /// Optional fields that are valid; see [`opt_param`].
                opt_param_mask: u32 = 0x80, 32;
                /// Enhanced connection establishment options.
                ece: u32 = 0xa0, 32;
                /// Context with the fields to set.
                context: QpContext = 0xc0, 1856;
            }
        }
    };
}

transition! { RST2INIT_QP,
    /// RST2INIT_QP: sets port and access rights.
    Rst2Init
}
transition! { INIT2RTR_QP,
    /// INIT2RTR_QP: sets the peer and the path to it, MTU and receive sequence.
    Init2Rtr
}
transition! { RTR2RTS_QP,
    /// RTR2RTS_QP: sets timeouts, retries and send sequence.
    Rtr2Rts
}
transition! { SQERR2RTS_QP,
    /// SQERR2RTS_QP: resumes after an error of the send queue.
    Sqerr2Rts
}
transition! { SQD_RTS_QP,
    /// SQD_RTS_QP: resumes after draining the send queue.
    Sqd2Rts
}

/// A modification without a change of state, which has the longer mailbox. The context extension after
/// `opt_param_mask_95_32` is not modelled, so `qpc_ext` must be false.
macro_rules! change {
    ($opcode:ident, $(#[$doc:meta])* $name:ident) => {
        command! { $opcode -> ModifyQpOut;
            $(#[$doc])*
            pub struct $name[464] {
                /// The extension of the context is present.
                qpc_ext: bool = 0x40, 1;
                /// QPN of the queue pair.
                qpn: u32 = 0x48, 24;
                /// Optional fields that are valid; see [`opt_param`].
                opt_param_mask: u32 = 0x80, 32;
                /// Enhanced connection establishment options.
                ece: u32 = 0xa0, 32;
                /// Context with the fields to set.
                context: QpContext = 0xc0, 1856;
                /// Optional fields of the extension that are valid.
                opt_param_mask_95_32: u64 = 0x840, 64;
            }
        }
    };
}

change! { INIT2INIT_QP,
    /// INIT2INIT_QP: modifies a queue pair in INIT.
    Init2Init
}
change! { RTS2RTS_QP,
    /// RTS2RTS_QP: modifies a queue pair in RTS.
    Rts2Rts
}

command! { MODIFY_2ERR_QP -> ModifyQpOut;
    /// 2ERR_QP: stops a queue pair and flushes its work requests.
    pub struct ToErr[16] {
        /// QPN of the queue pair.
        qpn: u32 = 0x48, 24;
    }
}

command! { MODIFY_2RST_QP -> ModifyQpOut;
    /// 2RST_QP: resets a queue pair and discards its work requests.
    pub struct ToRst[16] {
        /// QPN of the queue pair.
        qpn: u32 = 0x48, 24;
    }
}

response! {
    /// Output of every state transition.
    pub struct ModifyQpOut[16] {
        /// Enhanced connection establishment options in effect.
        ece: u32 = 0x60, 32;
    }
}

command! { QUERY_QP -> QueryQpOut;
    /// QUERY_QP: queries the context of a queue pair.
    pub struct QueryQp[16] {
        /// QPN of the queue pair.
        qpn: u32 = 0x48, 24;
    }
}

response! {
    /// Output of [`QueryQp`].
    pub struct QueryQpOut[272] {
        /// Enhanced connection establishment options in effect.
        ece: u32 = 0x60, 32;
        /// Optional fields that are valid.
        opt_param_mask: u32 = 0x80, 32;
        /// Context of the queue pair.
        context: QpContext = 0xc0, 1856;
    }
}

command! { DESTROY_QP -> DestroyQpOut;
    /// DESTROY_QP: destroys a queue pair.
    pub struct DestroyQp[16] {
        /// QPN of the queue pair.
        qpn: u32 = 0x48, 24;
    }
}

response! {
    /// Output of [`DestroyQp`].
    pub struct DestroyQpOut[16] {}
}
