//! Inspects the devices of a machine and predicts what a job would choose, for tools such as `rushmem doctor`.
//!
//! These functions read the machine and the settings. They do not change anything or start a job.

use std::path::PathBuf;

use rushmem_fabric::nics::Decision;
use rushmem_fabric::provider::sysfs as rdma_sysfs;
use rushmem_fabric::provider::topology::{self, Distance, PciPath};
#[cfg(feature = "rdma")]
use rushmem_machine::{Gpu, Machine, Native};

use crate::config::Config;
#[cfg(feature = "rdma")]
use crate::cuda::{Cuda, Device, driver_gate};
#[cfg(feature = "rdma")]
use crate::modules::RUNTIME;
#[cfg(feature = "rdma")]
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

    /// Creates a UAR page and maps it for kernels as a job does, on GPU `gpu` if given. Returns a description of how
    /// kernels would ring doorbells.
    ///
    /// Returns `None` for the software ConnectX.
    #[cfg_attr(not(feature = "rdma"), expect(unused_variables, reason = "needs an RDMA device"))]
    pub fn try_doorbells(&self, config: &Config, gpu: Option<u32>) -> Option<Result<String>> {
        #[cfg(feature = "rdma")]
        return self.decision.hardware.as_ref().map(|hardware| {
            let machine = kernel_machine(config, gpu)?;
            hardware.try_doorbells(0, config, &*machine)
        });
        #[cfg(not(feature = "rdma"))]
        None
    }

    /// Sets up the queues of a PE and posts to them as a job does, on GPU `gpu` if given.
    ///
    /// Returns a description of the rail's level (where its queues and heap are, and who writes the doorbells), and the
    /// features it had to give up compared to the highest level.
    ///
    /// Returns `None` for the software ConnectX.
    #[cfg_attr(not(feature = "rdma"), expect(unused_variables, reason = "needs an RDMA device"))]
    pub fn try_level(&self, config: &Config, gpu: Option<u32>) -> Option<Result<(String, Vec<String>)>> {
        #[cfg(feature = "rdma")]
        return self.decision.hardware.as_ref().map(|hardware| {
            let machine = kernel_machine(config, gpu)?;
            hardware.try_level(config, &*machine)
        });
        #[cfg(not(feature = "rdma"))]
        None
    }
}

/// Returns the machine that runs kernels: GPU `gpu`, or the native emulator if there is none.
#[cfg(feature = "rdma")]
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
