//! Which NICs a job uses, and which of them each PE.

#[cfg(feature = "rdma")]
mod hardware;

use std::net::{IpAddr, Ipv4Addr, ToSocketAddrs, UdpSocket};
use std::sync::Arc;

use rushmem_softnic::{self as softnic, Ip};

use crate::config::{Config, HeapKind, Nic};
use crate::cuda::Attributes;
#[cfg(not(feature = "rdma"))]
use crate::provider::sysfs;
use crate::provider::{Provider, Soft};
use crate::{Error, Result};

#[cfg(feature = "rdma")]
pub(crate) use self::hardware::Hardware;

/// Stands where a build without the feature has no hardware.
#[cfg(not(feature = "rdma"))]
pub(crate) type Hardware = std::convert::Infallible;

/// What would carry a job's traffic, and why.
pub(crate) struct Decision {
    /// RDMA devices; none for the software ConnectX.
    pub(crate) hardware: Option<Hardware>,
    /// Why.
    pub(crate) why: String,
    /// There is an RDMA device that is not used, which its owner might not expect.
    pub(crate) left_out: bool,
}

impl Decision {
    fn soft(why: impl Into<String>) -> Self {
        Self { hardware: None, why: why.into(), left_out: false }
    }
}

/// Decides between hardware and software, on this machine and with these settings.
///
/// # Errors
/// A named device that cannot be used.
pub(crate) fn decide(config: &Config) -> Result<Decision> {
    match &config.nic {
        Nic::Soft => Ok(Decision::soft("RUSHMEM_NIC=soft")),
        _ => look(config),
    }
}

#[cfg(feature = "rdma")]
fn look(config: &Config) -> Result<Decision> {
    hardware::look(config)
}

#[cfg(not(feature = "rdma"))]
fn look(config: &Config) -> Result<Decision> {
    use crate::config::NicPort;
    const BUILD: &str =
        "this build cannot drive RDMA devices; build with `cargo build --release --features rdma`";
    let found = sysfs::devices(&sysfs::root());
    if let Nic::Named(names) = &config.nic {
        let names: Vec<_> = names.iter().map(NicPort::to_string).collect();
        let why = format!("{BUILD}, or use RUSHMEM_NIC=soft, the software ConnectX");
        return Err(Error::Unavailable { what: format!("NIC {}", names.join(", ")), why });
    }
    let connectx: Vec<_> =
        found.iter().filter(|(_, connectx)| *connectx).map(|(name, _)| name.as_str()).collect();
    let why = match (connectx.is_empty(), found.is_empty()) {
        (false, _) => format!("there is {}, but {BUILD}", connectx.join(", ")),
        (true, false) => "none of the RDMA devices is a ConnectX".into(),
        (true, true) => "there is no RDMA device".into(),
    };
    Ok(Decision { left_out: !connectx.is_empty(), ..Decision::soft(why) })
}

/// The NICs of the PEs of this process.
pub(crate) enum Nics {
    /// The software NICs that they share: as many as a PE uses.
    Soft(Vec<Arc<softnic::Nic>>),
    /// RDMA devices.
    #[cfg(feature = "rdma")]
    Hardware(hardware::NicAssignment),
}

impl Nics {
    /// Takes what [`decide`] says, for PEs of this node on these GPUs (none for native kernels).
    ///
    /// # Errors
    /// A named device that cannot be used; a software ConnectX that cannot start.
    pub(crate) fn prepare(config: &Config, gpus: &[u32], on_node: u32) -> Result<Self> {
        let decision = decide(config)?;
        let Some(hardware) = decision.hardware else {
            if decision.left_out {
                tracing::warn!("traffic goes through the software ConnectX: {}", decision.why);
            } else {
                tracing::info!("traffic goes through the software ConnectX: {}", decision.why);
            }
            let soft = softnic_config(config, !gpus.is_empty())?;
            let start = |_| softnic::Nic::start(soft.clone()).map(Arc::new);
            return Ok(Self::Soft((0..config.nics_per_pe.get()).map(start).collect::<Result<_, _>>()?));
        };
        Self::of_hardware(hardware, &decision.why, gpus, on_node, config.nics_per_pe.get())
    }

    #[cfg(feature = "rdma")]
    fn of_hardware(hardware: Hardware, why: &str, gpus: &[u32], on_node: u32, wanted: u32) -> Result<Self> {
        tracing::info!("traffic goes through {}: {why}", hardware.names());
        Ok(Self::Hardware(hardware.share(gpus, on_node, wanted)?))
    }

    #[cfg(not(feature = "rdma"))]
    fn of_hardware(hardware: Hardware, _: &str, _: &[u32], _: u32, _: u32) -> Result<Self> {
        match hardware {}
    }

    /// The NICs of the PE with this number on its node, opened for it.
    ///
    /// # Errors
    /// What a device refuses.
    #[cfg_attr(not(feature = "rdma"), expect(unused_variables, reason = "there is one NIC for all"))]
    pub(crate) fn of(&self, config: &Config, pe_on_node: u32) -> Result<Vec<Box<dyn Provider>>> {
        match self {
            Self::Soft(nics) => {
                let open =
                    |nic: &Arc<softnic::Nic>| Box::new(Soft::new(Arc::clone(nic))) as Box<dyn Provider>;
                Ok(nics.iter().map(open).collect())
            }
            #[cfg(feature = "rdma")]
            Self::Hardware(shares) => shares.open(config, pe_on_node),
        }
    }

    /// Where the heap of a PE on this GPU lies, if the settings ask for `wanted`. Data that an RDMA device writes into
    /// GPU memory must be there for a kernel that has seen the completion or the signal behind it.
    ///
    /// # Errors
    /// GPU memory was asked for, and cannot be.
    #[cfg_attr(not(feature = "rdma"), expect(unused_variables, reason = "the software ConnectX copies"))]
    pub(crate) fn heap(&self, wanted: HeapKind, gpu: &Attributes) -> Result<HeapKind> {
        match self {
            Self::Soft(_) => Ok(wanted),
            #[cfg(feature = "rdma")]
            Self::Hardware(_) => hardware::heap(wanted, gpu),
        }
    }
}

/// A kernel on a GPU waits for the engine with all of its threads, so the engine then polls for longer before it
/// sleeps; native kernels need the cores themselves.
fn softnic_config(config: &Config, gpu: bool) -> Result<softnic::Config> {
    let mut soft = softnic::Config { ip: fabric(config)?, ..Default::default() };
    soft.faults = config.softnic_fault.parse().map_err(|error: softnic::FaultError| Error::Unavailable {
        what: "a fault of RUSHMEM_SOFTNIC_FAULT".into(),
        why: error.to_string(),
    })?;
    if !config.softnic_fault.is_empty() {
        tracing::warn!("the software ConnectX injects faults: {:?}", soft.faults);
    }
    if gpu {
        soft.idle = softnic::Idle::patient();
    }
    if config.softnic_port != 0 {
        soft.port = config.softnic_port;
    }
    Ok(soft)
}

/// Where the software fabric of this process binds: nowhere for a job of threads, the address that reaches the
/// launcher otherwise, unless the user chose one.
fn fabric(config: &Config) -> Result<Ip> {
    let Some(server) = &config.server else { return Ok(Ip::LoopbackOnly) };
    let chosen = match config.softnic_ip {
        IpAddr::V4(ip) if !ip.is_loopback() => Some(ip),
        IpAddr::V4(_) => None,
        IpAddr::V6(ip) => {
            return Err(Error::Unavailable {
                what: format!("the software ConnectX on {ip}"),
                why: "its fabric is IPv4 only; give RUSHMEM_SOFTNIC_IP an IPv4 address".into(),
            });
        }
    };
    Ok(match chosen.or_else(|| towards(server)) {
        Some(ip) if !ip.is_loopback() => Ip::Addr(ip),
        _ => Ip::AnyLoopback,
    })
}

/// This machine's address on the way to `server`.
fn towards(server: &str) -> Option<Ipv4Addr> {
    let to = server.to_socket_addrs().ok()?.find(|a| a.is_ipv4())?;
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    socket.connect(to).ok()?;
    match socket.local_addr().ok()?.ip() {
        IpAddr::V4(ip) => Some(ip),
        IpAddr::V6(_) => None,
    }
}
