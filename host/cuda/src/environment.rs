//! The environment variables of the CUDA driver that kernels that wait need.

use std::path::Path;

/// Variable with the number of hardware queues that a process requests on each GPU.
pub(crate) const MAX_CONNECTIONS: &str = "CUDA_DEVICE_MAX_CONNECTIONS";

/// Hardware queues of a process that has a GPU to itself, or takes turns on it.
const MAX_QUEUES: u32 = 32;

/// Hardware queues of a process for which [`MAX_CONNECTIONS`] is unset.
pub(crate) const DEFAULT_QUEUES: u32 = 8;

/// Hardware queues that all processes of one GPU share under MPS.
///
/// Measured on an H100 with driver 580: 3 x 32, 6 x 16, 12 x 8 or 48 x 2.
pub(crate) const MPS_QUEUES: u32 = 96;

/// Returns the environment variables that processes with waiting kernels need. The driver reads them when it is loaded.
///
/// `processes` is the number of PEs on this node. They are spread evenly over its GPUs.
///
/// - `CUDA_MODULE_LOADING=EAGER`: by default, a kernel is loaded at its first launch, which then waits for running
///   kernels.
/// - `CUDA_DEVICE_MAX_CONNECTIONS=32`: by default, all streams share 8 hardware queues. Work behind a waiting kernel in
///   the same queue waits for that kernel, even if it is in another stream. Under MPS, all processes on a GPU share 96
///   hardware queues, and the value is the share of one process.
///
/// [`Cuda::load`](crate::Cuda::load) sets the unset variables where that is safe. A launcher sets them for its child
/// processes.
pub fn environment(processes: u32) -> [(&'static str, String); 2] {
    let queues = if mps_runs() { mps_share(processes, node_gpus()) } else { MAX_QUEUES };
    [("CUDA_MODULE_LOADING", "EAGER".into()), (MAX_CONNECTIONS, queues.to_string())]
}

/// Returns the hardware queues of one process under MPS.
fn mps_share(processes: u32, gpus: u32) -> u32 {
    let per_gpu = processes.div_ceil(gpus.max(1)).max(1);
    (MPS_QUEUES / per_gpu).clamp(1, MAX_QUEUES)
}

/// Returns the number of GPUs of the node, including those that the driver hides from this process.
fn node_gpus() -> u32 {
    std::fs::read_dir("/proc/driver/nvidia/gpus").map_or(0, |gpus| gpus.count() as u32)
}

/// Returns whether the driver of this process will find the control daemon of MPS.
fn mps_runs() -> bool {
    let folder = std::env::var_os("CUDA_MPS_PIPE_DIRECTORY").unwrap_or_else(|| "/tmp/nvidia-mps".into());
    Path::new(&folder).join("control").exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn divides_the_queues_of_mps_among_processes() {
        let shares = [(1, 1), (3, 1), (4, 1), (8, 1), (48, 1), (200, 1), (8, 8), (9, 8), (4, 0)];
        let queues = shares.map(|(processes, gpus)| mps_share(processes, gpus));
        assert_eq!(queues, [32, 32, 24, 12, 2, 1, 32, 32, 24]);
        let (_, queues) = environment(1).into_iter().find(|(name, _)| *name == MAX_CONNECTIONS).unwrap();
        assert_eq!(queues, "32");
    }
}
