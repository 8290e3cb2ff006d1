//! What the control path of a PE costs.

use super::Pe;
use crate::bootstrap::Traffic;

/// What the control path of a PE has cost so far: commands, bootstrap traffic and reserved memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ControlCosts {
    /// PRM commands to the PE's NICs.
    pub commands: u64,
    /// Calls and bytes over the bootstrap network.
    pub bootstrap: Traffic,
    /// Bytes reserved by the runtime: for all queues of the PE, the words that kernels update, and the memory of teams.
    pub reserved_bytes: u64,
    /// Bytes per QP included in these: queues, doorbell records and the words of the send queue.
    pub qp_bytes: u64,
}

impl Pe {
    /// Returns what the control path of this PE has cost so far. `rushmem scale` prints it for jobs of many PEs.
    pub fn control_costs(&self) -> ControlCosts {
        ControlCosts {
            commands: self.service.commands(),
            bootstrap: self.bootstrap.traffic(),
            reserved_bytes: self.shape.memory(),
            qp_bytes: self.shape.slot_bytes(),
        }
    }
}
