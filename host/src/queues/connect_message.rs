//! The messages by which two PEs connect their QPs.

use super::rail::QpAddress;

/// A message about the QP of one set between two PEs.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct ConnectMessage {
    /// Number of resets when the message was written. Messages from before a reset are discarded.
    pub(super) epoch: u64,
    pub(super) set: u64,
    pub(super) status: QpStatus,
}

#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(super) enum QpStatus {
    /// The writer's QP.
    Qp {
        address: QpAddress,
        ready: bool,
        /// Whether WRITEs from or to the writer's QP may land out of order. Known once it is ready.
        #[serde(default)]
        unordered: bool,
    },
    /// The writer cannot connect.
    Failed { why: String },
}
