//! Drives RDMA devices supported by libmlx5 (ConnectX NICs) for PEs.
//!
//! Each PE opens its own devices, and uses one port of each. The types of verbs come from the crate `rdma-sys`.
//! Functions are those of libibverbs and of libmlx5, whose DevX carries PRM commands; `ffi` loads them.

mod context;
mod counters;
mod data_direct;
mod doorbell;
mod events;
mod ffi;
mod gid;
mod memory;
mod network;
mod path;
mod peer_memory;
mod port;
mod remedy;
mod uar;

use std::sync::Arc;

use rushmem_config::{AddressRange, Config, Nic, NicNames, NicPort};
use rushmem_error::{NicError, RdmaError};
use rushmem_machine::{Machine, Region};
use rushmem_mlx5::prm::Response;
use rushmem_mlx5::prm::caps::{AtomicCaps, Capability, QueryHcaCap, QueryHcaCapOut, RoceCap};
use rushmem_mlx5::prm::qp::{AddressPath, Mtu};

use self::context::{Context, Devices};
use self::data_direct::DataDirect;
use self::events::Events;
use self::memory::{RdmaPd, RdmaUmem, SharedPd};
use self::path::Paths;
use self::port::Port;
use self::uar::Doorbells;
use super::sysfs;
use super::topology::PciPath;
use super::{LinkLayer, NicEvent, Object, Pd, PortAddress, Provider, Uar, Umem, WantedUars};

/// An RDMA device and port that passed the checks. The device is not open.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// Device name and port number.
    pub nic: NicPort,
    /// Device name and PCI address, for messages.
    pub title: String,
    /// Location of the PCI function through which peers access GPU memory.
    pub location: PciPath,
    port: Port,
    data_direct: DataDirect,
}

impl Candidate {
    pub fn describe(&self) -> String {
        let port = &self.port.address;
        let data_direct = self.data_direct.describe();
        format!("{} port {}, {port}, MTU {}{data_direct}", self.title, port.number, port.mtu)
    }

    pub fn link(&self) -> LinkLayer {
        self.port.address.link
    }

    /// Returns the network of the port's address, if known.
    pub fn network(&self) -> Option<AddressRange> {
        self.port.network
    }
}

/// Returns the RDMA devices that a job can use, and for each of the others the reason why it cannot.
///
/// Considers the devices that the settings select. Fails if a setting names no device, or one that is unusable.
pub fn find(config: &Config) -> Result<(Vec<Candidate>, Vec<String>), RdmaError> {
    let devices = match Devices::find() {
        Ok(devices) => devices,
        Err(error) if matches!(config.nic, Nic::PerPe(_) | Nic::Named(_)) => return Err(error),
        // Without a ConnectX, nobody misses the libraries.
        Err(error) => return Ok((Vec::new(), of_sysfs(&error))),
    };
    let all: Vec<String> = devices.iter().map(|device| device.name).collect();
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    let connectx: Vec<String> =
        devices.iter().filter(|device| device.is_mlx5).map(|device| device.name).collect();
    let whole = |name: &str| NicPort { device: name.into(), port: None };
    let mut found = Found::default();
    match &config.nic {
        Nic::PerPe(shares) => {
            for share in shares {
                found.usable.push(check(&devices, &share.port, &[], config)?);
            }
        }
        Nic::Named(names) => {
            for entry in &names.list {
                let chosen = select(names, entry, &all)?;
                if chosen == [entry.device.as_str()] {
                    found.add(check(&devices, entry, &[], config)?);
                    continue;
                }
                let chosen = chosen.into_iter().filter(|name| connectx.iter().any(|one| one == name));
                chosen.for_each(|name| {
                    found.try_add(check(&devices, &NicPort { device: name.into(), ..*entry }, &[], config));
                });
            }
            if found.usable.is_empty() {
                let why = format!("none of the devices is usable: {}", found.unusable.join("; "));
                return Err(RdmaError::Unusable { nic: names.to_string(), why });
            }
        }
        Nic::Except(names) => {
            let mut without = Vec::new();
            for entry in &names.list {
                without.extend(select(names, entry, &all)?.into_iter().map(|name| (name, entry.port)));
            }
            for name in &connectx {
                let ports = without.iter().filter(|(other, _)| other == name).map(|(_, port)| *port);
                match ports.collect::<Option<Vec<u8>>>() {
                    Some(ports) => found.try_add(check(&devices, &whole(name), &ports, config)),
                    None => found.unusable.push(format!("{name}: RUSHMEM_NIC={} excludes it", config.nic)),
                }
            }
        }
        Nic::Auto | Nic::Soft => {
            connectx.iter().for_each(|name| found.try_add(check(&devices, &whole(name), &[], config)));
        }
    }
    Ok((found.usable, found.unusable))
}

/// Devices that a job can use, and for each of the others the reason why it cannot.
#[derive(Default)]
struct Found {
    usable: Vec<Candidate>,
    unusable: Vec<String>,
}

impl Found {
    /// Adds a device, unless another entry of the settings has selected it.
    fn add(&mut self, candidate: Candidate) {
        if self.usable.iter().all(|other| other.nic != candidate.nic) {
            self.usable.push(candidate);
        }
    }

    fn try_add(&mut self, checked: Result<Candidate, RdmaError>) {
        match checked {
            Ok(candidate) => self.add(candidate),
            Err(error) => self.unusable.push(error.to_string()),
        }
    }
}

/// Returns the names among `all` that an entry of the settings selects. It must select one.
fn select<'a>(names: &NicNames, entry: &NicPort, all: &[&'a str]) -> Result<Vec<&'a str>, RdmaError> {
    match names.select(entry, all) {
        selected if selected.is_empty() => Err(no_device(entry)),
        selected => Ok(selected),
    }
}

/// Returns the error for a device that is not there, which lists the ports of this machine.
fn no_device(wanted: &NicPort) -> RdmaError {
    let ports = sysfs::ports(&sysfs::root());
    let found = if ports.is_empty() {
        "libibverbs finds none; load the module mlx5_ib, and pass the device into the container".into()
    } else {
        format!("there is {}; change RUSHMEM_NIC", ports.join(", "))
    };
    RdmaError::NoDevice { wanted: wanted.device.clone(), found }
}

/// Returns the ConnectX NICs that the kernel lists, each with the reason why none is usable.
fn of_sysfs(error: &RdmaError) -> Vec<String> {
    let devices = sysfs::devices(&sysfs::root());
    devices
        .iter()
        .filter(|(_, is_connectx)| *is_connectx)
        .map(|(name, _)| format!("{name}: {error}"))
        .collect()
}

/// Returns the names of the RDMA devices that libmlx5 does not drive.
pub fn foreign() -> Vec<String> {
    let Ok(devices) = Devices::find() else { return Vec::new() };
    devices.iter().filter(|device| !device.is_mlx5).map(|device| device.title()).collect()
}

/// Opens a device, and checks that a job can use it, on a port that is not in `without`. Closes it again.
fn check(devices: &Devices, name: &NicPort, without: &[u8], config: &Config) -> Result<Candidate, RdmaError> {
    let (context, location) = open(devices, name)?;
    let port = port::choose(&context, name.port, without, config)?;
    check_atomics(&context)?;
    let nic = NicPort { device: name.device.clone(), port: Some(port.address.number) };
    let data_direct = DataDirect::find(&context, config.data_direct);
    let location = data_direct.used().map_or(location, |path| PciPath::of(path.into()));
    Ok(Candidate { nic, title: context.title().into(), location, port, data_direct })
}

fn open(devices: &Devices, name: &NicPort) -> Result<(Arc<Context>, PciPath), RdmaError> {
    let Some(device) = devices.iter().find(|device| device.name == name.device) else {
        return Err(no_device(name));
    };
    if !device.is_mlx5 {
        let why = "libmlx5 does not drive it; set RUSHMEM_NIC to a ConnectX NIC";
        return Err(RdmaError::Unusable { nic: device.title(), why: why.into() });
    }
    Ok((device.open()?, PciPath::of(device.sysfs.clone())))
}

/// Queries one page of the device's current capabilities, of type `C`, with `QUERY_HCA_CAP`.
fn capabilities<C: Capability>(context: &Context) -> Result<C, RdmaError> {
    let command = QueryHcaCap::current::<C>();
    let mut answer = Box::new(<QueryHcaCapOut as Response>::EMPTY);
    context.general(command.encode().as_ref(), answer.as_mut_slice())?;
    let out = QueryHcaCapOut::decode(answer.as_slice()).map_err(|error| RdmaError::Unusable {
        nic: context.title().into(),
        why: format!("QUERY_HCA_CAP: {error}"),
    })?;
    Ok(out.page.get::<C>())
}

/// Checks that the device supports the atomics that kernels use: plain and masked 8-byte atomics, and masked 4-byte
/// atomics.
fn check_atomics(context: &Context) -> Result<(), RdmaError> {
    let caps: AtomicCaps = capabilities(context)?;
    let needed = [
        (AtomicCaps::CMP_SWAP, "compare and swap"),
        (AtomicCaps::FETCH_ADD, "fetch and add"),
        (AtomicCaps::MASKED_CMP_SWAP, "masked compare and swap"),
        (AtomicCaps::MASKED_FETCH_ADD, "masked fetch and add"),
    ];
    let is_missing = |&&(bit, _): &&(u16, &str)| caps.atomic_operations & bit == 0;
    let mut missing: Vec<_> = needed.iter().filter(is_missing).map(|&(_, name)| name.to_owned()).collect();
    let sizes = [4u16, 8].into_iter().filter(|size| caps.atomic_size_qp & size == 0);
    missing.extend(sizes.map(|size| format!("operands of {size} bytes")));
    if missing.is_empty() {
        return Ok(());
    }
    let why = format!(
        "it has no atomics of the kinds that kernels use: {} are missing; use another NIC, or RUSHMEM_NIC=soft",
        missing.join(", ")
    );
    Err(RdmaError::Unusable { nic: context.title().into(), why })
}

/// An RDMA device opened by one PE. Fields drop in order: objects of the device before the device.
pub struct Rdma {
    counter_set: u8,
    doorbells: Doorbells,
    paths: Paths,
    events: Events,
    pd: Arc<RdmaPd>,
    context: Arc<Context>,
}

impl Rdma {
    /// Opens the device of `candidate`, and uses the port that was selected when the device was checked.
    pub fn open(candidate: &Candidate, config: &Config) -> Result<Self, RdmaError> {
        let (context, _) = open(&Devices::find()?, &candidate.nic)?;
        // Only needed for the range of UDP ports. A device without RoCE may lack this page.
        let roce: RoceCap = capabilities(&context).unwrap_or_default();
        let pd = RdmaPd::new(&context, candidate.data_direct.used().is_some())?;
        Ok(Self {
            counter_set: counters::counter_set(&context, &pd, candidate.port.address.number),
            doorbells: Doorbells::new(&context, config.doorbell),
            paths: Paths::new(candidate.port.clone(), config.traffic_class, config.service_level, &roce),
            events: Events::open(&context)?,
            pd,
            context,
        })
    }

    /// Allocates a UAR page, and describes how kernels of `machine` ring doorbells on it.
    ///
    /// Fails as [`Provider::alloc_uars`] does.
    pub fn try_doorbells(&self, machine: &dyn Machine) -> rushmem_error::Result<String> {
        self.doorbells.alloc_uar(machine, None)?;
        Ok(self.doorbells.description().unwrap_or_default())
    }
}

impl Provider for Rdma {
    fn name(&self) -> String {
        format!("{} port {}", self.context.title(), self.paths.port.address.number)
    }

    fn port(&self) -> PortAddress {
        self.paths.port.address
    }

    fn counter_set(&self) -> u8 {
        self.counter_set
    }

    fn gbps(&self) -> Option<u32> {
        self.paths.port.gbps
    }

    fn events(&self) -> Vec<NicEvent> {
        self.events.take(&self.paths.port)
    }

    fn path(&self, peer: &PortAddress) -> Result<(AddressPath, Mtu), NicError> {
        self.paths.to(&self.pd, peer)
    }

    fn commands(&self) -> u64 {
        self.context.commands()
    }

    fn execute(&self, input: &[u8], output: &mut [u8]) -> Result<(), NicError> {
        Ok(self.context.general(input, output)?)
    }

    fn create(&self, input: &[u8], output: &mut [u8]) -> Result<Box<dyn Object>, NicError> {
        let object = self.context.create(input, output)?;
        self.events.subscribe(&object, input, output);
        Ok(Box::new(object))
    }

    fn eqn(&self) -> Result<u8, NicError> {
        Ok(self.context.query_eqn()?)
    }

    fn alloc_pd(&self) -> Result<Box<dyn Pd>, NicError> {
        Ok(Box::new(SharedPd(Arc::clone(&self.pd))))
    }

    fn umem_reg(&self, memory: &Region) -> Result<Box<dyn Umem>, NicError> {
        Ok(Box::new(RdmaUmem::new(&self.context, memory)?))
    }

    fn alloc_uars(
        &self,
        machine: &dyn Machine,
        wanted: &WantedUars,
    ) -> rushmem_error::Result<Vec<Box<dyn Uar>>> {
        (0..wanted.count).map(|_| self.doorbells.alloc_uar(machine, wanted.kernels_fail.as_deref())).collect()
    }
}
