//! Whether send queues use doorbell records.

use crate::value::Choice;

/// Whether the send queues that kernels post to use doorbell records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DoorbellRecord {
    /// Unless an RDMA device works without them.
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
