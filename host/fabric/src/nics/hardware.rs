//! Finds the RDMA devices of this machine that a job can use, and assigns them to its PEs.

use rushmem_config::{Config, HeapKind, Nic, NicPort};
use rushmem_cuda::{Attributes, Cuda};
use rushmem_error::{Error, NicError, Result};
use rushmem_machine::Machine;

use super::Decision;
use crate::provider::rdma::{self, Candidate, Rdma};
use crate::provider::topology::{Distance, PciPath, assign, distance};
use crate::provider::{LinkLayer, Provider, sysfs};

/// The RDMA devices that a job can use.
pub struct Hardware {
    candidates: Vec<Candidate>,
    /// Names of the RDMA devices that the job does not use, each with the reason.
    unused: Vec<String>,
    /// Number of PEs of each device, if the settings specify it.
    shares: Option<Vec<u32>>,
}

/// Chooses between RDMA devices and the software ConnectX according to the settings. Falls back to the software
/// ConnectX if no RDMA device is usable.
pub(super) fn find(config: &Config) -> Result<Decision> {
    let is_named = matches!(config.nic, Nic::Named(_) | Nic::PerPe(_));
    let (candidates, mut unused) = rdma::find(config).map_err(NicError::from)?;
    if candidates.is_empty() {
        unused.extend(rdma::foreign().into_iter().map(|name| format!("{name}: it is not a ConnectX")));
        let is_device_unused = !unused.is_empty();
        let reason = if is_device_unused { unused.join("; ") } else { "there is no ConnectX".into() };
        return Ok(Decision { is_device_unused, ..Decision::soft(reason) });
    }
    let candidates = of_one_link_layer(candidates, &mut unused, is_named)?;
    let reason = match is_named {
        true => "RUSHMEM_NIC names it".into(),
        false => format!("found, with {} active", if candidates.len() == 1 { "a port" } else { "ports" }),
    };
    let is_device_unused = !unused.is_empty();
    let shares = match &config.nic {
        Nic::PerPe(shares) => Some(shares.iter().map(|share| share.pes.get()).collect()),
        _ => None,
    };
    Ok(Decision { hardware: Some(Hardware { candidates, unused, shares }), reason, is_device_unused })
}

/// Keeps the devices with the more frequent link layer, since PEs cannot communicate across link layers.
///
/// Moves the others to `unused`. Fails if the user named devices of both link layers.
fn of_one_link_layer(found: Vec<Candidate>, unused: &mut Vec<String>, named: bool) -> Result<Vec<Candidate>> {
    let (infiniband, ethernet): (Vec<_>, Vec<_>) =
        found.into_iter().partition(|candidate| candidate.link() == LinkLayer::InfiniBand);
    if named && !infiniband.is_empty() && !ethernet.is_empty() {
        let what = "a job over both InfiniBand and Ethernet".into();
        let why =
            "its PEs could not reach each other; name devices with one link layer in RUSHMEM_NIC".into();
        return Err(Error::Unavailable { what, why });
    }
    let (kept, left) =
        if infiniband.len() >= ethernet.len() { (infiniband, ethernet) } else { (ethernet, infiniband) };
    unused.extend(
        left.iter()
            .map(|candidate| format!("{}: most other NICs have another link layer", candidate.describe())),
    );
    Ok(kept)
}

impl Hardware {
    pub fn names(&self) -> String {
        self.candidates.iter().map(|candidate| candidate.nic.to_string()).collect::<Vec<_>>().join(", ")
    }

    pub fn describe(&self) -> Vec<String> {
        self.candidates.iter().map(Candidate::describe).collect()
    }

    /// Returns the names of the RDMA devices that a job does not use, each with the reason.
    pub fn unused(&self) -> &[String] {
        &self.unused
    }

    /// Checks how kernels would ring doorbells on device `nic`: creates a UAR page, and maps it for kernels if it can.
    /// Returns a description for messages.
    ///
    /// Fails if the device cannot be opened, or if kernels of this machine cannot ring.
    pub fn try_doorbells(&self, nic: usize, config: &Config, machine: &dyn Machine) -> Result<String> {
        let device = Rdma::open(&self.candidates[nic], config).map_err(NicError::from)?;
        device.try_doorbells(machine)
    }

    /// Opens device `nic`.
    pub(super) fn open(&self, nic: usize, config: &Config) -> Result<Box<dyn Provider>> {
        Ok(Box::new(Rdma::open(&self.candidates[nic], config).map_err(NicError::from)?))
    }

    /// Returns the device and port of each NIC.
    pub(super) fn ports(&self) -> Vec<String> {
        let port = |candidate: &Candidate| {
            let NicPort { device, port } = &candidate.nic;
            port.map_or_else(|| device.clone(), |port| format!("{device} port {port}"))
        };
        self.candidates.iter().map(port).collect()
    }

    /// Assigns the devices to the `on_node` PEs of this node, up to `wanted` per PE.
    pub(super) fn assign(self, gpus: &[u32], on_node: u32, wanted: u32) -> Result<NicAssignment> {
        for reason in &self.unused {
            tracing::info!("not used: {reason}");
        }
        let Shares { by_pe, distances } = self.share(gpus, on_node, wanted)?;
        for nic in (0..self.candidates.len()).filter(|nic| by_pe.iter().all(|mine| !mine.contains(nic))) {
            tracing::info!("not used, not even as a spare: {}", self.candidates[nic].describe());
        }
        Ok(NicAssignment { by_pe, distances, candidates: self.candidates })
    }

    /// Returns the devices of each of the `on_node` PEs of this node, up to `wanted` per PE, and the distances.
    pub(super) fn share(&self, gpus: &[u32], on_node: u32, wanted: u32) -> Result<Shares> {
        let root = sysfs::root();
        let gpu_of = |pe: u32| -> Result<PciPath> {
            // Native kernels have no GPU: an unknown location is equally far from all NICs.
            let Some(&gpu) = gpus.get(pe as usize) else { return Ok(PciPath::default()) };
            Ok(PciPath::of_pci(&root, &Cuda::load()?.pci_address(gpu)?))
        };
        let gpus = (0..on_node).map(gpu_of).collect::<Result<Vec<_>>>()?;
        let distances_from = |gpu: &PciPath| -> Vec<Distance> {
            self.candidates.iter().map(|candidate| distance(gpu, &candidate.location)).collect()
        };
        let distances: Vec<Vec<Distance>> = gpus.iter().map(distances_from).collect();
        let network = |nic: usize| self.candidates[nic].network();
        let can_replace = |nic, used| network(nic) == network(used);
        let by_pe = match &self.shares {
            Some(shares) => in_shares(shares, on_node)?,
            None => assign(&distances, wanted as usize, can_replace),
        };
        Ok(Shares { by_pe, distances })
    }
}

/// The devices of the PEs of a node.
pub(super) struct Shares {
    /// For each PE of the node, the indices of its devices, in order of preference.
    pub(super) by_pe: Vec<Vec<usize>>,
    /// `distances[pe][nic]` is the PCIe distance between a PE's GPU and a device.
    pub(super) distances: Vec<Vec<Distance>>,
}

/// Assigns the NICs to `on_node` PEs in order, each to the number of PEs in its share.
fn in_shares(shares: &[u32], on_node: u32) -> Result<Vec<Vec<usize>>> {
    let nics = (0..).zip(shares).flat_map(|(nic, &pes)| std::iter::repeat_n(nic, pes as usize));
    let by_pe: Vec<Vec<usize>> = nics.take(on_node as usize).map(|nic| vec![nic]).collect();
    if by_pe.len() < on_node as usize {
        let what = format!("a NIC for each of the {on_node} PEs of this node");
        let why = format!("RUSHMEM_NIC has ports for {} PEs; raise its DEVICE:PORT:PES", by_pe.len());
        return Err(Error::Unavailable { what, why });
    }
    Ok(by_pe)
}

/// The RDMA devices assigned to the PEs of this node.
pub struct NicAssignment {
    candidates: Vec<Candidate>,
    /// For each PE of the node, the indices of its devices in `candidates`, in order of preference.
    by_pe: Vec<Vec<usize>>,
    /// `distances[pe][nic]` is the PCIe distance between a PE's GPU and a device.
    distances: Vec<Vec<Distance>>,
}

impl NicAssignment {
    /// Opens the devices of PE `pe`, nearest first.
    ///
    /// The devices after the first `nics_per_pe` are spares. Fails if a device cannot be opened and fewer than
    /// `nics_per_pe` remain.
    pub(super) fn open(&self, config: &Config, pe: u32) -> Result<Vec<Box<dyn Provider>>> {
        let mine = self.by_pe.get(pe as usize).map_or(&[][..], Vec::as_slice);
        let mut opened: Vec<Box<dyn Provider>> = Vec::new();
        let mut failed = None;
        for &nic in mine {
            let candidate = &self.candidates[nic];
            match Rdma::open(candidate, config).map_err(NicError::from) {
                Ok(device) => {
                    let distance = self.distances[pe as usize][nic].describe();
                    tracing::info!(pe_on_node = pe, "NIC {}, {distance}", candidate.describe());
                    opened.push(Box::new(device));
                }
                Err(error) => {
                    tracing::warn!("not used: {error}");
                    failed.get_or_insert(error);
                }
            }
        }
        match failed {
            Some(error) if opened.len() < config.nics_per_pe.get() as usize => Err(error.into()),
            _ => Ok(opened),
        }
    }
}

/// Returns whether the heap of a PE on `gpu` is in GPU or host memory. See [`Nics::heap`](super::Nics::heap).
pub(super) fn heap(wanted: HeapKind, gpu: &Attributes) -> Result<HeapKind> {
    let why = if !gpu.gpu_direct_rdma {
        "the GPU has no GPUDirect RDMA"
    } else if !gpu.orders_rdma_writes() {
        "its kernels would not see the writes of a NIC in order"
    } else {
        return Ok(wanted);
    };
    let what = || format!("a symmetric heap in the memory of {} for RDMA", gpu.name);
    match wanted {
        HeapKind::Host => Ok(HeapKind::Host),
        HeapKind::Device => {
            let why = format!("{why}; use RUSHMEM_HEAP=host");
            Err(Error::Unavailable { what: what(), why })
        }
        HeapKind::Auto => {
            tracing::warn!("{} is not available: {why}; the heap is in host memory", what());
            Ok(HeapKind::Host)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_give_ports_to_pes_in_order() {
        assert_eq!(in_shares(&[1, 3], 3).unwrap(), [[0], [1], [1]]);
        let text = in_shares(&[1, 3], 5).unwrap_err().to_string();
        assert!(text.contains("ports for 4 PEs"), "{text}");
    }

    #[test]
    fn uses_gpu_memory_that_orders_writes() {
        let gpu = |gpu_direct_rdma, gpu_direct_rdma_writes_ordering| Attributes {
            gpu_direct_rdma,
            gpu_direct_rdma_writes_ordering,
            ..Attributes::sample()
        };
        for kind in [HeapKind::Auto, HeapKind::Device, HeapKind::Host] {
            assert_eq!(heap(kind, &gpu(true, 100)).unwrap(), kind);
            assert_eq!(heap(kind, &gpu(true, 200)).unwrap(), kind);
        }
        for unfit in [gpu(false, 100), gpu(true, 0)] {
            assert_eq!(heap(HeapKind::Auto, &unfit).unwrap(), HeapKind::Host);
            assert_eq!(heap(HeapKind::Host, &unfit).unwrap(), HeapKind::Host);
            let text = heap(HeapKind::Device, &unfit).unwrap_err().to_string();
            assert!(text.contains("RUSHMEM_HEAP=host"), "{text}");
        }
    }
}
