//! RDMA devices: which there are, and which PE uses which.

use crate::config::{Config, HeapKind, Nic};
use crate::cuda::{Attributes, Cuda, driver_gate};
use crate::machine::{Gpu, Machine, Native};
use crate::provider::rdma::{self, Candidate, Rdma};
use crate::provider::topology::{Distance, PciPath, assign, distance};
use crate::provider::{Error as NicError, LinkLayer, Provider, sysfs};
use crate::{Error, Result, native};

use super::Decision;

/// RDMA devices that a job uses.
pub(crate) struct Hardware {
    candidates: Vec<Candidate>,
    /// Devices that are left out, and why.
    refused: Vec<String>,
}

pub(super) fn look(config: &Config) -> Result<Decision> {
    let named = match &config.nic {
        Nic::Named(names) => Some(names.as_slice()),
        _ => None,
    };
    let (candidates, mut refused) = rdma::find(named, config).map_err(NicError::from)?;
    if candidates.is_empty() {
        let left_out = !refused.is_empty();
        let why = if left_out { refused.join("; ") } else { "there is no ConnectX".into() };
        return Ok(Decision { left_out, ..Decision::soft(why) });
    }
    let candidates = of_one_link_layer(candidates, &mut refused, named.is_some())?;
    let why = match named {
        Some(_) => "RUSHMEM_NIC names it".into(),
        None => format!("found, with {} active", if candidates.len() == 1 { "a port" } else { "ports" }),
    };
    let left_out = !refused.is_empty();
    Ok(Decision { hardware: Some(Hardware { candidates, refused }), why, left_out })
}

/// PEs can only talk over links of one kind: of devices found, those of the kind that more of them have.
fn of_one_link_layer(
    found: Vec<Candidate>,
    refused: &mut Vec<String>,
    named: bool,
) -> Result<Vec<Candidate>> {
    let (infiniband, ethernet): (Vec<_>, Vec<_>) =
        found.into_iter().partition(|candidate| candidate.link() == LinkLayer::InfiniBand);
    if named && !infiniband.is_empty() && !ethernet.is_empty() {
        let what = "a job over both InfiniBand and Ethernet".into();
        let why = "its PEs could not reach each other; name devices of one kind in RUSHMEM_NIC".into();
        return Err(Error::Unavailable { what, why });
    }
    let (kept, left) =
        if infiniband.len() >= ethernet.len() { (infiniband, ethernet) } else { (ethernet, infiniband) };
    refused.extend(
        left.iter().map(|candidate| format!("{}: most others have another link", candidate.describe())),
    );
    Ok(kept)
}

impl Hardware {
    /// The devices, for a line.
    pub(crate) fn names(&self) -> String {
        self.candidates.iter().map(|candidate| candidate.nic.to_string()).collect::<Vec<_>>().join(", ")
    }

    /// Each device, and what it is like.
    pub(crate) fn describe(&self) -> Vec<String> {
        self.candidates.iter().map(Candidate::describe).collect()
    }

    /// Each device that is left out, and why.
    pub(crate) fn refused(&self) -> &[String] {
        &self.refused
    }

    /// How kernels would ring the first device's doorbell.
    ///
    /// # Errors
    /// What the device or the GPU refuses.
    pub(crate) fn doorbells(&self, config: &Config, gpu: Option<u32>) -> Result<String> {
        let machine: Box<dyn Machine> = match gpu {
            Some(ordinal) => Box::new(Gpu::new(
                Cuda::load()?.device(ordinal)?,
                config.heap,
                1,
                driver_gate::JobId::unique(),
            )?),
            None => Box::new(Native::new(native::Options::default(), 1)),
        };
        let device = Rdma::open(&self.candidates[0], config).map_err(NicError::from)?;
        device.doorbells(&*machine)
    }

    /// Deals the devices among the PEs of this node, `wanted` to each.
    pub(super) fn share(self, gpus: &[u32], on_node: u32, wanted: u32) -> Result<NicAssignment> {
        for why in &self.refused {
            tracing::info!("not used: {why}");
        }
        let root = sysfs::root();
        let place = |pe: u32| -> Result<PciPath> {
            let Some(&gpu) = gpus.get(pe as usize) else { return Ok(PciPath::default()) };
            Ok(PciPath::of_pci(&root, &Cuda::load()?.pci_address(gpu)?))
        };
        let places = (0..on_node).map(place).collect::<Result<Vec<_>>>()?;
        let from = |place: &PciPath| -> Vec<Distance> {
            self.candidates.iter().map(|candidate| distance(place, &candidate.place)).collect()
        };
        let distances: Vec<Vec<Distance>> = places.iter().map(from).collect();
        Ok(NicAssignment {
            by_pe: assign(&distances, wanted as usize),
            distances,
            candidates: self.candidates,
        })
    }
}

/// The devices of each PE of this node.
pub(crate) struct NicAssignment {
    candidates: Vec<Candidate>,
    by_pe: Vec<Vec<usize>>,
    distances: Vec<Vec<Distance>>,
}

impl NicAssignment {
    /// Opens the devices of a PE, best first. Those beyond what it needs stand by, and need not open.
    pub(super) fn open(&self, config: &Config, pe: u32) -> Result<Vec<Box<dyn Provider>>> {
        let mine = self.by_pe.get(pe as usize).map_or(&[][..], Vec::as_slice);
        let mut opened: Vec<Box<dyn Provider>> = Vec::new();
        let mut failed = None;
        for &nic in mine {
            let candidate = &self.candidates[nic];
            match Rdma::open(candidate, config).map_err(NicError::from) {
                Ok(device) => {
                    let near = self.distances[pe as usize][nic].describe();
                    tracing::info!(pe_on_node = pe, "NIC {}, {near}", candidate.describe());
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

pub(super) fn heap(wanted: HeapKind, gpu: &Attributes) -> Result<HeapKind> {
    let why = if !gpu.gpu_direct_rdma {
        "it has no GPUDirect RDMA"
    } else if !gpu.orders_rdma_writes() {
        "its kernels would not see a NIC's writes in their order"
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
            tracing::warn!("{} is not available: {why}; it is in host memory", what());
            Ok(HeapKind::Host)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gpu_memory_is_used_where_writes_stay_in_order() {
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
