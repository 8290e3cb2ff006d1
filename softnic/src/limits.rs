//! Limits of the adapter, as advertised by its capabilities.

/// log2 of the maximum number of blocks in a send queue. The field in the QP context has four bits.
pub(crate) const LOG_MAX_QP_SIZE: u8 = 15;
/// log2 of the maximum number of QPs. All-to-all traffic of 1,024 PEs in one process needs 2^20.
pub(crate) const LOG_MAX_QP: u8 = 21;
/// log2 of the maximum number of DCTs.
pub(crate) const LOG_MAX_DCT: u8 = 16;
/// log2 of the maximum number of XRC domains.
pub(crate) const LOG_MAX_XRCD: u8 = 16;
/// log2 of the maximum number of CQs.
pub(crate) const LOG_MAX_CQ: u8 = 21;
/// log2 of the maximum number of entries in a CQ.
pub(crate) const LOG_MAX_CQ_SIZE: u8 = 22;
/// log2 of the maximum message length in bytes.
pub(crate) const LOG_MAX_MSG: u8 = 30;
/// log2 of the maximum number of outstanding READs and atomics, in either direction.
pub(crate) const LOG_MAX_READS: u8 = 7;
/// log2 of the maximum number of user contexts of a PCI function.
pub(crate) const LOG_MAX_UCTX: u8 = 8;
/// Maximum number of user contexts of a PCI function.
pub const MAX_USERS: u16 = 1 << LOG_MAX_UCTX;
/// log2 of the maximum number of event queues of a PCI function.
pub(crate) const LOG_MAX_EQ: u8 = 6;
/// log2 of the maximum number of entries in an event queue.
pub(crate) const LOG_MAX_EQ_SIZE: u8 = 16;
