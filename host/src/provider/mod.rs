//! The seam between bring-up and NIC: PRM (DevX) commands, memory registration, doorbell pages, paths.
//!
//! Everything above these traits is the same on hardware and in software.

#[cfg(feature = "rdma")]
pub(crate) mod rdma;
mod soft;
pub(crate) mod sysfs;
pub(crate) mod topology;

use rushmem_device::abi::DevAddr;
use rushmem_mlx5::prm::caps::{Capability, QueryHcaCap};
use rushmem_mlx5::prm::qp::{AddressPath, Mtu};
use rushmem_mlx5::prm::{CmdError, CmdOpcode, Command, DecodeError, Response};

use crate::config::{Partition, QueueMemory};
use crate::machine::{Machine, Region};

pub(crate) use soft::Soft;

/// Queues start in a umem at multiples of this: a NIC may know the memory by large pages only, and then places a queue
/// at whole parts of one.
pub(crate) const QUEUE_ALIGN: u64 = 4096;

/// Why a NIC did not do what it was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The NIC refused a command.
    #[error("{nic} refused {command}: {error}{}", soft_reason(.error))]
    Refused {
        /// The NIC.
        nic: String,
        /// The command.
        command: CmdOpcode,
        /// Status and syndrome.
        error: CmdError,
    },
    /// The NIC answered with a mailbox that makes no sense.
    #[error("{nic} answered {command} with a malformed mailbox: {error}")]
    Malformed {
        /// The NIC.
        nic: String,
        /// The command.
        command: CmdOpcode,
        /// What is wrong with it.
        error: DecodeError,
    },
    /// A call other than a command failed.
    #[error("{nic}: {call} failed: {source}")]
    Call {
        /// The NIC.
        nic: String,
        /// The call.
        call: &'static str,
        /// Why.
        source: rushmem_softnic::Error,
    },
    /// There is no way to a peer's port.
    #[error("{nic} has no way to a peer's port {peer}: {why}")]
    NoPath {
        /// The NIC.
        nic: String,
        /// The peer's port.
        peer: String,
        /// Why, and what to do.
        why: String,
    },
    /// The system has no random numbers.
    #[error("cannot choose keys and packet numbers: the operating system has no random numbers: {0}")]
    Random(String),
    /// An RDMA device refused something.
    #[cfg(feature = "rdma")]
    #[error(transparent)]
    Rdma(#[from] rdma::RdmaError),
}

/// What the software ConnectX means by a syndrome; nothing for one of firmware, whose numbers are others.
fn soft_reason(error: &CmdError) -> String {
    rushmem_softnic::reason(error.syndrome).map(|why| format!(" ({why})")).unwrap_or_default()
}

/// Who executes work-queue entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) enum NicKind {
    /// The software ConnectX of a process.
    Software,
    /// An RDMA device, driven through libmlx5.
    Hardware,
}

impl std::fmt::Display for NicKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Software => "the software ConnectX",
            Self::Hardware => "an RDMA device",
        })
    }
}

/// What a port's link is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) enum LinkLayer {
    /// Ethernet: RoCE v2, addressed by GID and MAC.
    Ethernet,
    /// InfiniBand, addressed by LID, and by GID across subnets.
    InfiniBand,
}

/// How a port is addressed by others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct PortAddress {
    /// Who is behind it: the two kinds do not meet.
    pub(crate) kind: NicKind,
    pub(crate) link: LinkLayer,
    /// Its number on its NIC, from 1.
    pub(crate) number: u8,
    pub(crate) gid: [u8; 16],
    /// Ethernet only.
    pub(crate) mac: [u8; 6],
    /// InfiniBand only.
    pub(crate) lid: u16,
    /// The partition that its QPs are in.
    pub(crate) partition: Partition,
    /// Largest payload of a packet that it takes, bytes.
    pub(crate) mtu: u32,
}

impl std::fmt::Display for PortAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let gid = std::net::Ipv6Addr::from(self.gid);
        match self.link {
            LinkLayer::Ethernet => write!(f, "{gid} (Ethernet)"),
            LinkLayer::InfiniBand => write!(f, "LID {:#x}, {gid} (InfiniBand)", self.lid),
        }
    }
}

/// The largest MTU of at most `bytes`; 256 if there is none, which INIT2RTR refuses where the path cannot carry it.
pub(crate) fn mtu_within(bytes: u32) -> Mtu {
    let mtus = [Mtu::B4096, Mtu::B2048, Mtu::B1024, Mtu::B512];
    mtus.into_iter().find(|mtu| mtu.bytes().is_some_and(|n| n <= bytes)).unwrap_or(Mtu::B256)
}

/// The page in which NICs count addresses.
const PAGE: u64 = 4096;

/// Where memory begins in its page: a NIC translates whole pages, so an address on the wire has the same low bits.
fn place_in_page(memory: &Region) -> u64 {
    memory.memory.host_ptr().map_or(0, |start| start.as_ptr() as u64 % PAGE)
}

/// A NIC, as one PE uses it.
pub(crate) trait Provider: Send + Sync {
    /// A name for messages.
    fn name(&self) -> String;
    /// The address of its port.
    fn port(&self) -> PortAddress;
    /// The way to a peer's port, as INIT2RTR takes it, and the largest MTU on it.
    fn path(&self, peer: &PortAddress) -> Result<(AddressPath, Mtu), Error>;
    /// Executes a command that makes no object and needs none.
    fn execute(&self, input: &[u8], output: &mut [u8]) -> Result<(), Error>;
    /// Executes a command that makes an object; dropping the object destroys it.
    fn create(&self, input: &[u8], output: &mut [u8]) -> Result<Box<dyn Object>, Error>;
    /// The event queue that CREATE_CQ names.
    fn eqn(&self) -> Result<u8, Error>;
    /// A protection domain.
    fn alloc_pd(&self) -> Result<Box<dyn Pd>, Error>;
    /// Registers memory for queues, which start in it at multiples of [`QUEUE_ALIGN`].
    fn umem_reg(&self, memory: &Region) -> Result<Box<dyn Umem>, Error>;
    /// A doorbell page, mapped for the kernels of `machine`.
    fn alloc_uar(&self, machine: &dyn Machine) -> crate::Result<Box<dyn Uar>>;
}

/// An object that a command made. Destroyed on drop.
pub(crate) trait Object: Send + Sync {
    /// Executes a command on it.
    fn execute(&self, input: &[u8], output: &mut [u8]) -> Result<(), Error>;
}

/// A protection domain. Given back on drop, after its keys.
pub(crate) trait Pd: Send + Sync {
    /// Its number.
    fn number(&self) -> u32;
    /// A key over all of `memory`, for the NIC and for peers, who may read, write and do atomics. An address on the wire
    /// is an offset in the memory, counted from [`Key::base`].
    fn register(&self, memory: &Region) -> Result<Box<dyn Key>, Error>;
}

/// A memory key. Destroyed on drop.
pub(crate) trait Key: Send + Sync {
    /// The key in this NIC's own work-queue entries.
    fn lkey(&self) -> u32;
    /// The key in those of peers.
    fn rkey(&self) -> u32;
    /// The address on the wire of the memory's first byte: its place in its page, 0 for whole pages.
    fn base(&self) -> u64;
}

/// Registered memory. Forgotten on drop.
pub(crate) trait Umem: Send + Sync {
    /// Its number.
    fn id(&self) -> u32;
}

/// A doorbell page, which QPs may share. Given back on drop.
pub(crate) trait Uar: Send + Sync {
    /// Its number.
    fn page_id(&self) -> u32;
    /// A doorbell of one QP through this page, for kernels of `machine`.
    fn doorbell(&self, machine: &dyn Machine) -> crate::Result<Box<dyn QpDoorbell>>;
    /// Rings from the CPU.
    fn ring(&self, doorbell: u64);
}

/// The doorbell of one QP.
pub(crate) trait QpDoorbell: Send + Sync {
    /// Where kernels ring: 8 bytes, write only.
    fn register(&self) -> DevAddr;
}

/// A doorbell that kernels write to where it lies, on a page that lives longer.
pub(crate) struct MappedDoorbell(pub(crate) DevAddr);

impl QpDoorbell for MappedDoorbell {
    fn register(&self) -> DevAddr {
        self.0
    }
}

/// Returns a random number, for keys and packet numbers that nobody can guess.
///
/// # Errors
/// [`Error::Random`]
pub(crate) fn random() -> Result<u32, Error> {
    getrandom::u32().map_err(|error| Error::Random(error.to_string()))
}

/// Executes a command that makes an object.
///
/// # Errors
/// [`Error::Refused`], [`Error::Malformed`], or that the command did not reach the NIC.
pub(crate) fn create<C: Command>(
    nic: &dyn Provider,
    command: &C,
) -> Result<(Box<dyn Object>, C::Output), Error> {
    let mut answer = <C::Output as Response>::EMPTY;
    let object = nic.create(command.encode().as_ref(), answer.as_mut())?;
    Ok((object, read::<C>(&nic.name(), answer.as_ref())?))
}

/// Executes a command on an object.
///
/// # Errors
/// As [`create`].
pub(crate) fn execute<C: Command>(
    nic: &dyn Provider,
    object: &dyn Object,
    command: &C,
) -> Result<C::Output, Error> {
    let mut answer = <C::Output as Response>::EMPTY;
    object.execute(command.encode().as_ref(), answer.as_mut())?;
    read::<C>(&nic.name(), answer.as_ref())
}

/// A page of the NIC's capabilities, as it is in force.
///
/// # Errors
/// As [`create`].
pub(crate) fn capabilities<C: Capability>(nic: &dyn Provider) -> Result<C, Error> {
    let command = QueryHcaCap::current::<C>();
    // On the heap: the mailbox is larger than a page.
    let mut answer = Box::new(<<QueryHcaCap as Command>::Output as Response>::EMPTY);
    nic.execute(command.encode().as_ref(), answer.as_mut_slice())?;
    Ok(read::<QueryHcaCap>(&nic.name(), answer.as_slice())?.page.get::<C>())
}

/// Memory for queues, and its registration.
///
/// An RDMA device reads entries and writes completions where the kernel that polls them is: in GPU memory if it can.
/// Completions are then read without a way over PCIe, and stay in order with data for the GPU. The software ConnectX is
/// on the CPU, and so are its queues.
///
/// # Errors
/// What the machine or the NIC refuses.
pub(crate) fn queue_memory(
    nic: &dyn Provider,
    machine: &dyn Machine,
    place: QueueMemory,
    bytes: u64,
) -> crate::Result<(Region, Box<dyn Umem>)> {
    let far = nic.port().kind == NicKind::Software || !machine.is_gpu();
    if !far && place != QueueMemory::Host {
        let region = machine.local(bytes)?;
        match nic.umem_reg(&region) {
            Ok(umem) => {
                tracing::info!("{}: queues are in GPU memory", nic.name());
                return Ok((region, umem));
            }
            Err(error) if place == QueueMemory::Device => return Err(error.into()),
            Err(error) => tracing::info!("{}: queues are in host memory: {error}", nic.name()),
        }
    }
    let region = machine.shared(bytes)?;
    let umem = nic.umem_reg(&region)?;
    Ok((region, umem))
}

fn read<C: Command>(nic: &str, answer: &[u8]) -> Result<C::Output, Error> {
    let (nic, command) = (nic.to_owned(), C::OPCODE);
    <C::Output as Response>::decode(answer).map_err(|error| match error {
        DecodeError::Refused(error) => Error::Refused { nic, command, error },
        error => Error::Malformed { nic, command, error },
    })
}
