//! The costs of the control path of a PE.

use super::Pe;
use crate::bootstrap::Traffic;

/// The costs of a PE's control path so far: commands, bootstrap traffic and reserved memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ControlCosts {
    /// PRM commands to the PE's NICs.
    pub commands: u64,
    /// Calls and bytes through the bootstrap.
    pub bootstrap: Traffic,
    /// Bytes that the runtime reserves: for all queues of the PE, the words that kernels update, and the memory of teams.
    pub reserved_bytes: u64,
    /// Bytes of these for each QP: queues, doorbell records and the words of its send queue.
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
