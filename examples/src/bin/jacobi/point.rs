//! What a run with some number of PEs cost, and on which devices.

/// The run with some number of PEs.
pub(crate) struct Point {
    pub(crate) pes: usize,
    /// Device time of a step: natively the CPU time of a PE, and time on the clock on a GPU, where each PE has its own
    /// multiprocessors.
    pub(crate) cost: f64,
}

impl Point {
    /// Returns the parallel efficiency: the device time in the first run, divided by this one.
    pub(crate) fn efficiency(&self, first: &Self) -> f64 {
        if self.cost > 0.0 { first.cost / self.cost } else { 1.0 }
    }
}

/// The devices of the PEs: GPUs, or the CPU cores of hosts.
pub(crate) struct Device {
    pub(crate) is_gpu: bool,
    /// The most PEs of the job that share a device.
    pub(crate) sharers: usize,
}

impl Device {
    /// Returns the name of the time that counts.
    pub(crate) fn time(&self) -> &'static str {
        if self.is_gpu { "time" } else { "CPU time a PE" }
    }
}
