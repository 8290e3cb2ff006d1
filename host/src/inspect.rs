//! Inspects the devices of a machine and predicts what a job would choose, for tools such as `rushmem doctor`.
//!
//! These functions read the machine and the settings. They do not change anything or start a job.

use std::collections::BTreeSet;
use std::path::PathBuf;

use rushmem_fabric::nics::Decision;
use rushmem_fabric::provider::topology::{self, PciPath};
use rushmem_fabric::provider::{Recorder, sysfs as rdma_sysfs};
use rushmem_machine::{Gpu, Machine, Native};

pub use rushmem_fabric::nics::Pair;
pub use rushmem_fabric::provider::topology::Distance;
pub use rushmem_fabric::provider::{Completion, Exchange, Recording};

use crate::config::Config;
use crate::cuda::{Cuda, Device, driver_gate};
use crate::modules::RUNTIME;
use crate::native;
use crate::{Result, job};

/// Whether this build can drive ConnectX NICs (feature `rdma`).
pub const DRIVES_RDMA: bool = cfg!(feature = "rdma");

/// Position of a GPU or NIC in the machine's PCIe and NUMA topology.
#[derive(Clone, Debug, Default)]
pub struct DeviceLocation {
    /// Directory of the device in sysfs, with symbolic links resolved.
    pub sysfs: PathBuf,
    /// NUMA node of the device, if the system reports it.
    pub numa_node: Option<u32>,
}

/// A NIC that a job would assign to a PE. [`assign_nics`] returns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AssignedNic {
    /// Index of the NIC in the list passed to [`assign_nics`].
    pub index: usize,
    /// Distance of the NIC from the PE's GPU, as a phrase such as "behind the same PCIe switch".
    pub distance: &'static str,
    /// Whether the NIC and the PE's GPU are below the same PCIe root.
    pub is_local: bool,
}

/// Assigns NICs to PEs as a job does. PE `i` runs on `gpus[i]` and uses up to `nics_per_pe` NICs.
///
/// Returns the NICs of each PE, in order of preference.
///
/// ```
/// use rushmem::inspect::{DeviceLocation, assign_nics};
///
/// let gpu = DeviceLocation { numa_node: Some(0), ..DeviceLocation::default() };
/// let nic = DeviceLocation { numa_node: Some(0), ..DeviceLocation::default() };
/// let assigned = assign_nics(&[gpu], &[nic], 1);
/// assert_eq!(assigned[0][0].distance, "on the same NUMA node");
/// ```
pub fn assign_nics(
    gpus: &[DeviceLocation],
    nics: &[DeviceLocation],
    nics_per_pe: usize,
) -> Vec<Vec<AssignedNic>> {
    let place = |device: &DeviceLocation| PciPath { sysfs: device.sysfs.clone(), node: device.numa_node };
    let nics: Vec<_> = nics.iter().map(place).collect();
    let distances: Vec<Vec<Distance>> = gpus
        .iter()
        .map(|gpu| nics.iter().map(|nic| topology::distance(&place(gpu), nic)).collect())
        .collect();
    let nic = |row: &[Distance], index: usize| AssignedNic {
        index,
        distance: row[index].describe(),
        is_local: row[index] < Distance::Node,
    };
    // Spares are of no interest.
    topology::assign(&distances, nics_per_pe, |_, _| false)
        .iter()
        .zip(&distances)
        .map(|(assigned, row)| assigned.iter().map(|&index| nic(row, index)).collect())
        .collect()
}

/// The NICs that a job would use. [`choose_nics`] returns it.
pub struct NicChoice {
    decision: Decision,
}

/// Chooses between RDMA devices and the software ConnectX as a job with these settings does.
///
/// # Errors
/// - [`Error::Unavailable`](crate::Error::Unavailable) and other errors of NICs: a named device cannot be used.
pub fn choose_nics(config: &Config) -> Result<NicChoice> {
    Ok(NicChoice { decision: rushmem_fabric::nics::decide(config)? })
}

impl NicChoice {
    /// Returns the reason for the choice, as a phrase for messages.
    pub fn reason(&self) -> &str {
        &self.decision.reason
    }

    /// Returns whether an RDMA device is left unused although the user might expect otherwise.
    pub fn is_device_unused(&self) -> bool {
        self.decision.is_device_unused
    }

    /// Returns a description of each RDMA device that the job would use, or an empty list for the software ConnectX.
    pub fn devices(&self) -> Vec<String> {
        #[cfg(feature = "rdma")]
        return self.decision.hardware.as_ref().map_or_else(Vec::new, |hardware| hardware.describe());
        #[cfg(not(feature = "rdma"))]
        Vec::new()
    }

    /// Returns, for each RDMA device that the job would not use, its name and the reason.
    pub fn refused(&self) -> Vec<String> {
        #[cfg(feature = "rdma")]
        return self.decision.hardware.as_ref().map_or_else(Vec::new, |hardware| hardware.unused().to_vec());
        #[cfg(not(feature = "rdma"))]
        Vec::new()
    }

    /// Returns all pairs of a PE of this node and a NIC. The node has `on_node` PEs, which run on `gpus`, or natively if
    /// the list is empty.
    ///
    /// # Errors
    /// - [`Error::Unavailable`](crate::Error::Unavailable): the settings do not give a NIC to each PE.
    /// - [`Error::Cuda`](crate::Error::Cuda): the driver does not say where a GPU is.
    pub fn pairs(&self, config: &Config, gpus: &[u32], on_node: u32) -> Result<Vec<Pair>> {
        self.decision.pairs(config, gpus, on_node)
    }

    /// Sets up the queues of a PE on the NIC of each pair and posts to them, as a job does. Before the first pair of a NIC,
    /// its capability pages are read into the recording.
    pub fn probe(&self, config: &Config, pairs: &[Pair]) -> Vec<ProbedPair> {
        let (mut queried, mut probed) = (BTreeSet::new(), Vec::new());
        // One machine at a time, because it holds memory of its GPU.
        for of_gpu in pairs.chunk_by(|a, b| a.gpu == b.gpu) {
            let machine = text_of(kernel_machine(config, of_gpu[0].gpu));
            for pair in of_gpu {
                let recorder = Recorder::default();
                let is_first = queried.insert(pair.nic);
                let (doorbells, level) = match &machine {
                    Ok(machine) => (
                        self.try_doorbells(config, pair, &**machine).map(text_of),
                        text_of(self.try_level(config, pair, &**machine, &recorder, is_first)),
                    ),
                    Err(error) => (None, Err(error.clone())),
                };
                probed.push(ProbedPair { doorbells, level, recording: recorder.take() });
            }
        }
        probed
    }

    #[cfg_attr(not(feature = "rdma"), expect(unused_variables, reason = "needs an RDMA device"))]
    fn try_doorbells(&self, config: &Config, pair: &Pair, machine: &dyn Machine) -> Option<Result<String>> {
        #[cfg(feature = "rdma")]
        return self.decision.hardware.as_ref().map(|nics| nics.try_doorbells(pair.nic, config, machine));
        #[cfg(not(feature = "rdma"))]
        None
    }

    fn try_level(
        &self,
        config: &Config,
        pair: &Pair,
        machine: &dyn Machine,
        recorder: &Recorder,
        queries_capabilities: bool,
    ) -> Result<(String, Vec<String>)> {
        let nic = self.decision.open(config, pair, recorder)?;
        if queries_capabilities {
            nic.query_capabilities();
        }
        rushmem_fabric::nics::try_level(nic, config, machine)
    }
}

fn text_of<T>(outcome: Result<T>) -> std::result::Result<T, String> {
    outcome.map_err(|error| error.to_string())
}

/// How a pair of a PE and a NIC works. [`NicChoice::probe`] returns it.
pub struct ProbedPair {
    /// How kernels ring doorbells, or why they cannot. `None` for the software ConnectX.
    pub doorbells: Option<std::result::Result<String, String>>,
    /// The level of the rail (where its queues and heap are, and who writes the doorbells) and the features that it had to
    /// give up compared to the highest level, or why it does not work.
    pub level: std::result::Result<(String, Vec<String>), String>,
    /// The commands that the probe sent to the NIC, with the answers, and the CQEs that the NIC wrote.
    pub recording: Recording,
}

/// Returns the machine that runs kernels: GPU `gpu`, or the native emulator if there is none.
pub(crate) fn kernel_machine(config: &Config, gpu: Option<u32>) -> Result<Box<dyn Machine>> {
    let Some(ordinal) = gpu else { return Ok(Box::new(Native::new(native::Options::default()))) };
    let gpu = Device::open(Cuda::load()?, ordinal)?;
    let (arch, job) = (config.gpu_arch.0, driver_gate::JobId::unique());
    Ok(Box::new(Gpu::new(gpu, config.heap, 1, arch, job, RUNTIME)?))
}

/// Returns the root of sysfs: `SYSFS_PATH` if set, as in libibverbs, or else `/sys`.
pub fn sysfs_root() -> PathBuf {
    rdma_sysfs::root()
}

/// Returns the maximum size of the queues and team memory of a PE, in bytes.
pub fn queue_memory(config: &Config) -> u64 {
    job::queue_memory(config)
}

/// Returns the GPU that each of the `pes` PEs on this node would use, given that the node has `found` GPUs.
///
/// # Errors
/// - [`Error::Unavailable`](crate::Error::Unavailable): the settings name a missing GPU, or none.
pub fn share_gpus(config: &Config, found: u32, pes: u32) -> Result<Vec<u32>> {
    job::share_gpus(config, found, pes)
}

/// Returns the memory available without swapping, in bytes, from the content of `/proc/meminfo`.
pub fn available_memory(meminfo: &str) -> Option<u64> {
    rushmem_machine::parse_available(meminfo)
}
