//! Limits of the adapter, which its capabilities announce.

/// log2 of the most blocks in a send queue: the field in the QP context has four bits.
pub(crate) const LOG_MAX_QP_SIZE: u8 = 15;
/// log2 of the number of QPs. All-to-all traffic of 1,024 PEs in one process needs 2^20.
pub(crate) const LOG_MAX_QP: u8 = 21;
/// log2 of the number of targets of dynamic connections.
pub(crate) const LOG_MAX_DCT: u8 = 16;
/// log2 of the number of XRC domains.
pub(crate) const LOG_MAX_XRCD: u8 = 16;
/// log2 of the number of CQs.
pub(crate) const LOG_MAX_CQ: u8 = 21;
/// log2 of the most entries in a completion queue.
pub(crate) const LOG_MAX_CQ_SIZE: u8 = 22;
/// log2 of the longest message.
pub(crate) const LOG_MAX_MSG: u8 = 30;
/// log2 of the most reads and atomics in flight, either way.
pub(crate) const LOG_MAX_READS: u8 = 7;
