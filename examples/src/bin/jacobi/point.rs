//! The device time of a run with a given number of PEs, and the devices that the PEs shared.

pub(crate) struct Point {
    pub(crate) pes: usize,
    /// Device time of a time step, in seconds. Natively this is the CPU time per PE. On a GPU it is wall-clock time,
    /// since each PE has its own multiprocessors there.
    pub(crate) cost: f64,
}

impl Point {
    /// Parallel efficiency: the device time of the `first` run divided by that of this one.
    pub(crate) fn efficiency(&self, first: &Self) -> f64 {
        if self.cost > 0.0 { first.cost / self.cost } else { 1.0 }
    }
}

/// The devices that the PEs run on: GPUs, or the CPU cores of hosts.
pub(crate) struct Device {
    pub(crate) is_gpu: bool,
    /// Maximum number of PEs that share a device.
    pub(crate) sharers: usize,
}

impl Device {
    /// Returns the name of the kind of time that [`Point::cost`] measures.
    pub(crate) fn time(&self) -> &'static str {
        if self.is_gpu { "time" } else { "CPU time a PE" }
    }
}
