//! Checks of machines and jobs, with remedies. Implements `rushmem doctor` and `rushmem explain`.
//!
//! [`examine`] reads the state of the system. [`probe`] runs jobs of two PEs that transfer a few bytes and verify them.
//! [`job`] checks all nodes of a job together. Checks change nothing and need no privileges. State that only root can
//! read is reported as unknown.

mod check;
mod explain;
mod facts;
mod gpu;
mod host;
mod interfaces;
mod job;
#[cfg(test)]
mod machines;
mod nic;
mod pci;
mod probe;
mod storage;
mod system;
#[cfg(test)]
mod tests;
mod topology;

use rushmem::config::{Config, DeviceKind, HeapKind, Nic, RelaxedOrdering};
use rushmem::inspect::{queue_memory, share_gpus};

pub use self::check::{Check, Finding, Verdict};
pub use self::explain::{explain, suggest};
pub use self::facts::Record;
pub use self::host::Host;
pub use self::probe::ProbedPairs;

/// All checks of `rushmem doctor`, grouped by subject.
pub static CHECKS: [&Check; 35] = [
    &gpu::DRIVER,
    &gpu::FIT,
    &gpu::SHARED,
    &gpu::GPUDIRECT,
    &gpu::ORDER,
    &gpu::BAR,
    &gpu::DOORBELL,
    &gpu::TURNS,
    &gpu::SHARE,
    &nic::DEVICE,
    &nic::BUILD,
    &nic::NODE,
    &nic::PORT,
    &nic::ADDRESS,
    &nic::MTU,
    &nic::FUNCTION,
    &nic::COUNTERS,
    &topology::NEAREST,
    &topology::LINK,
    &topology::IOMMU,
    &topology::ACS,
    &system::KERNEL,
    &system::MEMORY,
    &system::LOCKED,
    &system::FILES,
    &system::CGROUP,
    &storage::STORAGE,
    &job::LOCATIONS,
    &job::ALIKE,
    &job::PAIRS,
    &probe::CARRIER,
    &probe::DOORBELL,
    &probe::NIC,
    &probe::P2P,
    &probe::LEVEL,
];

/// What jobs with given settings require of the machine.
struct Needs {
    /// Whether kernels must run on GPUs.
    gpu: bool,
    /// Whether the machine has a ConnectX and the settings allow its use.
    rdma: bool,
    /// The GPU of each PE on this node, if PEs are processes.
    gpus_of_processes: Vec<u32>,
    /// Size of each PE's symmetric heap, in bytes.
    heap: u64,
    nics_per_pe: usize,
    /// Host memory for all PEs on this node, in bytes.
    host_memory: u64,
    /// Memory that NICs lock for all PEs on this node, in bytes. Linux counts it once per key.
    locked_memory: u64,
}

impl Needs {
    fn new(host: &Host, config: &Config) -> Needs {
        let connectx = !pci::nics(host).is_empty() || nic::devices(host).iter().any(nic::Device::is_connectx);
        let on_gpu = config.device != DeviceKind::Native
            && host.cuda.as_ref().is_ok_and(|driver| !driver.gpus.is_empty());
        let heap = config.heap_bytes.0;
        let in_host = if on_gpu && config.heap != HeapKind::Host { 0 } else { heap };
        // The job itself rejects a list with missing GPUs.
        let gpus_of_processes = match (config.local_pes, &host.cuda) {
            (Some(pes), Ok(driver)) if on_gpu => {
                share_gpus(config, driver.gpus.len() as u32, pes.get()).unwrap_or_default()
            }
            _ => Vec::new(),
        };
        let here = u64::from(config.pes_on_node());
        let nics = u64::from(config.nics_per_pe.get());
        let keys = match config.relaxed_ordering {
            RelaxedOrdering::On => 2 * nics,
            RelaxedOrdering::Auto if nics > 1 => 2 * nics,
            RelaxedOrdering::Auto | RelaxedOrdering::Off => nics,
        };
        let on_pes = |heap: u64| heap.saturating_add(queue_memory(config)).saturating_mul(here);
        Needs {
            gpu: config.device == DeviceKind::Gpu,
            rdma: connectx && config.nic != Nic::Soft,
            gpus_of_processes,
            heap,
            nics_per_pe: config.nics_per_pe.get() as usize,
            host_memory: on_pes(in_host),
            locked_memory: on_pes(in_host.saturating_mul(keys)),
        }
    }
}

/// Checks GPUs, NICs, the paths between them and the system of a host, for jobs with these settings.
///
/// ```
/// use rushmem::config::Config;
/// use rushmem_doctor::{Host, Verdict, examine};
///
/// let checks = examine(&Host::here(), &Config::default());
/// for check in checks.iter().filter(|check| check.verdict == Verdict::Blocks) {
///     println!("{} {}: {}", check.check.id, check.check.about, check.found);
/// }
/// ```
pub fn examine(host: &Host, config: &Config) -> Vec<Finding> {
    let needs = Needs::new(host, config);
    [
        gpu::check(host, &needs),
        nic::check(host, &needs),
        topology::check(host, &needs),
        system::check(host, &needs),
        storage::check(host, config.storage),
    ]
    .concat()
}

/// Probes the NIC of each PE, and runs two jobs of two PEs on this machine, one through the NIC and one over P2P, which
/// verify every byte.
///
/// For a recorded host, returns the findings about its recorded probes, if there are any.
pub fn probe(host: &Host, config: &Config, pairs: ProbedPairs) -> Vec<Finding> {
    if host.is_live() {
        host.probes.get_or_init(|| probe::gather(config, host.gpus(), pairs));
    }
    host.probes.get().map(probe::judge).unwrap_or_default()
}

/// Compares the nodes of the job of this process, and puts from each PE to each other PE or, in a large job, to some.
/// Collective among the processes of the job.
///
/// Returns all findings on PE 0, and none on other PEs. If the job cannot start, each process returns its own findings.
pub fn job(host: &Host, config: &Config) -> Vec<Finding> {
    job::judge(host, config, host.job.get_or_init(|| job::gather(host, config)))
}

/// Reads further state of the machine that no check uses, but that a [`Record`] for a report should have.
pub fn read_further(host: &Host) {
    nic::read_further(host);
}

/// Repeats the checks of a record, of a machine or a job. Returns the findings that they had there.
///
/// # Errors
/// The errors of [`Record::config`].
pub fn replay(record: Record) -> Result<Vec<Finding>, rushmem::config::Error> {
    let config = record.config()?;
    let host = Host::of(record);
    Ok(match host.job.get() {
        Some(facts) => job::judge(&host, &config, facts),
        None => [examine(&host, &config), probe(&host, &config, ProbedPairs::Used)].concat(),
    })
}

/// Returns the first finding of something that does not work. Later ones may be consequences.
pub fn blocked(findings: &[Finding]) -> Option<&Finding> {
    findings.iter().find(|finding| finding.verdict == Verdict::Blocks)
}

/// Formats bytes as MiB.
fn mib(bytes: u64) -> String {
    format!("{} MiB", bytes >> 20)
}
