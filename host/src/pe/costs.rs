//! Counts what it costs to set up and connect a PE, as opposed to moving data.

use super::Pe;
use crate::bootstrap::Traffic;

/// The cost of setting up and connecting a PE so far: commands, bootstrap traffic and reserved memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ControlCosts {
    /// Number of PRM commands sent to the PE's NICs.
    pub commands: u64,
    /// Number of calls and bytes over the bootstrap network.
    pub bootstrap: Traffic,
    /// Number of bytes that the runtime reserves: for all queues of the PE, the words that kernels update, and team
    /// memory.
    pub reserved_bytes: u64,
    /// Number of bytes in `reserved_bytes` for each QP: queues, doorbell records and the words of the send queue.
    pub qp_bytes: u64,
}

impl Pe {
    /// Returns the cost of setting up and connecting this PE so far. `rushmem scale` prints it for jobs of many PEs.
    pub fn control_costs(&self) -> ControlCosts {
        ControlCosts {
            commands: self.service.commands(),
            bootstrap: self.bootstrap.traffic(),
            reserved_bytes: self.shape.memory(),
            qp_bytes: self.shape.slot_bytes(),
        }
    }
}
