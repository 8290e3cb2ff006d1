//! The pairs of a PE and a NIC on this node, to probe each of them.

use rushmem_config::Config;
use rushmem_error::Result;
use rushmem_machine::Machine;
use rushmem_softnic as softnic;

use super::{Decision, softnic_config};
use crate::provider::topology::Distance;
use crate::provider::{Provider, Recorded, Recorder, Soft};
use crate::queues::{RailSetup, Shape, open_rail};

/// A PE of this node and a NIC that it could use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pair {
    /// Index of the PE on this node.
    pub pe: u32,
    /// GPU of the PE, or `None` for native kernels.
    pub gpu: Option<u32>,
    /// Index of the NIC among those that a job could use.
    pub nic: usize,
    /// Device and port of the NIC.
    pub port: String,
    /// Distance between GPU and NIC. `None` without a GPU or an RDMA device.
    pub distance: Option<Distance>,
    /// Whether a job would use the NIC for this PE, and not only as a spare.
    pub is_used: bool,
}

impl Decision {
    /// Returns all pairs of this node. It has `on_node` PEs, which run on `gpus`, or natively if the list is empty.
    ///
    /// Fails if the settings do not give a NIC to each PE.
    pub fn pairs(&self, config: &Config, gpus: &[u32], on_node: u32) -> Result<Vec<Pair>> {
        let wanted = config.nics_per_pe.get();
        let gpu_of = |pe: u32| gpus.get(pe as usize).copied();
        #[cfg(feature = "rdma")]
        if let Some(hardware) = &self.hardware {
            let shares = hardware.share(gpus, on_node, wanted)?;
            let of_pe = |pe: u32| {
                let (mine, distances) = (&shares.by_pe[pe as usize], &shares.distances[pe as usize]);
                let pair = move |(nic, port)| Pair {
                    pe,
                    gpu: gpu_of(pe),
                    nic,
                    port,
                    distance: gpu_of(pe).map(|_| distances[nic]),
                    is_used: mine.iter().take(wanted as usize).any(|&used| used == nic),
                };
                hardware.ports().into_iter().enumerate().map(pair)
            };
            return Ok((0..on_node).flat_map(of_pe).collect());
        }
        let pair = |(pe, nic): (u32, u32)| Pair {
            pe,
            gpu: gpu_of(pe),
            nic: nic as usize,
            port: format!("software ConnectX {nic}"),
            distance: None,
            is_used: true,
        };
        Ok((0..on_node).flat_map(|pe| (0..wanted).map(move |nic| (pe, nic))).map(pair).collect())
    }

    /// Opens the NIC of a pair. Its commands are recorded.
    ///
    /// Fails if it cannot be opened.
    pub fn open(&self, config: &Config, pair: &Pair, recorder: &Recorder) -> Result<Recorded> {
        Ok(Recorded::new(self.open_nic(config, pair)?, recorder))
    }

    fn open_nic(&self, config: &Config, pair: &Pair) -> Result<Box<dyn Provider>> {
        #[cfg(feature = "rdma")]
        if let Some(hardware) = &self.hardware {
            return hardware.open(pair.nic, config);
        }
        let soft = softnic_config(config, pair.gpu.is_some(), 1)?;
        Ok(Box::new(Soft::new(softnic::Nic::start(soft)?.into())))
    }
}

/// Sets up a rail (one NIC with its queues) for a PE and probes it. Returns a description of its level, and the features
/// that it had to give up compared to the highest level.
///
/// Fails if a job with these settings could not use the NIC.
pub fn try_level(nic: Recorded, config: &Config, machine: &dyn Machine) -> Result<(String, Vec<String>)> {
    let shape = Shape::new(config, 1);
    let heap = machine.heap(shape.reserved(), false)?;
    let (queues, doorbell) = (config.queues, config.doorbell);
    let setup = RailSetup { machine, heap: &heap, shape, queues, doorbell, local_pes: 1 };
    let level = open_rail(Box::new(nic), setup)?.info().level;
    Ok((level.to_string(), level.steps))
}
