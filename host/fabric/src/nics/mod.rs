//! Chooses between RDMA devices and the software ConnectX for a job, and assigns NICs to PEs.
//!
//! A job calls [`Nics::prepare`] once per process and [`Nics::of`] once per PE. `rushmem info` and `rushmem doctor`
//! call [`decide`].

#[cfg(feature = "rdma")]
mod hardware;
mod pairs;

use std::net::ToSocketAddrs;
use std::sync::Arc;
use std::time::Duration;

use rushmem_base::{crowd_deadline, pes_per_core, shared_deadline};
use rushmem_bootstrap::address_towards;
use rushmem_config::{Config, DoorbellRecord, HeapKind, Nic, Switch};
use rushmem_cuda::Attributes;
use rushmem_error::{Error, Result};
use rushmem_observe::trace::{JobTrace, NicTrace};
use rushmem_softnic::{self as softnic, Ip};

#[cfg(not(feature = "rdma"))]
use crate::provider::sysfs;
use crate::provider::{Provider, Soft};

#[cfg(feature = "rdma")]
pub use self::hardware::Hardware;
pub use self::pairs::{Pair, try_level};

/// The RDMA devices in a build without the feature `rdma`. Uninhabited.
#[cfg(not(feature = "rdma"))]
pub type Hardware = std::convert::Infallible;

/// Longest sleep of a software NIC's engine thread between polls, if native kernels wake it. It applies to one PE per
/// core and is scaled up when PEs share cores.
const MAX_SLEEP: Duration = Duration::from_millis(1);

/// The kind of NIC for a job, and why it was chosen.
pub struct Decision {
    /// The RDMA devices, or `None` for the software ConnectX.
    pub hardware: Option<Hardware>,
    /// Reason for the choice, as a phrase for messages.
    pub reason: String,
    /// Whether an RDMA device is left unused although the user might expect otherwise.
    pub is_device_unused: bool,
}

impl Decision {
    fn soft(reason: impl Into<String>) -> Self {
        Self { hardware: None, reason: reason.into(), is_device_unused: false }
    }
}

/// Chooses between RDMA devices and the software ConnectX, given this machine and the settings.
///
/// Fails if the settings name a device that cannot be used.
pub fn decide(config: &Config) -> Result<Decision> {
    match &config.nic {
        Nic::Soft => Ok(Decision::soft("RUSHMEM_NIC=soft")),
        _ => find_hardware(config),
    }
}

#[cfg(feature = "rdma")]
fn find_hardware(config: &Config) -> Result<Decision> {
    hardware::find(config)
}

#[cfg(not(feature = "rdma"))]
fn find_hardware(config: &Config) -> Result<Decision> {
    const BUILD: &str =
        "this build cannot drive RDMA devices; build with `cargo build --release --features rdma`";
    let found = sysfs::devices(&sysfs::root());
    if let Nic::Named(_) | Nic::PerPe(_) = &config.nic {
        let why = format!("{BUILD}, or use RUSHMEM_NIC=soft, the software ConnectX");
        return Err(Error::Unavailable { what: format!("NIC {}", config.nic), why });
    }
    let connectx: Vec<_> =
        found.iter().filter(|(_, connectx)| *connectx).map(|(name, _)| name.as_str()).collect();
    let reason = match (connectx.is_empty(), found.is_empty()) {
        (false, _) => format!("there is {}, but {BUILD}", connectx.join(", ")),
        (true, false) => "none of the RDMA devices is a ConnectX".into(),
        (true, true) => "there is no RDMA device".into(),
    };
    Ok(Decision { is_device_unused: !connectx.is_empty(), ..Decision::soft(reason) })
}

/// The NICs for the PEs of this process.
pub enum Nics {
    /// Software NICs. All PEs of the process share them, so there are only as many as one PE uses (`nics_per_pe`).
    Soft(Vec<SoftNic>),
    /// RDMA devices, assigned to PEs.
    #[cfg(feature = "rdma")]
    Hardware(hardware::NicAssignment),
}

/// A software NIC, with the timeline on which its work is recorded if the job is traced.
pub struct SoftNic {
    nic: Arc<softnic::Nic>,
    trace: Option<Arc<NicTrace>>,
}

impl SoftNic {
    fn start(config: softnic::Config, trace: Option<&JobTrace>) -> Result<Self> {
        let nic = Arc::new(softnic::Nic::start(config)?);
        let trace = trace.map(JobTrace::nic);
        if let Some(trace) = &trace {
            nic.observe(Arc::clone(trace) as _);
        }
        Ok(Self { nic, trace })
    }
}

impl Nics {
    /// Prepares the NICs that [`decide`] chooses, for the `on_node` PEs of this node.
    ///
    /// `gpus` are the GPUs of these PEs, or empty for native kernels. Fails if a named device cannot be used or the
    /// software ConnectX cannot start.
    pub fn prepare(config: &Config, gpus: &[u32], on_node: u32, trace: Option<&JobTrace>) -> Result<Self> {
        let decision = decide(config)?;
        let Some(hardware) = decision.hardware else {
            let reason = &decision.reason;
            if decision.is_device_unused {
                tracing::warn!("traffic goes through the software ConnectX: {reason}");
            } else if config.nic != Nic::Soft && is_first_of_nodes(config) {
                tracing::warn!(
                    "traffic between nodes goes through the software ConnectX, which is slow: {reason}; run `rushmem doctor` \
                     on each node, or accept it with RUSHMEM_NIC=soft"
                );
            } else {
                tracing::info!("traffic goes through the software ConnectX: {}", decision.reason);
            }
            let soft = softnic_config(config, !gpus.is_empty(), on_node)?;
            let start = |_| SoftNic::start(soft.clone(), trace);
            return Ok(Self::Soft((0..config.nics_per_pe.get()).map(start).collect::<Result<_>>()?));
        };
        Self::of_hardware(hardware, &decision.reason, gpus, on_node, config.nics_per_pe.get())
    }

    #[cfg(feature = "rdma")]
    fn of_hardware(
        hardware: Hardware,
        reason: &str,
        gpus: &[u32],
        on_node: u32,
        wanted: u32,
    ) -> Result<Self> {
        tracing::info!("traffic goes through {}: {reason}", hardware.names());
        Ok(Self::Hardware(hardware.assign(gpus, on_node, wanted)?))
    }

    #[cfg(not(feature = "rdma"))]
    fn of_hardware(hardware: Hardware, _: &str, _: &[u32], _: u32, _: u32) -> Result<Self> {
        match hardware {}
    }

    /// Opens the NICs of PE `pe`, which has index `pe_on_node` on this node.
    ///
    /// Fails if a device cannot be opened and fewer than `nics_per_pe` are left.
    #[cfg_attr(not(feature = "rdma"), expect(unused_variables, reason = "all PEs share the software NICs"))]
    pub fn of(&self, config: &Config, pe: u32, pe_on_node: u32) -> Result<Vec<Box<dyn Provider>>> {
        match self {
            Self::Soft(nics) => {
                let open = |SoftNic { nic, trace }: &SoftNic| {
                    let soft = Soft::new(Arc::clone(nic));
                    Box::new(soft.traced_by(trace.clone(), pe)) as Box<dyn Provider>
                };
                Ok(nics.iter().map(open).collect())
            }
            #[cfg(feature = "rdma")]
            Self::Hardware(assignment) => assignment.open(config, pe_on_node),
        }
    }

    /// Shuts down the NICs of this process. No PE may use them any more.
    pub fn close(&mut self) {
        match self {
            Self::Soft(nics) => nics.clear(),
            #[cfg(feature = "rdma")]
            Self::Hardware(_) => {}
        }
    }

    /// Returns whether the heap of a PE on `gpu` is allocated in GPU or host memory. `wanted` is the location requested
    /// by the settings.
    ///
    /// A kernel that has seen a completion or a signal must also see the data before it. With RDMA devices, the heap is
    /// therefore in GPU memory only if the GPU guarantees this. Fails if the settings require GPU memory and the GPU
    /// does not.
    #[cfg_attr(not(feature = "rdma"), expect(unused_variables, reason = "the software ConnectX copies"))]
    pub fn heap(&self, wanted: HeapKind, gpu: &Attributes) -> Result<HeapKind> {
        match self {
            Self::Soft(_) => Ok(wanted),
            #[cfg(feature = "rdma")]
            Self::Hardware(_) => hardware::heap(wanted, gpu),
        }
    }
}

/// Returns whether this process has PE 0 of a job on several nodes. Only this process logs warnings that concern all
/// nodes.
fn is_first_of_nodes(config: &Config) -> bool {
    config.pe == Some(0) && config.n_pes.is_some_and(|n_pes| n_pes.get() > config.pes_on_node())
}

/// Returns the configuration of the software ConnectX, in particular how long its engine thread polls before it sleeps.
///
/// With kernels on a GPU, whose threads all wait for the engine, it polls longer. Native kernels need the CPU cores
/// themselves, and wake the engine. If the engines of several processes share a core, they never poll.
fn softnic_config(config: &Config, gpu: bool, on_node: u32) -> Result<softnic::Config> {
    let mut soft = softnic::Config { ip: fabric(config), ..Default::default() };
    soft.faults = config.softnic_fault.parse().map_err(|error: softnic::FaultError| Error::Unavailable {
        what: "a fault of RUSHMEM_SOFTNIC_FAULT".into(),
        why: error.to_string(),
    })?;
    if !config.softnic_fault.is_empty() {
        tracing::warn!("the software ConnectX injects faults: {:?}", soft.faults);
    }
    if gpu {
        soft.idle = softnic::Idle::patient();
    } else if config.local_pes.is_some() && pes_per_core(on_node) > 1 {
        soft.idle = softnic::Idle::Notified { max_sleep: shared_deadline(MAX_SLEEP, on_node) };
    }
    // On crowded machines a peer has to wait for a core before it can acknowledge.
    soft.retransmit = crowd_deadline(soft.retransmit, on_node);
    soft.no_record = config.doorbell_record == DoorbellRecord::Off;
    soft.shared_memory = config.softnic_shared_memory == Switch::On;
    if config.softnic_port != 0 {
        soft.port = config.softnic_port;
    }
    Ok(soft)
}

/// Returns the address at which the software ConnectX of this process receives packets.
///
/// This is the address in the settings, or else the local address on the route to the launcher. The PEs of a job in a
/// single process communicate over loopback.
fn fabric(config: &Config) -> Ip {
    let Some(server) = &config.server else { return Ip::LoopbackOnly };
    let chosen = Some(config.softnic_ip).filter(|ip| !ip.is_loopback());
    if chosen.is_none() && is_beyond_ipv4(server) {
        tracing::warn!(
            "the job's server has the IPv6 address {server}, and the software ConnectX has no IPv6: it reaches only PEs of \
             this machine, unless RUSHMEM_SOFTNIC_IP is the IPv4 address of each node"
        );
    }
    match chosen.or_else(|| address_towards(server)) {
        Some(ip) if !ip.is_loopback() => Ip::Addr(ip),
        _ => Ip::AnyLoopback,
    }
}

/// Returns whether `server` resolves only to IPv6 addresses, none of which is a loopback address.
fn is_beyond_ipv4(server: &str) -> bool {
    let Ok(mut addresses) = server.to_socket_addrs() else { return false };
    addresses.all(|addr| addr.is_ipv6() && !addr.ip().is_loopback())
}
