//! The use of doorbell records.

use crate::value::Choice;

/// The use of doorbell records by the send queues that kernels post to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DoorbellRecord {
    /// Unless an RDMA device does without.
    Auto,
    /// Always.
    On,
    /// Never.
    Off,
}

impl Choice for DoorbellRecord {
    const NAMES: &'static [(&'static str, Self)] =
        &[("auto", DoorbellRecord::Auto), ("on", DoorbellRecord::On), ("off", DoorbellRecord::Off)];
}
