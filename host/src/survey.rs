//! What this machine has, what a job on it would use, and why: the content of `rushmem info`.

use serde::Serialize;

use crate::bootstrap;
use crate::config::{Config, DeviceKind};
use crate::cuda::Cuda;
use crate::nics::{Decision, decide};
use crate::p2p::{PeerRoute, expected_routes};
use crate::provider::sysfs;

/// A GPU.
#[derive(Clone, Debug, Serialize)]
pub struct FoundGpu {
    /// Its number.
    pub ordinal: u32,
    /// Its name.
    pub name: String,
    /// Compute capability, major and minor.
    pub compute_capability: (u32, u32),
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
    /// Bytes of memory, all and free.
    pub memory: (u64, u64),
}

/// A choice that a job would make, and why.
#[derive(Clone, Debug, Serialize)]
pub struct Choice {
    /// What is chosen.
    pub what: String,
    /// Why.
    pub why: String,
}

/// What was found, and what would be used with given settings.
#[derive(Clone, Debug, Serialize)]
pub struct Survey {
    /// CPU cores.
    pub cores: usize,
    /// Bytes of host memory available.
    pub memory_available: Option<u64>,
    /// The CUDA driver's version, or why there is none.
    pub cuda: Result<String, String>,
    /// The GPUs.
    pub gpus: Vec<FoundGpu>,
    /// RDMA devices of the kernel.
    pub rdma_devices: Vec<String>,
    /// Of the NICs that would be used: each port, each device that is left out and why, and how doorbells are rung.
    pub nic_details: Vec<String>,
    /// How PEs would find each other.
    pub pes: Choice,
    /// What kernels would run on.
    pub kernels: Choice,
    /// What NIC would carry what does not go directly.
    pub nic: Choice,
    /// How PE 0 of a job of `pes` would reach each PE.
    pub routes: Vec<PeerRoute>,
}

/// Looks at this machine with these settings.
pub fn survey(config: &Config) -> Survey {
    let cuda = Cuda::load();
    let gpus = cuda.as_ref().map(|&cuda| gpus(cuda)).unwrap_or_default();
    let rdma_devices = sysfs::devices(&sysfs::root()).into_iter().map(|(name, _)| name).collect();
    let (nic, nic_details) = nic(config, &gpus);
    let n_pes = config.n_pes.unwrap_or(config.pes).get();
    let on_gpu = config.device != DeviceKind::Native && !gpus.is_empty();
    Survey {
        cores: std::thread::available_parallelism().map_or(1, |n| n.get()),
        memory_available: crate::machine::available_memory(),
        pes: pes(config),
        kernels: kernels(config, &gpus, cuda.as_ref().err().map(ToString::to_string)),
        cuda: cuda
            .map(|cuda| format!("{}.{}", cuda.version().0, cuda.version().1))
            .map_err(|e| e.to_string()),
        routes: expected_routes(config, 0, n_pes, &nic.what, on_gpu),
        nic,
        nic_details,
        gpus,
        rdma_devices,
    }
}

fn pes(config: &Config) -> Choice {
    match bootstrap::survey(config) {
        Ok((what, why)) => Choice { what: what.into(), why },
        Err(error) => Choice { what: "nothing".into(), why: error.to_string() },
    }
}

fn gpus(cuda: Cuda) -> Vec<FoundGpu> {
    let found = |ordinal| {
        let device = cuda.device(ordinal).ok()?;
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
    let native = |why: String| Choice { what: "native code on the CPU".into(), why };
    match (config.device, gpus.first(), no_cuda) {
        (DeviceKind::Native, _, _) => native("RUSHMEM_DEVICE=native".into()),
        (_, Some(gpu), _) => {
            let what = format!("GPUs, {} first", gpu.name);
            Choice { what, why: "found, for applications that bring PTX (Job::kernels)".into() }
        }
        (DeviceKind::Gpu, None, why) => {
            let why = why.unwrap_or_else(|| "the driver reports none".into());
            Choice { what: "nothing: RUSHMEM_DEVICE=gpu asks for a GPU".into(), why }
        }
        (DeviceKind::Auto, None, Some(_)) => native("there is no CUDA driver".into()),
        (DeviceKind::Auto, None, None) => native("the CUDA driver reports no GPU".into()),
    }
}

fn nic(config: &Config, gpus: &[FoundGpu]) -> (Choice, Vec<String>) {
    let soft = |why| (Choice { what: "software ConnectX".into(), why }, Vec::new());
    match decide(config) {
        Err(error) => (Choice { what: "nothing".into(), why: error.to_string() }, Vec::new()),
        Ok(Decision { hardware: None, why, .. }) => soft(why),
        Ok(Decision { hardware: Some(hardware), why, .. }) => of_hardware(&hardware, why, config, gpus),
    }
}

#[cfg(feature = "rdma")]
fn of_hardware(
    hardware: &crate::nics::Hardware,
    why: String,
    config: &Config,
    gpus: &[FoundGpu],
) -> (Choice, Vec<String>) {
    let gpu = gpus.first().filter(|_| config.device != DeviceKind::Native).map(|gpu| gpu.ordinal);
    let mut details = hardware.describe();
    details.extend(hardware.refused().iter().map(|why| format!("not used: {why}")));
    details.push(match hardware.doorbells(config, gpu) {
        Ok(how) => format!("doorbells: {how}"),
        Err(error) => format!("doorbells: {error}"),
    });
    (Choice { what: hardware.names(), why }, details)
}

#[cfg(not(feature = "rdma"))]
fn of_hardware(
    hardware: &crate::nics::Hardware,
    _: String,
    _: &Config,
    _: &[FoundGpu],
) -> (Choice, Vec<String>) {
    match *hardware {}
}
