//! The type of the setting for doorbell records, which kernels may have to update when they post to a send queue.

use crate::value::Choice;

/// Whether the send queues that kernels post to use doorbell records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DoorbellRecord {
    /// Send queues always use doorbell records.
    On,
    /// Send queues use doorbell records, unless the RDMA device offers to work without them and does.
    Auto,
    /// Send queues never use doorbell records.
    Off,
}

impl Choice for DoorbellRecord {
    const NAMES: &'static [(&'static str, Self)] =
        &[("on", DoorbellRecord::On), ("auto", DoorbellRecord::Auto), ("off", DoorbellRecord::Off)];
}
