//! Commands on queue pairs. They carry the structures [`QpContext`] and [`AddressPath`].
//!
//! A reliable connection is brought up by [`CreateQp`], [`Rst2Init`], [`Init2Rtr`] and [`Rtr2Rts`], each of which
//! carries the context fields that it sets.

mod context;
mod path;

pub use context::{AtomicMode, Mtu, PmState, QpContext, QpState, RqType, ServiceType};
pub use path::AddressPath;

/// Value of [`QpContext::send_dbr_mode`]: send doorbells also update a doorbell record.
pub const SEND_DBR: u8 = 0;
/// Value of [`QpContext::send_dbr_mode`]: there is no doorbell record, and send doorbells go to the register
/// [`NO_DBR`](crate::doorbell::uar::NO_DBR).
pub const SEND_NO_DBR: u8 = 1;

/// Value of [`QpContext::ts_format`]: the free-running clock, which a NIC may lack.
pub const TS_FREE_RUNNING: u8 = 0;
/// Value of [`QpContext::ts_format`]: the format of the NIC's clock.
pub const TS_DEFAULT: u8 = 1;

use super::layout::{command, response};

/// Bits of `opt_param_mask`, which select the *optional* context fields of a QP transition to apply. Required fields
/// always apply.
pub mod opt_param {
    /// Selects `rre`: whether the peer may read memory.
    pub const RRE: u32 = 1 << 1;
    /// Selects `rae`: whether the peer may execute atomics.
    pub const RAE: u32 = 1 << 2;
    /// Selects `rwe`: whether the peer may write memory.
    pub const RWE: u32 = 1 << 3;
    /// Selects the index of the partition key.
    pub const PKEY_INDEX: u32 = 1 << 4;
    /// Selects the queue key of a datagram QP.
    pub const Q_KEY: u32 = 1 << 5;
    /// Selects `min_rnr_nak`, the wait after a receiver-not-ready NAK.
    pub const RNR_TIMEOUT: u32 = 1 << 6;
    /// Selects the primary path to the peer.
    pub const PRIMARY_ADDR_PATH: u32 = 1 << 7;
    /// Selects `log_sra_max`, the limit of outstanding reads and atomics that the QP sends.
    pub const SRA_MAX: u32 = 1 << 8;
    /// Selects `log_rra_max`, the limit of outstanding reads and atomics that the QP serves.
    pub const RRA_MAX: u32 = 1 << 9;
    /// Selects the path migration state.
    pub const PM_STATE: u32 = 1 << 10;
    /// Selects the number of retries after a missing acknowledgement.
    pub const RETRY_COUNT: u32 = 1 << 12;
    /// Selects the number of retries while the receiver is not ready.
    pub const RNR_RETRY: u32 = 1 << 13;
    /// Selects the acknowledgement timeout.
    pub const ACK_TIMEOUT: u32 = 1 << 14;
    /// Selects `lag_tx_port_affinity`, the port of a bond that sends.
    pub const LAG_TX_AFF: u32 = 1 << 15;
    /// Selects the port of the primary path.
    pub const PRI_PORT: u32 = 1 << 16;
    /// Selects the DSCP bits of the IP header.
    pub const DSCP: u32 = 1 << 17;
    /// Selects the SRQN.
    pub const SRQN: u32 = 1 << 18;
    /// Selects the index of the local address (GID).
    pub const SGID_INDEX: u32 = 1 << 23;
    /// Selects the ID of the queue-counter set.
    pub const COUNTER_SET: u32 = 1 << 25;
}

/// Value of [`CreateQp::ece`] with which the NIC answers the options that it supports: version 1, and no option. Without a
/// version, the NIC answers 0, and the QP has no options.
pub const ECE_VERSION_1: u32 = 1 << 28;

command! { CREATE_QP -> CreateQpOut;
    /// CREATE_QP: creates a queue pair, in a umem or in pages whose addresses follow the mailbox.
    pub struct CreateQp[272] {
        /// Which optional context fields apply; see [`opt_param`].
        opt_param_mask: u32 = 0x80, 32;
        /// Requested options of enhanced connection establishment (ECE).
        ece: u32 = 0xa0, 32;
        /// Settings of the new queue pair.
        context: QpContext = 0xc0, 1856;
        /// Offset of the queues in the umem, in bytes.
        wq_umem_offset: u64 = 0x800, 64;
        /// ID of the umem that holds the queues.
        wq_umem_id: u32 = 0x840, 32;
        /// The queues are in a umem, so no page addresses follow the mailbox.
        wq_umem_valid: bool = 0x860, 1;
    }
}

response! {
    /// The NIC's reply to [`CreateQp`], with the new queue pair's number (QPN).
    pub struct CreateQpOut[16] {
        /// QPN of the new queue pair.
        qpn: u32 = 0x48, 24;
        /// Options of enhanced connection establishment (ECE) in effect.
        ece: u32 = 0x60, 32;
    }
}

/// Declares the command of a QP state transition. All of them carry the same fields, including a QP context.
macro_rules! transition {
    ($opcode:ident, $(#[$doc:meta])* $name:ident) => {
        command! { $opcode -> ModifyQpOut;
            $(#[$doc])*
            pub struct $name[272] {
                /// QPN of the queue pair to move to another state.
                qpn: u32 = 0x48, 24;
                /// Which optional context fields apply; see [`opt_param`].
                opt_param_mask: u32 = 0x80, 32;
                /// Requested options of enhanced connection establishment (ECE).
                ece: u32 = 0xa0, 32;
                /// QP context, of which the transition applies its own fields.
                context: QpContext = 0xc0, 1856;
            }
        }
    };
}

transition! { RST2INIT_QP,
    /// RST2INIT_QP: moves a QP to INIT and sets its port and access rights.
    Rst2Init
}
transition! { INIT2RTR_QP,
    /// INIT2RTR_QP: makes a QP ready to receive; sets the peer, the path to it, the MTU and the sequence number to
    /// expect.
    Init2Rtr
}
transition! { RTR2RTS_QP,
    /// RTR2RTS_QP: makes a QP ready to send; sets timeouts, retries and the first sequence number to send.
    Rtr2Rts
}
transition! { SQERR2RTS_QP,
    /// SQERR2RTS_QP: makes a QP ready to send again after its send queue failed.
    Sqerr2Rts
}
transition! { SQD_RTS_QP,
    /// SQD_RTS_QP: makes a QP ready to send again after its send queue was drained.
    Sqd2Rts
}

/// Declares a command that modifies a QP without changing its state. A context extension may follow its mailbox, which
/// is not modelled, so `qpc_ext` must be false.
macro_rules! change {
    ($opcode:ident, $(#[$doc:meta])* $name:ident) => {
        command! { $opcode -> ModifyQpOut;
            $(#[$doc])*
            pub struct $name[272] {
                /// An extension of the QP context follows the mailbox.
                qpc_ext: bool = 0x40, 1;
                /// QPN of the queue pair to modify.
                qpn: u32 = 0x48, 24;
                /// Which optional context fields apply; see [`opt_param`].
                opt_param_mask: u32 = 0x80, 32;
                /// Requested options of enhanced connection establishment (ECE).
                ece: u32 = 0xa0, 32;
                /// QP context with the fields to modify.
                context: QpContext = 0xc0, 1856;
            }
        }
    };
}

change! { INIT2INIT_QP,
    /// INIT2INIT_QP: modifies a queue pair that is in the INIT state.
    Init2Init
}
change! { RTS2RTS_QP,
    /// RTS2RTS_QP: modifies a queue pair that is ready to send, for example its path.
    Rts2Rts
}

command! { MODIFY_2ERR_QP -> ModifyQpOut;
    /// 2ERR_QP: moves a queue pair to the error state and flushes its work requests.
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
    /// Output of every command that moves or modifies a queue pair.
    pub struct ModifyQpOut[16] {
        /// Options of enhanced connection establishment (ECE) in effect.
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
    /// The NIC's reply to [`QueryQp`], with the queue pair's settings and state.
    pub struct QueryQpOut[272] {
        /// Options of enhanced connection establishment (ECE) in effect.
        ece: u32 = 0x60, 32;
        /// Which optional fields of the returned context are valid.
        opt_param_mask: u32 = 0x80, 32;
        /// Settings and state of the queue pair.
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
    /// The NIC's reply to [`DestroyQp`]. It carries no data beyond its status.
    pub struct DestroyQpOut[16] {}
}
