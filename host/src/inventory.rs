//! Collects the content of `rushmem info`: the devices of this machine, and what a job on it would choose.

use rushmem_fabric::nics::{Decision, decide};
use rushmem_fabric::provider::sysfs;
use rushmem_memory::p2p::{PeerRoute, expected_routes};
use serde::Serialize;

use crate::bootstrap;
use crate::config::{Config, DeviceKind};
use crate::cuda::{Cuda, Device};
#[cfg(feature = "rdma")]
use crate::inspect::kernel_machine;

/// A GPU of this machine.
#[derive(Clone, Debug, Serialize)]
pub struct FoundGpu {
    /// Ordinal of the GPU in the CUDA driver.
    pub ordinal: u32,
    /// Model name of the GPU.
    pub name: String,
    /// Compute capability of the GPU: major and minor version.
    pub compute_capability: (u32, u32),
    /// Number of streaming multiprocessors of the GPU.
    pub multiprocessors: u32,
    /// Total and free memory of the GPU, in bytes.
    pub memory: (u64, u64),
}

/// What a job would choose in one respect, and the reason.
#[derive(Clone, Debug, Serialize)]
pub struct Choice {
    /// The choice, as text for users.
    pub selected: String,
    /// Reason for the choice, or the error that prevents any choice.
    pub reason: String,
}

/// The devices of this machine, and what a job with given settings would choose. [`inventory`] creates it.
#[derive(Clone, Debug, Serialize)]
pub struct Inventory {
    /// Number of CPU cores available to this process.
    pub cores: usize,
    /// Available host memory in bytes, if the system reports it.
    pub memory_available: Option<u64>,
    /// Version of the CUDA driver, or the reason why it cannot be used.
    pub cuda: Result<String, String>,
    /// GPUs reported by the CUDA driver.
    pub gpus: Vec<FoundGpu>,
    /// Names of the RDMA devices reported by Linux.
    pub rdma_devices: Vec<String>,
    /// Lines about RDMA devices: each port in use, each unused device with the reason, and who writes doorbells.
    pub nic_details: Vec<String>,
    /// The way in which the job's PEs are started and find each other.
    pub pes: Choice,
    /// The machine that runs kernels: GPUs, or native code on the CPU.
    pub kernels: Choice,
    /// The NIC for all traffic other than P2P.
    pub nic: Choice,
    /// Routes from PE 0 to each PE: P2P or NIC.
    pub routes: Vec<PeerRoute>,
}

/// Examines the devices of this machine, and makes the choices of a job with these settings.
///
/// Does not start a job. If there are RDMA devices, opens the first one to try its doorbells.
///
/// ```no_run
/// let inventory = rushmem::inventory(&rushmem::config::Config::load()?);
/// println!("NIC: {} ({})", inventory.nic.selected, inventory.nic.reason);
/// # Ok::<(), rushmem::config::Error>(())
/// ```
pub fn inventory(config: &Config) -> Inventory {
    let cuda = Cuda::load();
    let gpus = cuda.as_ref().map(|&cuda| gpus(cuda)).unwrap_or_default();
    let rdma_devices = sysfs::devices(&sysfs::root()).into_iter().map(|(name, _)| name).collect();
    let (nic, nic_details) = nic(config, &gpus);
    let n_pes = config.n_pes.unwrap_or(config.pes).get();
    let on_gpu = config.device != DeviceKind::Native && !gpus.is_empty();
    Inventory {
        cores: rushmem_base::cores() as usize,
        memory_available: rushmem_machine::available_memory(),
        pes: pes(config),
        kernels: kernels(config, &gpus, cuda.as_ref().err().map(ToString::to_string)),
        cuda: cuda
            .map(|cuda| format!("{}.{}", cuda.version().0, cuda.version().1))
            .map_err(|e| e.to_string()),
        routes: expected_routes(config, 0, n_pes, &nic.selected, on_gpu),
        nic,
        nic_details,
        gpus,
        rdma_devices,
    }
}

fn pes(config: &Config) -> Choice {
    match bootstrap::launch_method(config) {
        Ok((selected, reason)) => Choice { selected: selected.into(), reason },
        Err(error) => none(&error),
    }
}

/// Returns the choice to show if a job would fail with `error`.
fn none(error: &dyn std::fmt::Display) -> Choice {
    Choice { selected: "nothing".into(), reason: error.to_string() }
}

fn gpus(cuda: Cuda) -> Vec<FoundGpu> {
    let found = |ordinal| {
        let device = Device::open(cuda, ordinal).ok()?;
        let a = device.attributes();
        Some(FoundGpu {
            ordinal,
            name: a.name.clone(),
            compute_capability: a.compute_capability,
            multiprocessors: a.multiprocessors,
            memory: (a.memory, device.free_memory().unwrap_or(0)),
        })
    };
    (0..cuda.device_count().unwrap_or(0)).filter_map(found).collect()
}

fn kernels(config: &Config, gpus: &[FoundGpu], no_cuda: Option<String>) -> Choice {
    let choice = |selected: &str, reason: &str| Choice { selected: selected.into(), reason: reason.into() };
    let native = |reason| choice("native code on the CPU", reason);
    match (config.device, gpus.first(), no_cuda) {
        (DeviceKind::Native, _, _) => native("RUSHMEM_DEVICE=native"),
        (_, Some(gpu), _) => choice(
            &format!("GPUs, {} first", gpu.name),
            "found, for applications that bring PTX (Job::kernels)",
        ),
        (DeviceKind::Gpu, None, reason) => choice(
            "nothing: RUSHMEM_DEVICE=gpu requires a GPU",
            reason.as_deref().unwrap_or("the CUDA driver reports no GPU"),
        ),
        (DeviceKind::Auto, None, Some(_)) => native("there is no CUDA driver"),
        (DeviceKind::Auto, None, None) => native("the CUDA driver reports no GPU"),
    }
}

fn nic(config: &Config, gpus: &[FoundGpu]) -> (Choice, Vec<String>) {
    match decide(config) {
        Err(error) => (none(&error), Vec::new()),
        Ok(Decision { hardware: None, reason, .. }) => {
            (Choice { selected: "software ConnectX".into(), reason }, Vec::new())
        }
        Ok(Decision { hardware: Some(hardware), reason, .. }) => {
            rdma_devices(&hardware, reason, config, gpus)
        }
    }
}

#[cfg(feature = "rdma")]
fn rdma_devices(
    hardware: &rushmem_fabric::nics::Hardware,
    reason: String,
    config: &Config,
    gpus: &[FoundGpu],
) -> (Choice, Vec<String>) {
    let gpu = gpus.first().filter(|_| config.device != DeviceKind::Native).map(|gpu| gpu.ordinal);
    let mut details = hardware.describe();
    details.extend(hardware.unused().iter().map(|reason| format!("not used: {reason}")));
    let machine = kernel_machine(config, gpu);
    let doorbells = machine.and_then(|machine| hardware.try_doorbells(0, config, &*machine));
    details.push(match doorbells {
        Ok(path) => format!("doorbells: {path}"),
        Err(error) => format!("doorbells: {error}"),
    });
    (Choice { selected: hardware.names(), reason }, details)
}

#[cfg(not(feature = "rdma"))]
fn rdma_devices(
    hardware: &rushmem_fabric::nics::Hardware,
    _: String,
    _: &Config,
    _: &[FoundGpu],
) -> (Choice, Vec<String>) {
    match *hardware {}
}
