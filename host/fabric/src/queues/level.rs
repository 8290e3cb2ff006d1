//! Describes the level of a rail: whether its queues are in GPU memory, and who writes its doorbells.

use rushmem_machine::Region;

use crate::provider::{DoorbellForm, DoorbellWriter, LinkLayer, NicKind, Provider};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueLocation {
    Gpu,
    Host,
}

/// The NIC of a rail and the features in use, for the summary of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RailLevel {
    pub nic: String,
    pub kind: NicKind,
    pub link: LinkLayer,
    /// Rate of the port in Gb/s, if known.
    pub gbps: Option<u32>,
    pub queues_on_gpu: bool,
    pub heap_on_gpu: bool,
    /// Whether a CPU thread writes the doorbells on behalf of kernels.
    pub cpu_rings: bool,
    /// Whether kernels ring doorbells without updating a doorbell record.
    pub no_record: bool,
    /// Whether puts and gets use relaxed keys.
    pub relaxed_keys: bool,
    /// Each feature that the rail had to give up compared to the highest level, with the reason.
    pub steps: Vec<String>,
}

impl RailLevel {
    pub(super) fn new(
        nic: &dyn Provider,
        queues: QueueLocation,
        heap: &Region,
        (writer, form): (&DoorbellWriter, DoorbellForm),
        relaxed_keys: bool,
    ) -> Self {
        let port = nic.port();
        let (cpu_rings, steps) = match writer {
            DoorbellWriter::Kernels => (false, Vec::new()),
            DoorbellWriter::CpuThread { cause: None } => (true, Vec::new()),
            DoorbellWriter::CpuThread { cause: Some(cause) } => {
                (true, vec![format!("a CPU thread writes the doorbells, because {cause}")])
            }
        };
        Self {
            nic: nic.name(),
            kind: port.kind,
            link: port.link,
            gbps: nic.gbps(),
            queues_on_gpu: queues == QueueLocation::Gpu,
            heap_on_gpu: heap.memory.host_ptr().is_none(),
            cpu_rings,
            no_record: form == DoorbellForm::NoRecord,
            relaxed_keys,
            steps,
        }
    }
}

impl std::fmt::Display for RailLevel {
    /// Formats link, rate and level, without the NIC's name.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let memory = |on_gpu| if on_gpu { "GPU" } else { "host" };
        f.write_str(match self.link {
            LinkLayer::Ethernet => "RoCE",
            LinkLayer::InfiniBand => "InfiniBand",
        })?;
        if let Some(gbps) = self.gbps {
            write!(f, " {gbps} Gb/s")?;
        }
        let writer = if self.cpu_rings { "a CPU thread" } else { "kernels" };
        let (queues, heap) = (memory(self.queues_on_gpu), memory(self.heap_on_gpu));
        let record = if self.no_record { " without records" } else { "" };
        write!(f, ", queues in {queues} memory, doorbells{record} by {writer}, heap in {heap} memory")?;
        f.write_str(if self.relaxed_keys { ", relaxed ordering of data" } else { "" })
    }
}
