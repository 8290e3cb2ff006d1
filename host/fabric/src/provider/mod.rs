//! The interface between bring-up and a NIC: PRM commands, memory registration, UAR pages and paths.
//!
//! `queues` creates all NIC objects through [`Provider`], and `nics` opens the providers. [`Soft`] is the software ConnectX,
//! and `rdma` has RDMA devices. The code above these traits is the same for both.

mod keys;
#[cfg(feature = "rdma")]
pub mod rdma;
mod soft;
pub mod sysfs;
pub mod topology;

use std::sync::Arc;

use rushmem_config::Partition;
use rushmem_device::abi::DevAddr;
use rushmem_error::NicError;
use rushmem_machine::{Machine, Region};
use rushmem_mlx5::prm::caps::{Capability, QueryHcaCap};
use rushmem_mlx5::prm::qp::{AddressPath, Mtu, SEND_DBR, SEND_NO_DBR};
use rushmem_mlx5::prm::{Command, DecodeError, Response};
use rushmem_native::WaitChannel;

pub use keys::Keys;
pub use soft::Soft;

/// Alignment of queues in a umem, in bytes.
///
/// A NIC that knows the memory by larger pages can place queues only at multiples of a certain fraction of a page.
pub const QUEUE_ALIGN: u64 = 4096;

/// A kind of NIC. QPs cannot connect NICs of different kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NicKind {
    /// The software ConnectX of a process.
    Software,
    /// An RDMA device that libmlx5 drives.
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

/// The link layer of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkLayer {
    /// Ethernet: RoCE v2, addressed by GID and MAC.
    Ethernet,
    /// InfiniBand, addressed by LID, and by GID across subnets.
    InfiniBand,
}

/// The address of a port. PEs exchange it to connect QPs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortAddress {
    /// Kind of the NIC.
    pub kind: NicKind,
    pub link: LinkLayer,
    /// Number of the port on its NIC, from 1.
    pub number: u8,
    pub gid: [u8; 16],
    /// MAC address, or zeros on InfiniBand.
    pub mac: [u8; 6],
    /// LID, or 0 on Ethernet.
    pub lid: u16,
    /// Partition of the port's QPs.
    pub partition: Partition,
    /// Largest payload of a packet, in bytes.
    pub mtu: u32,
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

/// Page size of a NIC's address translation, in bytes.
const PAGE: u64 = 4096;

/// Returns the offset of the memory's first byte in its page.
///
/// A NIC translates whole pages, so an address on the wire has the same low bits as the address in memory.
fn page_offset(memory: &Region) -> u64 {
    memory.memory.host_ptr().map_or(0, |start| start.as_ptr() as u64 % PAGE)
}

/// A function that ends the sleep of a NIC after a doorbell.
pub type WakeNic = Box<dyn Fn() + Send + Sync>;

/// An event of a NIC that no completion reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NicEvent {
    /// The port went down.
    PortDown,
    /// The port is up again.
    PortUp,
    /// The port's address is another one, so QPs use a wrong one. The text says how.
    AddressChanged(String),
    /// The device failed.
    DeviceFailed,
    /// A CQ takes no completions any more.
    CqFailed { cqn: u32 },
    /// A QP failed on its own. Its peer did not cause that.
    QpFailed { qpn: u32 },
    /// A QP refused the request of its peer. The peer's completion has the reason.
    RequestRefused { qpn: u32 },
}

/// One port of a NIC, opened for one PE. It creates the NIC objects of the PE.
pub trait Provider: Send + Sync {
    /// Returns the name of the NIC for messages.
    fn name(&self) -> String;
    /// Notes that QP `qpn`, which is not connected yet, is for WQEs to the PE `peer`.
    fn note_peer(&self, _qpn: u32, _peer: u32) {}
    /// Connects a NIC that sleeps with the wait channel of the PE's kernels. Returns a function that ends its sleep.
    fn link(&self, _: &Arc<WaitChannel>) -> Option<WakeNic> {
        None
    }
    /// Returns the address of the port.
    fn port(&self) -> PortAddress;
    /// Returns the rate of the port in Gb/s, if it is known.
    fn gbps(&self) -> Option<u32> {
        None
    }
    /// Returns whether the NIC acknowledges WRITEs before they are in memory, as a device behind PCIe does.
    fn acks_early(&self) -> bool {
        true
    }
    /// Returns the counter set of the port's QPs, or 0 if there is none.
    fn counter_set(&self) -> u8 {
        0
    }
    /// Takes the events since the last call, oldest first.
    fn events(&self) -> Vec<NicEvent>;
    /// Returns the path to a peer's port, in the form of `INIT2RTR_QP`, and the largest MTU on it.
    fn path(&self, peer: &PortAddress) -> Result<(AddressPath, Mtu), NicError>;
    /// Returns the number of PRM commands so far.
    fn commands(&self) -> u64;
    /// Executes a PRM command that concerns no object. `input` and `output` are its mailboxes.
    fn execute(&self, input: &[u8], output: &mut [u8]) -> Result<(), NicError>;
    /// Executes a PRM command that creates an object. Dropping the object destroys it in the NIC.
    fn create(&self, input: &[u8], output: &mut [u8]) -> Result<Box<dyn Object>, NicError>;
    /// Returns the number of the event queue for `CREATE_CQ`.
    fn eqn(&self) -> Result<u8, NicError>;
    /// Allocates a protection domain.
    fn alloc_pd(&self) -> Result<Box<dyn Pd>, NicError>;
    /// Registers memory for queues. Each queue starts at a multiple of [`QUEUE_ALIGN`] in it.
    fn umem_reg(&self, memory: &Region) -> Result<Box<dyn Umem>, NicError>;
    /// Allocates UAR pages and maps them for the kernels of `machine`.
    fn alloc_uars(
        &self,
        machine: &dyn Machine,
        wanted: &WantedUars,
    ) -> rushmem_error::Result<Vec<Box<dyn Uar>>>;
}

/// The UAR pages that a rail wants.
#[derive(Debug)]
pub struct WantedUars {
    /// Number of pages.
    pub count: u64,
    /// Whether the queues are in GPU memory. The pages of the software ConnectX are there, too.
    pub on_gpu: bool,
    /// The failure of doorbells by kernels. With one, a CPU thread writes them.
    #[cfg_attr(not(feature = "rdma"), allow(dead_code, reason = "kernels ring the software ConnectX"))]
    pub kernels_fail: Option<String>,
}

/// A NIC object that a PRM command created. Dropping it destroys the object in the NIC.
pub trait Object: Send + Sync {
    /// Executes a PRM command on the object.
    fn execute(&self, input: &[u8], output: &mut [u8]) -> Result<(), NicError>;
}

/// A protection domain. It is deallocated on drop, after its keys.
pub trait Pd: Send + Sync {
    /// Returns the number of the protection domain.
    fn number(&self) -> u32;
    /// Registers all of `memory` for local access and for reads, writes and atomics of peers.
    ///
    /// An address on the wire is an offset in the memory plus [`Key::base`].
    fn register(&self, memory: &Region, order: KeyOrder) -> Result<Box<dyn Key>, NicError>;
}

/// The order of the writes through a key on the PCIe bus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyOrder {
    /// A write stays behind all earlier writes of the NIC.
    Strict,
    /// A write may pass earlier ones.
    Relaxed,
}

/// The keys of registered memory. Dropping it deregisters the memory.
pub trait Key: Send + Sync {
    /// Returns the local key, for WQEs of this NIC.
    fn lkey(&self) -> u32;
    /// Returns the remote key, for WQEs of peers.
    fn rkey(&self) -> u32;
    /// Returns the wire address of the memory's first byte. It is its offset in its page, so 0 for whole pages.
    fn base(&self) -> u64;
}

/// Memory registered for queues (a PRM umem). Dropping it deregisters the memory.
pub trait Umem: Send + Sync {
    /// Returns the number of the umem.
    fn id(&self) -> u32;
}

/// A UAR page. Several QPs may use it. It is freed on drop.
pub trait Uar: Send + Sync {
    /// Returns the number of the UAR page.
    fn page_id(&self) -> u32;
    /// Creates the doorbell of one QP on this page, for kernels of `machine`.
    fn doorbell(
        &self,
        machine: &dyn Machine,
        form: DoorbellForm,
    ) -> rushmem_error::Result<Box<dyn QpDoorbell>>;
    /// Writes `doorbell` to the doorbell register from the host.
    ///
    /// # Errors
    /// The errors of the machine, if the register is in its memory.
    fn ring(&self, form: DoorbellForm, doorbell: u64) -> rushmem_error::Result<()>;
    /// Returns the writer of the doorbell register.
    fn writer(&self) -> DoorbellWriter {
        DoorbellWriter::Kernels
    }
}

/// The form of the doorbells of a send queue. Each form has a register of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DoorbellForm {
    /// Each follows a doorbell record.
    Record,
    /// There is no doorbell record.
    NoRecord,
}

impl DoorbellForm {
    /// Returns the value of `send_dbr_mode` in a QP context.
    pub fn mode(self) -> u8 {
        match self {
            Self::Record => SEND_DBR,
            Self::NoRecord => SEND_NO_DBR,
        }
    }
}

/// The writer of a doorbell register, best first.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum DoorbellWriter {
    /// Kernels write.
    #[default]
    Kernels,
    /// A CPU thread writes for kernels. `cause` says why kernels cannot, unless the settings name the thread.
    #[cfg_attr(not(feature = "rdma"), allow(dead_code, reason = "kernels ring the software ConnectX"))]
    CpuThread {
        /// The failed attempts.
        cause: Option<String>,
    },
}

/// The doorbell of one QP.
pub trait QpDoorbell: Send + Sync {
    /// Returns the address that kernels ring at. It has 8 bytes and is write-only.
    fn register(&self) -> DevAddr;
    /// Notes whether a QP uses the doorbell. Nothing rings it before.
    fn set_in_use(&self, _: bool) {}
}

/// The use of a doorbell by a QP, until it is dropped.
pub struct DoorbellUse(Arc<dyn QpDoorbell>);

impl DoorbellUse {
    pub fn new(doorbell: &Arc<dyn QpDoorbell>) -> Self {
        doorbell.set_in_use(true);
        Self(Arc::clone(doorbell))
    }
}

impl Drop for DoorbellUse {
    fn drop(&mut self) {
        self.0.set_in_use(false);
    }
}

/// A doorbell register that is mapped for kernels. Its UAR page must outlive it.
pub struct MappedDoorbell(pub DevAddr);

impl QpDoorbell for MappedDoorbell {
    fn register(&self) -> DevAddr {
        self.0
    }
}

/// Returns a random number. Keys and packet numbers are random so that other hosts cannot guess them.
///
/// # Errors
/// - [`NicError::Random`]: the operating system has no random numbers.
pub fn random() -> Result<u32, NicError> {
    getrandom::u32().map_err(|error| NicError::Random(error.to_string()))
}

/// Creates an object in the NIC, and returns it with the decoded output mailbox.
///
/// # Errors
/// - [`NicError::Refused`]: the NIC refused the command;
/// - [`NicError::Malformed`]: the output mailbox cannot be decoded;
/// - `NicError::Rdma`: the command did not reach the RDMA device.
pub fn create<C: Command>(nic: &dyn Provider, command: &C) -> Result<(Box<dyn Object>, C::Output), NicError> {
    let mut answer = <C::Output as Response>::EMPTY;
    let object = nic.create(command.encode().as_ref(), answer.as_mut())?;
    Ok((object, read::<C>(&nic.name(), answer.as_ref())?))
}

/// Executes a command on an object, and returns the decoded output mailbox. Its errors are the same as for [`create`].
pub fn execute<C: Command>(
    nic: &dyn Provider,
    object: &dyn Object,
    command: &C,
) -> Result<C::Output, NicError> {
    let mut answer = <C::Output as Response>::EMPTY;
    object.execute(command.encode().as_ref(), answer.as_mut())?;
    read::<C>(&nic.name(), answer.as_ref())
}

/// Returns a page of the NIC's current capabilities (`QUERY_HCA_CAP`). Its errors are the same as for [`create`].
pub fn capabilities<C: Capability>(nic: &dyn Provider) -> Result<C, NicError> {
    let command = QueryHcaCap::current::<C>();
    // On the heap: the mailbox is larger than a page.
    let mut answer = Box::new(<<QueryHcaCap as Command>::Output as Response>::EMPTY);
    nic.execute(command.encode().as_ref(), answer.as_mut_slice())?;
    Ok(read::<QueryHcaCap>(&nic.name(), answer.as_slice())?.page.get::<C>())
}

fn read<C: Command>(nic: &str, answer: &[u8]) -> Result<C::Output, NicError> {
    let (nic, command) = (nic.to_owned(), C::OPCODE);
    <C::Output as Response>::decode(answer).map_err(|error| match error {
        DecodeError::Refused(error) => NicError::Refused { nic, command, error },
        error => NicError::Malformed { nic, command, error },
    })
}
