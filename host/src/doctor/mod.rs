//! What keeps a machine from running jobs well, and what to do about it: the content of `rushmem doctor`.
//!
//! Two kinds of look: at what the system says of itself ([`examine`]), which explains, and at a job of two PEs that moves a few
//! bytes ([`probe`]), which proves; and at all nodes of a job together ([`job`]). Nothing on the machine is changed, and no privilege is needed; what cannot be seen without is
//! said to be unknown.

mod between;
mod check;
mod explain;
mod gpu;
mod host;
mod job;
mod nic;
mod pci;
mod probe;
mod system;
#[cfg(test)]
mod tests;

use crate::config::{Config, DeviceKind, HeapKind, Nic};
use crate::job::{queue_memory, share_gpus};

pub use self::check::{Check, Kind, Verdict};
pub use self::explain::explain;
pub use self::host::{Host, Saved};

/// All that is looked at.
pub static KINDS: [&Kind; 32] = [
    &gpu::DRIVER,
    &gpu::FIT,
    &gpu::SHARED,
    &gpu::DIRECT,
    &gpu::ORDER,
    &gpu::BAR,
    &gpu::DOORBELL,
    &gpu::TURNS,
    &nic::DEVICE,
    &nic::BUILD,
    &nic::NODE,
    &nic::PORT,
    &nic::ADDRESS,
    &nic::MTU,
    &nic::FUNCTION,
    &nic::COUNTERS,
    &between::NEAREST,
    &between::LINK,
    &between::IOMMU,
    &between::ACS,
    &system::KERNEL,
    &system::MEMORY,
    &system::LOCKED,
    &system::FILES,
    &system::CGROUP,
    &job::PLACES,
    &job::ALIKE,
    &job::PAIRS,
    &probe::CARRIER,
    &probe::DOORBELL,
    &probe::NIC,
    &probe::DIRECT,
];

/// What jobs with given settings need of a machine.
struct Needs {
    /// Kernels must run on GPUs.
    gpu: bool,
    /// There is a ConnectX, and the settings do not turn it down.
    rdma: bool,
    /// The GPU of each PE of this node, where those are processes and not threads of one.
    gpus_of_processes: Vec<u32>,
    /// Bytes of each heap.
    heap: u64,
    nics_per_pe: usize,
    /// Bytes of host memory that the PEs here take.
    host_memory: u64,
}

impl Needs {
    fn new(host: &Host, config: &Config) -> Needs {
        let connectx = !pci::nics(host).is_empty() || nic::devices(host).iter().any(nic::Device::is_connectx);
        let on_gpu = config.device != DeviceKind::Native
            && host.cuda.as_ref().is_ok_and(|driver| !driver.gpus.is_empty());
        let heap = config.heap_bytes.0;
        let in_host = if on_gpu && config.heap != HeapKind::Host { 0 } else { heap };
        // A list of GPUs that there are not is the job's to refuse.
        let gpus_of_processes = match (config.local_pes, &host.cuda) {
            (Some(pes), Ok(driver)) if on_gpu => {
                share_gpus(config, driver.gpus.len() as u32, pes.get()).unwrap_or_default()
            }
            _ => Vec::new(),
        };
        let here = u64::from(config.local_pes.unwrap_or(config.pes).get());
        Needs {
            gpu: config.device == DeviceKind::Gpu,
            rdma: connectx && config.nic != Nic::Soft,
            gpus_of_processes,
            heap,
            nics_per_pe: config.nics_per_pe.get() as usize,
            host_memory: in_host.saturating_add(queue_memory(config)).saturating_mul(here),
        }
    }
}

/// Looks at what a host says of itself, for jobs with these settings: GPUs, NICs, what lies between, the system.
///
/// ```
/// use rushmem::config::Config;
/// use rushmem::doctor::{Host, Verdict, examine};
///
/// let checks = examine(&Host::here(), &Config::default());
/// for check in checks.iter().filter(|check| check.verdict == Verdict::Blocks) {
///     println!("{} {}: {}", check.kind.id, check.kind.about, check.found);
/// }
/// ```
pub fn examine(host: &Host, config: &Config) -> Vec<Check> {
    let needs = Needs::new(host, config);
    [
        gpu::check(host, &needs),
        nic::check(host, &needs),
        between::check(host, &needs),
        system::check(host, &needs),
    ]
    .concat()
}

/// Runs a job of two PEs on this machine, through the NIC and then directly, and compares every byte. Nothing for a host that was
/// saved.
pub fn probe(host: &Host, config: &Config) -> Vec<Check> {
    match host.is_live() {
        true => probe::check(config, host.gpus()),
        false => Vec::new(),
    }
}

/// Compares the nodes of the job that this process was started in, and lets each PE put to each other. Collective among the
/// processes of the job. Gives what PE 0 has to say; nothing at other PEs, unless the job does not come about.
pub fn job(host: &Host, config: &Config) -> Vec<Check> {
    job::check(host, config)
}

/// Bytes for people.
fn mib(bytes: u64) -> String {
    format!("{} MiB", bytes >> 20)
}
