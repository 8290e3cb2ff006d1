//! Environment variables of the CUDA driver that kernels depend on if they wait for each other.

use std::path::Path;

/// Name of the environment variable that sets how many hardware queues a process requests on each GPU.
pub(crate) const MAX_CONNECTIONS: &str = "CUDA_DEVICE_MAX_CONNECTIONS";

/// Number of hardware queues of a process that does not share its GPU through MPS.
const MAX_QUEUES: u32 = 32;

/// Number of hardware queues of a process that leaves [`MAX_CONNECTIONS`] unset.
pub(crate) const DEFAULT_QUEUES: u32 = 8;

/// Number of hardware queues that all processes on one GPU share under MPS.
///
/// Measured on an H100 with driver 580: the largest numbers of processes times queues were 3 x 32, 6 x 16, 12 x 8 and
/// 48 x 2.
pub(crate) const MPS_QUEUES: u32 = 96;

/// Returns the environment variables that processes need if their kernels wait for each other. The driver reads them
/// when it is loaded.
///
/// `processes` is the number of PEs on this node, which are spread evenly over `gpus` GPUs, or over all of the node.
///
/// - `CUDA_MODULE_LOADING=EAGER`: by default, a kernel is loaded at its first launch, which then waits for running
///   kernels.
/// - `CUDA_DEVICE_MAX_CONNECTIONS=32`: by default, all streams share 8 hardware queues. Work queued after a waiting
///   kernel in the same hardware queue waits for that kernel, even if it is in another stream. Under MPS, all processes
///   on a GPU share 96 hardware queues, and the value is the share of one process.
///
/// [`Cuda::load`](crate::Cuda::load) sets those that are unset, where that is safe. A launcher sets them for its child
/// processes.
pub fn environment(processes: u32, gpus: Option<u32>) -> [(&'static str, String); 2] {
    let queues = if mps_runs() { mps_share(processes, gpus.unwrap_or_else(node_gpus)) } else { MAX_QUEUES };
    [("CUDA_MODULE_LOADING", "EAGER".into()), (MAX_CONNECTIONS, queues.to_string())]
}

/// Returns how many hardware queues a process may request under MPS if `processes` processes share `gpus` GPUs.
fn mps_share(processes: u32, gpus: u32) -> u32 {
    let per_gpu = processes.div_ceil(gpus.max(1)).max(1);
    (MPS_QUEUES / per_gpu).clamp(1, MAX_QUEUES)
}

/// Returns the number of GPUs in the node, including those hidden from this process by `CUDA_VISIBLE_DEVICES`.
fn node_gpus() -> u32 {
    std::fs::read_dir("/proc/driver/nvidia/gpus").map_or(0, |gpus| gpus.count() as u32)
}

/// Returns whether the MPS control daemon is running where the driver will look for it.
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
        let (_, queues) =
            environment(1, None).into_iter().find(|(name, _)| *name == MAX_CONNECTIONS).unwrap();
        assert_eq!(queues, "32");
    }
}
