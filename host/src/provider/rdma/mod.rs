//! RDMA devices that libmlx5 drives: ConnectX NICs.
//!
//! Verbs by `rdma-sys` (libibverbs), DevX by our own declarations of libmlx5. One [`Rdma`] is a device as one PE uses
//! it: opened once for each PE, with one port.

mod context;
mod doorbell;
mod error;
mod ffi;
mod memory;
mod path;
mod peer_memory;
mod port;
mod uar;

use std::sync::Arc;

use rushmem_mlx5::prm::Response;
use rushmem_mlx5::prm::caps::{AtomicCaps, Capability, QueryHcaCap, QueryHcaCapOut, RoceCap};
use rushmem_mlx5::prm::qp::{AddressPath, Mtu};

use self::context::{Context, Devices};
use self::memory::{RdmaPd, RdmaUmem, SharedPd};
use self::path::Paths;
use self::port::Port;
use self::uar::Doorbells;
use super::topology::PciPath;
use super::{Error, LinkLayer, Object, Pd, PortAddress, Provider, Uar, Umem};
use crate::config::{Config, NicPort};
use crate::machine::{Machine, Region};

pub use self::error::RdmaError;

/// A device that can be used: opened for a look, and closed again.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    /// Its name, and the port that is used.
    pub(crate) nic: NicPort,
    /// Name and PCI address.
    pub(crate) title: String,
    pub(crate) place: PciPath,
    port: Port,
}

impl Candidate {
    /// A line for users.
    pub(crate) fn describe(&self) -> String {
        let port = &self.port.address;
        format!("{} port {}, {port}, MTU {}", self.title, port.number, port.mtu)
    }

    /// What the port's link is.
    pub(crate) fn link(&self) -> LinkLayer {
        self.port.address.link
    }
}

/// The devices that can be used, and why each other one cannot: of those named, or of all.
///
/// # Errors
/// A named device that is not there or not fit.
pub(crate) fn find(
    named: Option<&[NicPort]>,
    config: &Config,
) -> Result<(Vec<Candidate>, Vec<String>), RdmaError> {
    let devices = Devices::find();
    let (mut fit, mut refused) = (Vec::new(), Vec::new());
    match named {
        Some(names) => {
            for name in names {
                fit.push(look(&devices, name, config)?);
            }
        }
        None => {
            for device in devices.iter().filter(|device| device.is_mlx5) {
                match look(&devices, &NicPort { device: device.name.clone(), port: None }, config) {
                    Ok(candidate) => fit.push(candidate),
                    Err(error) => refused.push(error.to_string()),
                }
            }
        }
    }
    Ok((fit, refused))
}

fn look(devices: &Devices, name: &NicPort, config: &Config) -> Result<Candidate, RdmaError> {
    let (context, place) = open(devices, name)?;
    let port = port::choose(&context, name.port, config)?;
    check_atomics(&context)?;
    let nic = NicPort { device: name.device.clone(), port: Some(port.address.number) };
    Ok(Candidate { nic, title: context.title().into(), place, port })
}

fn open(devices: &Devices, name: &NicPort) -> Result<(Arc<Context>, PciPath), RdmaError> {
    let Some(device) = devices.iter().find(|device| device.name == name.device) else {
        let names: Vec<_> = devices.iter().map(|device| device.name).collect();
        let found = if names.is_empty() {
            "libibverbs finds none; see that the module mlx5_ib is loaded and the device is passed into the container"
                .into()
        } else {
            format!("there is {}; change RUSHMEM_NIC", names.join(", "))
        };
        return Err(RdmaError::NoDevice { wanted: name.device.clone(), found });
    };
    if !device.is_mlx5 {
        let why = "it is not driven by libmlx5: a ConnectX NIC is needed; change RUSHMEM_NIC";
        return Err(RdmaError::Unusable { nic: device.title(), why: why.into() });
    }
    Ok((device.open()?, PciPath::of(device.sysfs.clone())))
}

/// A page of capabilities.
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

/// Kernels use plain and masked atomics of 8 bytes, and masked ones of 4.
fn check_atomics(context: &Context) -> Result<(), RdmaError> {
    let caps: AtomicCaps = capabilities(context)?;
    let needed = [
        (AtomicCaps::CMP_SWAP, "compare and swap"),
        (AtomicCaps::FETCH_ADD, "fetch and add"),
        (AtomicCaps::MASKED_CMP_SWAP, "masked compare and swap"),
        (AtomicCaps::MASKED_FETCH_ADD, "masked fetch and add"),
    ];
    let lacks = |&&(bit, _): &&(u16, &str)| caps.atomic_operations & bit == 0;
    let mut missing: Vec<_> = needed.iter().filter(lacks).map(|&(_, name)| name.to_owned()).collect();
    let sizes = [4u16, 8].into_iter().filter(|size| caps.atomic_size_qp & size == 0);
    missing.extend(sizes.map(|size| format!("operands of {size} bytes")));
    if missing.is_empty() {
        return Ok(());
    }
    let why = format!(
        "it has no atomics of the kinds that kernels use (missing: {}); use another NIC, or RUSHMEM_NIC=soft",
        missing.join(", ")
    );
    Err(RdmaError::Unusable { nic: context.title().into(), why })
}

/// A device, as one PE uses it. Fields drop in order: what was made in the device before the device.
pub(crate) struct Rdma {
    doorbells: Doorbells,
    paths: Paths,
    pd: Arc<RdmaPd>,
    context: Arc<Context>,
}

impl Rdma {
    /// Opens the device of a candidate, for the port that was found when it was looked at.
    pub(crate) fn open(candidate: &Candidate, config: &Config) -> Result<Self, RdmaError> {
        let (context, _) = open(&Devices::find(), &candidate.nic)?;
        // Only for the range of UDP ports: a device without RoCE need not have the page.
        let roce: RoceCap = capabilities(&context).unwrap_or_default();
        Ok(Self {
            doorbells: Doorbells::new(&context, config.doorbell),
            paths: Paths::new(candidate.port.clone(), config.traffic_class, config.service_level, &roce),
            pd: RdmaPd::new(&context)?,
            context,
        })
    }

    /// How kernels of `machine` ring, as a line for users.
    ///
    /// # Errors
    /// As [`Provider::alloc_uar`].
    pub(crate) fn doorbells(&self, machine: &dyn Machine) -> crate::Result<String> {
        self.doorbells.get(machine)?;
        Ok(self.doorbells.said().unwrap_or_default())
    }
}

impl Provider for Rdma {
    fn name(&self) -> String {
        format!("{} port {}", self.context.title(), self.paths.port.address.number)
    }

    fn port(&self) -> PortAddress {
        self.paths.port.address
    }

    fn path(&self, peer: &PortAddress) -> Result<(AddressPath, Mtu), Error> {
        self.paths.to(&self.pd, peer)
    }

    fn execute(&self, input: &[u8], output: &mut [u8]) -> Result<(), Error> {
        Ok(self.context.general(input, output)?)
    }

    fn create(&self, input: &[u8], output: &mut [u8]) -> Result<Box<dyn Object>, Error> {
        Ok(Box::new(self.context.create(input, output)?))
    }

    fn eqn(&self) -> Result<u8, Error> {
        let mut eqn = 0;
        // SAFETY: an open context, and a live variable.
        let errno = unsafe { ffi::mlx5dv_devx_query_eqn(self.context.raw(), 0, &mut eqn) };
        match errno {
            0 => Ok(eqn as u8),
            errno => Err(self.context.error("mlx5dv_devx_query_eqn", errno, "See dmesg").into()),
        }
    }

    fn alloc_pd(&self) -> Result<Box<dyn Pd>, Error> {
        Ok(Box::new(SharedPd(Arc::clone(&self.pd))))
    }

    fn umem_reg(&self, memory: &Region) -> Result<Box<dyn Umem>, Error> {
        Ok(Box::new(RdmaUmem::new(&self.context, memory)?))
    }

    fn alloc_uar(&self, machine: &dyn Machine) -> crate::Result<Box<dyn Uar>> {
        self.doorbells.get(machine)
    }
}
