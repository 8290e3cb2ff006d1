//! The interface to a NIC: PRM commands, memory registration, UAR pages and paths.
//!
//! `queues` creates all NIC objects through a [`Provider`], and `nics` opens the providers. [`Soft`] is the software
//! ConnectX; `rdma` supports RDMA devices. Code that uses these traits is the same for both.

mod keys;
#[cfg(feature = "rdma")]
pub mod rdma;
mod recorded;
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
use rushmem_softnic::page_size;

pub use keys::Keys;
pub use recorded::{Completion, Exchange, Recorded, Recorder, Recording};
pub use soft::Soft;

/// Alignment of queues in a umem (memory registered for queues), in bytes.
///
/// A NIC that maps the umem with larger pages can start queues only at certain fractions of a page.
pub const QUEUE_ALIGN: u64 = 4096;

/// A kind of NIC. QPs cannot connect NICs of different kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NicKind {
    /// The software ConnectX that runs in the PE's process.
    Software,
    /// An RDMA device driven by libmlx5.
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkLayer {
    /// Ethernet: RoCE v2, addressed by GID and MAC.
    Ethernet,
    /// InfiniBand, addressed by LID, and by GID across subnets.
    InfiniBand,
}

/// The address of a NIC's port. PEs exchange port addresses to connect QPs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortAddress {
    pub kind: NicKind,
    pub link: LinkLayer,
    /// Index of the port on its NIC, starting at 1.
    pub number: u8,
    pub gid: [u8; 16],
    /// MAC address, or zeros on InfiniBand.
    pub mac: [u8; 6],
    /// LID, or 0 on Ethernet.
    pub lid: u16,
    /// Partition of the QPs on this port.
    pub partition: Partition,
    /// MTU: the largest payload of a packet, in bytes.
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

/// Returns the offset of the first byte of `memory` in its page.
///
/// Linux registers whole pages, so an address on the wire has the same low bits as the address in memory.
fn page_offset(memory: &Region) -> u64 {
    memory.memory.host_ptr().map_or(0, |start| (start.addr().get() % page_size()) as u64)
}

/// A function that wakes an idle NIC after a doorbell.
pub type WakeNic = Box<dyn Fn() + Send + Sync>;

/// An asynchronous event of a NIC, such as a failed QP or a port that went down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NicEvent {
    /// The port became inactive, for example because its cable was unplugged.
    PortDown,
    /// The port is active again after [`PortDown`](Self::PortDown).
    PortUp,
    /// The port's address changed while QPs still use the previous one. The text describes the change.
    AddressChanged(String),
    /// The device reported a fatal error.
    DeviceFailed,
    /// The CQ accepts no more completions.
    CqFailed { cqn: u32 },
    /// The QP failed for a reason other than a request from its peer.
    QpFailed { qpn: u32 },
    /// The QP refused a request from its peer. The peer sees the reason in its completion.
    RequestRefused { qpn: u32 },
}

/// A port of a NIC opened by one PE, through which the PE creates its NIC objects.
pub trait Provider: Send + Sync {
    /// Returns the NIC's name for messages.
    fn name(&self) -> String;
    /// Announces that QP `qpn`, which is not connected yet, will carry the WQEs for PE `peer`. Used for tracing only.
    fn note_peer(&self, _qpn: u32, _peer: u32) {}
    /// Connects a NIC that sleeps when idle to the PE's kernels: the NIC wakes `channel`, on which they wait, whenever
    /// it has changed memory. Returns a function that wakes the NIC, or `None` if the NIC does not sleep.
    fn link(&self, _: &Arc<WaitChannel>) -> Option<WakeNic> {
        None
    }
    fn port(&self) -> PortAddress;
    /// Returns the rate of the port in Gb/s, if known.
    fn gbps(&self) -> Option<u32> {
        None
    }
    /// Returns whether the NIC acknowledges WRITEs before they are in memory, as every PCIe device does.
    fn acks_early(&self) -> bool {
        true
    }
    /// Returns the ID of the counter set for QPs on this port, or 0 if there is none.
    fn counter_set(&self) -> u8 {
        0
    }
    /// Takes all events since the last call, oldest first. Does not block.
    fn events(&self) -> Vec<NicEvent>;
    /// Returns the address path to a peer's port, as passed to `INIT2RTR_QP`, and the path's MTU.
    fn path(&self, peer: &PortAddress) -> Result<(AddressPath, Mtu), NicError>;
    /// Returns the number of PRM commands executed so far.
    fn commands(&self) -> u64;
    /// Returns the recorder of the NIC's commands, if they are recorded.
    fn recorder(&self) -> Option<&Recorder> {
        None
    }
    /// Executes a PRM command that does not refer to an object. `input` and `output` are the command's mailboxes.
    fn execute(&self, input: &[u8], output: &mut [u8]) -> Result<(), NicError>;
    /// Executes a PRM command that creates an object. `input` and `output` are the command's mailboxes. Dropping the
    /// returned object destroys it in the NIC.
    fn create(&self, input: &[u8], output: &mut [u8]) -> Result<Box<dyn Object>, NicError>;
    /// Returns the event queue number (EQN) for `CREATE_CQ`.
    fn eqn(&self) -> Result<u8, NicError>;
    fn alloc_pd(&self) -> Result<Box<dyn Pd>, NicError>;
    /// Registers memory that will hold queues. Each queue must start at a multiple of [`QUEUE_ALIGN`] in it.
    fn umem_reg(&self, memory: &Region) -> Result<Box<dyn Umem>, NicError>;
    /// Allocates UAR pages and maps them for the kernels of `machine`.
    fn alloc_uars(
        &self,
        machine: &dyn Machine,
        wanted: &WantedUars,
    ) -> rushmem_error::Result<Vec<Box<dyn Uar>>>;
}

/// The number and kind of UAR pages that a rail (one NIC with its queues) allocates.
#[derive(Debug)]
pub struct WantedUars {
    pub count: u64,
    /// Whether the queues are in GPU memory. If so, the software ConnectX also allocates its UAR pages there.
    pub on_gpu: bool,
    /// If it is known that kernels cannot write doorbells, the reason. A CPU thread then writes them.
    #[cfg_attr(not(feature = "rdma"), allow(dead_code, reason = "kernels ring the software ConnectX"))]
    pub kernels_fail: Option<String>,
}

/// A NIC object created by a PRM command. Dropping it destroys the object in the NIC.
pub trait Object: Send + Sync {
    /// Executes a PRM command that refers to the object.
    fn execute(&self, input: &[u8], output: &mut [u8]) -> Result<(), NicError>;
}

/// A protection domain (PD), deallocated on drop. Its keys must be dropped first.
pub trait Pd: Send + Sync {
    fn number(&self) -> u32;
    /// Registers all of `memory` for local access, and for reads, writes and atomics by peers.
    ///
    /// Addresses on the wire are offsets in the memory plus [`Key::base`].
    fn register(&self, memory: &Region, order: KeyOrder) -> Result<Box<dyn Key>, NicError>;
}

/// How strictly the PCIe bus orders the writes through a memory key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyOrder {
    /// A write does not overtake earlier writes of the NIC.
    Strict,
    /// A write may overtake earlier writes of the NIC.
    Relaxed,
}

/// The lkey and rkey of registered memory. Dropping it deregisters the memory.
pub trait Key: Send + Sync {
    /// Returns the local key (lkey), used in WQEs posted to this NIC.
    fn lkey(&self) -> u32;
    /// Returns the remote key (rkey), used in WQEs that peers post to access the memory.
    fn rkey(&self) -> u32;
    /// Returns the wire address of the memory's first byte: its offset in its page, so 0 for page-aligned memory.
    fn base(&self) -> u64;
}

/// Memory registered for queues (a PRM umem). Dropping it deregisters the memory.
pub trait Umem: Send + Sync {
    fn id(&self) -> u32;
}

/// A UAR page, freed on drop. Several QPs may share it.
pub trait Uar: Send + Sync {
    fn page_id(&self) -> u32;
    /// Creates the doorbell of a QP on this page, for kernels of `machine`.
    fn doorbell(
        &self,
        machine: &dyn Machine,
        form: DoorbellForm,
    ) -> rushmem_error::Result<Box<dyn QpDoorbell>>;
    /// Rings a doorbell from the host: writes `doorbell` to the page's register for `form`.
    ///
    /// # Errors
    /// Fails if the register is in memory of the machine that the host cannot write.
    fn ring(&self, form: DoorbellForm, doorbell: u64) -> rushmem_error::Result<()>;
    /// Returns whether kernels or a CPU thread write to the doorbell registers of this page.
    fn writer(&self) -> DoorbellWriter {
        DoorbellWriter::Kernels
    }
}

/// Whether doorbells of a send queue update a doorbell record. Each form has its own register in a UAR page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DoorbellForm {
    /// The poster updates the doorbell record in memory before it writes to the register.
    Record,
    /// The poster only writes to the register.
    NoRecord,
}

impl DoorbellForm {
    /// Returns the form's `send_dbr_mode` in a QP context.
    pub fn mode(self) -> u8 {
        match self {
            Self::Record => SEND_DBR,
            Self::NoRecord => SEND_NO_DBR,
        }
    }
}

/// Who writes to a doorbell register. Variants are ordered from best to worst.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum DoorbellWriter {
    /// Kernels write to it directly.
    #[default]
    Kernels,
    /// A CPU thread writes to it on behalf of kernels.
    #[cfg_attr(not(feature = "rdma"), allow(dead_code, reason = "kernels ring the software ConnectX"))]
    CpuThread {
        /// Why kernels cannot write to the register. `None` if the settings ask for the thread.
        cause: Option<String>,
    },
}

/// The doorbell of one QP, as kernels use it.
pub trait QpDoorbell: Send + Sync {
    /// Returns the address to which kernels write 8 bytes to ring. It is write-only.
    fn register(&self) -> DevAddr;
    /// Sets whether a QP uses the doorbell. While none does, kernels do not ring it, so nobody needs to poll it.
    fn set_in_use(&self, _: bool) {}
}

/// A guard that marks a doorbell as used by a QP until it is dropped.
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

/// A doorbell register mapped for kernels. Must not outlive its UAR page.
pub struct MappedDoorbell(pub DevAddr);

impl QpDoorbell for MappedDoorbell {
    fn register(&self) -> DevAddr {
        self.0
    }
}

/// Returns a random number. Keys and packet sequence numbers are random to keep other hosts from guessing them.
///
/// # Errors
/// - [`NicError::Random`]: the operating system provides no random numbers.
pub fn random() -> Result<u32, NicError> {
    getrandom::u32().map_err(|error| NicError::Random(error.to_string()))
}

/// Creates an object in the NIC. Returns the object, and the decoded output mailbox of the command.
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

/// Executes a command on an object. Returns the decoded output mailbox. Fails as [`create`] does.
pub fn execute<C: Command>(
    nic: &dyn Provider,
    object: &dyn Object,
    command: &C,
) -> Result<C::Output, NicError> {
    let mut answer = <C::Output as Response>::EMPTY;
    object.execute(command.encode().as_ref(), answer.as_mut())?;
    read::<C>(&nic.name(), answer.as_ref())
}

/// Queries one page of the NIC's current capabilities, of type `C`, with `QUERY_HCA_CAP`. Fails as [`create`] does.
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
