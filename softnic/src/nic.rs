//! [`Nic`], a running adapter, and [`Context`] and [`Uar`], the handles by which a driver uses it.
#![allow(unsafe_code, reason = "a doorbell page's address is handed out")]

use crate::address::{gid_of, lid_of, mac_of};
use crate::bus::{Attached, Bus};
use crate::cmd;
use crate::cmd::memory::own_uar;
use crate::config::{Config, Numbers};
use crate::dma::Umem;
use crate::engine::alarm::{Alarm, Waker};
use crate::engine::clock;
use crate::engine::core::Core;
use crate::engine::doorbells;
use crate::engine::thread::{self, Shared};
use crate::error::Error;
use crate::health::Health;
use crate::link::Fabric;
use crate::link::udp::path_mtu;
use crate::management::{MAD, Mad};
use crate::memory::{HostBuffer, Memory, PAGE};
use crate::objects::UarPage;
use crate::queue_memory::{BadQueueMemory, QueueMemory};
use crate::report::{Event, Log, Observer, Stats, Violation};
use crate::rng::Rng;
use crate::transport::datapath::Datapath;
use rushmem_mlx5::doorbell::{CqArm, uar};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

/// A software ConnectX: an engine thread, its objects and its fabric.
///
/// Dropping it stops the engine. UAR pages and memory stay valid as long as their own handles.
///
/// ```
/// use rushmem_softnic::{Config, Nic};
///
/// let nic = Nic::start(Config::default())?;
/// let context = nic.open();
/// let uar = context.alloc_uar()?;
/// assert!(uar.page_id != 0 && nic.violations().is_empty());
/// # Ok::<(), rushmem_softnic::Error>(())
/// ```
pub struct Nic {
    shared: Arc<Shared>,
    engine: Option<JoinHandle<()>>,
    address: SocketAddrV4,
    mtu: u32,
    acks_early: bool,
}

impl Nic {
    /// Starts an adapter and its engine thread.
    ///
    /// # Errors
    ///
    /// - [`Error::Setting`]: a setting is out of range.
    /// - [`Error::Bind`]: the fabric's socket cannot be bound.
    /// - [`Error::Capture`], [`Error::Record`]: the file cannot be created.
    /// - [`Error::Random`]: the operating system provides no random numbers.
    /// - [`Error::Thread`]: the engine thread cannot be started.
    pub fn start(config: Config) -> Result<Nic, Error> {
        config.check()?;
        let fabric = Fabric::open(&config)?;
        let record = config.record.as_deref().map(Log::open).transpose()?;
        let address = match &fabric {
            Some(fabric) => fabric.local(),
            None => SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0),
        };
        let (mtu, name, acks_early) = (config.mtu, config.name.clone(), config.faults.posted > 0.0);
        let numbers = match config.numbers {
            Numbers::Random => Some(getrandom::u64().map_err(|error| Error::Random(error.to_string()))?),
            Numbers::Lowest => None,
        };
        let numbers = numbers.map(Rng::new);
        let mut core = Core::new(config, address, fabric, numbers);
        core.path.report.record = record;
        let alarm = Alarm::new().map_err(Error::Thread)?;
        let shared = Arc::new(Shared::new(core, alarm));
        let engine = std::thread::Builder::new()
            .name(name)
            .spawn({
                let shared = Arc::clone(&shared);
                move || thread::run(&shared)
            })
            .map_err(Error::Thread)?;
        tracing::debug!(%address, "software ConnectX started");
        Ok(Nic { shared, engine: Some(engine), address, mtu, acks_early })
    }

    /// Returns the adapter's GID, which is its IPv4 address mapped into IPv6.
    #[must_use]
    pub fn gid(&self) -> [u8; 16] {
        gid_of(*self.address.ip())
    }

    /// Returns the adapter's LID, for drivers that address peers on this machine as on InfiniBand.
    ///
    /// The LID is the last two bytes of an address 127.64.hi.lo, as chosen by
    /// [`Ip::AnyLoopback`](crate::Ip::AnyLoopback). Other addresses have none.
    #[must_use]
    pub fn lid(&self) -> Option<u16> {
        lid_of(*self.address.ip())
    }

    /// Delivers all events to `sink` from now on, replacing an earlier sink.
    ///
    /// The engine thread calls `sink` without holding a lock. `sink` may call the adapter, but no queue makes progress
    /// until it returns. An event is delivered after the completion that it announces. By then, its CQ, QP or context
    /// may have been destroyed. The sink is dropped with the adapter.
    pub fn on_event(&self, sink: impl Fn(Event) + Send + Sync + 'static) {
        self.shared.sink.set(Some(Arc::new(sink)));
    }

    /// Delivers all management datagrams of QP 1 to `receiver` from now on, replacing an earlier receiver.
    ///
    /// The engine thread calls `receiver` without holding a lock. Without a receiver, datagrams are dropped.
    pub fn on_mad(&self, receiver: impl Fn(Mad) + Send + Sync + 'static) {
        self.shared.mads.set(Some(Arc::new(receiver)));
    }

    /// Sends a management datagram from QP 1 of this adapter to QP 1 of the adapter at `to`.
    ///
    /// It is sent before this call returns. It is not acknowledged, and may be lost.
    pub fn send_mad(&self, to: Ipv4Addr, bytes: &[u8; MAD]) {
        self.shared.core().path.send_mad(to, bytes);
        self.shared.alarm.ring();
    }

    /// Delivers all observations to `observer` from now on, replacing an earlier observer.
    ///
    /// The adapter holds the observer until it is dropped, and has delivered everything by then.
    pub fn observe(&self, observer: Arc<dyn Observer>) {
        self.shared.core().path.report.lookout.set(observer);
    }

    /// Returns the adapter's MAC address, which is locally administered. Its last two bytes are the UDP port, or 0
    /// without a fabric.
    #[must_use]
    pub fn mac(&self) -> [u8; 6] {
        mac_of(self.address.port())
    }

    /// Returns the address to which the UDP socket is bound. The port is 0 if there is no socket.
    #[must_use]
    pub fn address(&self) -> SocketAddrV4 {
        self.address
    }

    /// Returns the largest path MTU, in bytes, for QPs towards an adapter at `peer`.
    ///
    /// It is at most [`Config::mtu`], and low enough that packets are not fragmented. Returns `None` if there is no
    /// route to `peer`.
    #[must_use]
    pub fn path_mtu(&self, peer: Ipv4Addr) -> Option<u32> {
        let own = *self.address.ip();
        let fits =
            if peer == own { self.mtu } else { path_mtu(own, SocketAddrV4::new(peer, self.address.port()))? };
        Some(fits.min(self.mtu))
    }

    /// Whether the adapter may acknowledge a WRITE before its data is in memory: see
    /// [`Faults::posted`](crate::Faults::posted).
    #[must_use]
    pub fn acks_early(&self) -> bool {
        self.acks_early
    }

    /// Opens the adapter for a new user, like opening an RDMA device.
    #[must_use]
    pub fn open(&self) -> Context {
        let id = self.shared.core().contexts.open();
        Context { shared: Arc::clone(&self.shared), id, commands: AtomicU64::new(0) }
    }

    /// Opens the adapter for a PCI function, whose driver names memory by bus addresses.
    #[must_use]
    pub fn open_function(&self, bus: Bus) -> Context {
        let context = self.open();
        self.shared.core().path.objects.buses.insert(context.id, Attached::new(bus, context.id));
        context
    }

    /// Returns the rules that drivers and kernels have broken, oldest first. Only the first 256 are kept.
    #[must_use]
    pub fn violations(&self) -> Vec<Violation> {
        self.shared.core().path.report.violations.list().to_vec()
    }

    /// Returns the health of the port and the adapter.
    #[must_use]
    pub fn health(&self) -> Health {
        self.shared.core().path.failures.health
    }

    /// Returns the clock that completions use, in nanoseconds since the adapter started.
    #[must_use]
    pub fn clock(&self) -> u64 {
        self.shared.core().path.report.clock()
    }

    /// Returns the adapter's counters.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.shared.core().path.report.stats
    }
}

impl Drop for Nic {
    fn drop(&mut self) {
        self.shared.stop();
        if let Some(engine) = self.engine.take() {
            // The engine thread has already reported its own panic.
            let _ = engine.join();
        }
        self.shared.sink.set(None);
        self.shared.mads.set(None);
    }
}

/// A UAR page, which contains doorbell registers.
///
/// The page exists until [`Context::free_uar`] or until the adapter is dropped. Its memory lives at least as long as
/// this handle.
#[derive(Clone)]
pub struct Uar {
    /// ID of the page, for CREATE_QP and CREATE_CQ.
    pub page_id: u32,
    /// First byte of the page. Its 4096 bytes are page-aligned, and may be page-locked and mapped for a GPU.
    pub page: *mut u8,
    /// Address of the doorbell register. It has 8 bytes and is write-only.
    pub reg_addr: *mut u8,
    memory: Arc<HostBuffer>,
}

// SAFETY: the pointers are plain addresses of memory that any thread may access with atomics.
unsafe impl Send for Uar {}
// SAFETY: as for Send.
unsafe impl Sync for Uar {}

impl Uar {
    /// Returns the page as memory, for drivers that do not use pointers.
    #[must_use]
    pub fn memory(&self) -> &HostBuffer {
        &self.memory
    }
}

/// A driver's handle for an open adapter. Dropping it destroys all objects created through it.
pub struct Context {
    shared: Arc<Shared>,
    id: u32,
    commands: AtomicU64,
}

impl Context {
    /// Executes a PRM command, which creates, modifies, queries or destroys an object.
    ///
    /// Status and syndrome are in the output mailbox, as firmware leaves them. If `output` is shorter than the answer,
    /// the answer is truncated. [`reason`](crate::reason) explains a syndrome.
    pub fn command(&self, input: &[u8], output: &mut [u8]) {
        self.commands.fetch_add(1, Ordering::Relaxed);
        let mut core = self.shared.core();
        cmd::execute(&mut core, self.id, input, output);
        let has_work = core.has_work();
        drop(core);
        if has_work {
            self.shared.alarm.ring();
        }
    }

    /// Returns the number of commands executed so far.
    #[must_use]
    pub fn commands(&self) -> u64 {
        self.commands.load(Ordering::Relaxed)
    }

    /// Returns a handle that wakes the engine.
    ///
    /// A program may call [`Waker::wake`] after ringing a doorbell. Otherwise the engine finds the doorbell after its
    /// sleep, whose length [`Config::idle`] limits.
    #[must_use]
    pub fn waker(&self) -> Waker {
        Waker(Arc::clone(&self.shared.alarm))
    }

    /// Calls `listener` after the adapter has changed memory of this context, replacing an earlier listener.
    ///
    /// Changes are completions, and WRITEs and atomics of peers. The engine thread calls `listener` once per pass with
    /// changes, without holding a lock. Dropping the context drops `listener`.
    pub fn on_change(&self, listener: impl Fn() + Send + Sync + 'static) {
        self.shared.core().contexts.listen(self.id, Arc::new(listener));
    }

    /// Maintains the clock that completions use in the 8 bytes of `memory` at `offset`, in big-endian order like a
    /// ConnectX.
    ///
    /// The clock never goes back, and no operation posted after a read completes with an earlier time. The adapter
    /// stores the clock in each pass, but does not wake up for it, so the clock lags by at most one pass and one sleep,
    /// whose length [`Config::idle`] limits. It stops when the context is dropped.
    ///
    /// # Errors
    ///
    /// [`Error::ClockMemory`]: the bytes are out of range or not aligned.
    pub fn show_clock(&self, memory: Arc<dyn Memory>, offset: u64) -> Result<(), Error> {
        let register = QueueMemory::new(&memory, offset, clock::BYTES, clock::BYTES).map_err(|bad| {
            let why = match bad {
                BadQueueMemory::Range => "its 8 bytes leave the memory",
                BadQueueMemory::Alignment => "it is not aligned to 8 bytes",
            };
            Error::ClockMemory { offset, why }
        })?;
        let mut core = self.shared.core();
        core.clocks.add(self.id, register);
        core.clocks.store(|| core.path.report.clock());
        Ok(())
    }

    /// Returns the failures since the last call, which concern CQs and QPs of this context, the port, or the adapter.
    ///
    /// At most 256 are kept.
    #[must_use]
    pub fn failures(&self) -> Vec<Event> {
        self.shared.core().contexts.take_failures(self.id)
    }

    /// Adds a datagram QP to a multicast group, so it receives what is sent to the group.
    ///
    /// Groups are shared by the adapters of this machine, and by those of other machines on the network of its
    /// interface. A member does not receive its own datagrams. On RoCE, the GID of a group is an IPv4 address; on
    /// InfiniBand, it starts with 0xff.
    ///
    /// # Errors
    ///
    /// - [`Error::Unknown`]: no such QP in this context.
    /// - [`Error::Exhausted`]: the adapter has 256 groups, or the group 256 members.
    /// - [`Error::Group`]: the GID is not that of a group, or the adapter cannot join it.
    pub fn join_group(&self, qpn: u32, group: [u8; 16]) -> Result<(), Error> {
        self.shared.core().join_group(self.id, qpn, group)
    }

    /// Removes a datagram QP from a multicast group.
    ///
    /// # Errors
    ///
    /// [`Error::Unknown`]: no such QP in this context is in the group.
    pub fn leave_group(&self, qpn: u32, group: [u8; 16]) -> Result<(), Error> {
        self.shared.core().leave_group(self.id, qpn, group)
    }

    /// Registers the `len` bytes of `memory` at `offset` for queues and memory keys. Returns the ID of the umem.
    ///
    /// # Errors
    ///
    /// - [`Error::UmemRange`]: the range is empty or extends past the memory.
    /// - [`Error::Exhausted`]: no umem IDs are left.
    pub fn umem_reg(&self, memory: Arc<dyn Memory>, offset: u64, len: u64) -> Result<u32, Error> {
        let size = memory.len();
        if offset.checked_add(len).is_none_or(|end| end > size) || len == 0 {
            return Err(Error::UmemRange { offset, len, size });
        }
        let umem = Umem { owner: self.id, memory, offset, len, users: 0 };
        self.shared.core().path.objects.umems.insert(umem).ok_or(Error::Exhausted("umem"))
    }

    /// Swaps what two memory keys of this context stand for: memory, range, protection domain and access rights. The
    /// keys keep their numbers, so a driver can use this to change a memory region.
    ///
    /// # Errors
    ///
    /// [`Error::Unknown`]: one of the keys does not belong to this context.
    pub fn swap_keys(&self, a: u32, b: u32) -> Result<(), Error> {
        let mut core = self.shared.core();
        let Datapath { objects, report, .. } = &mut core.path;
        let done = objects.swap_mkeys(self.id, (a, b), report);
        if done { Ok(()) } else { Err(Error::Unknown { kind: "memory key", id: a }) }
    }

    /// Opens the adapter for a program, on behalf of which the driver of this context's function executes commands.
    ///
    /// The program's objects cannot refer to those of the driver or of other programs, but the driver's commands may
    /// use them. Returns `None` if this is not the context of a function.
    #[must_use]
    pub fn open_user(&self) -> Option<Context> {
        let mut core = self.shared.core();
        let bus = core.path.objects.buses.get(&self.id).filter(|bus| bus.function == self.id)?.user();
        let id = core.contexts.open();
        core.path.objects.buses.insert(id, bus);
        Some(Context { shared: Arc::clone(&self.shared), id, commands: AtomicU64::new(0) })
    }

    /// Whether this is the context of a function or of its user, and has objects.
    #[must_use]
    pub fn has_objects(&self) -> bool {
        self.shared.core().path.objects.buses.get(&self.id).is_some_and(|bus| !bus.is_empty())
    }

    /// Returns the EQN that CREATE_CQ named for a CQ of this context or its users.
    #[must_use]
    pub fn event_queue(&self, cqn: u32) -> Option<u8> {
        let objects = &self.shared.core().path.objects;
        objects.cqs.get(cqn).filter(|cq| objects.may_use(self.id, cq.owner)).map(|cq| cq.eqn)
    }

    /// Whether a CQ of this context or its users uses event queue `number`.
    #[must_use]
    pub fn uses_event_queue(&self, number: u8) -> bool {
        let objects = &self.shared.core().path.objects;
        objects.cqs.iter().any(|(_, cq)| cq.eqn == number && objects.may_use(self.id, cq.owner))
    }

    /// Whether a UAR page belongs to this context.
    #[must_use]
    pub fn owns_uar(&self, page_id: u32) -> bool {
        own_uar(&self.shared.core().path.objects, self.id, page_id).is_ok()
    }

    /// Processes a request to arm a CQ, as if it had been written to the register of a UAR page of this context or its
    /// users.
    ///
    /// A PCI function calls this, since it receives every request by itself. Requests that are only written to the
    /// register may overwrite each other.
    pub fn arm(&self, page_id: u32, request: CqArm) {
        let mut core = self.shared.core();
        doorbells::arm(&mut core.path, self.id, page_id, request);
        let has_work = core.has_work();
        drop(core);
        if has_work {
            self.shared.alarm.ring();
        }
    }

    /// Unregisters a umem, which must not be in use.
    ///
    /// # Errors
    ///
    /// - [`Error::Unknown`]: no such umem in this context.
    /// - [`Error::InUse`]: a key or a queue still refers to it.
    pub fn umem_dereg(&self, id: u32) -> Result<(), Error> {
        let mut core = self.shared.core();
        let umem = core.path.objects.umems.get(id).filter(|umem| umem.owner == self.id);
        let users = umem.ok_or(Error::Unknown { kind: "umem", id })?.users;
        if users != 0 {
            return Err(Error::InUse { kind: "umem", id, users });
        }
        core.path.objects.umems.remove(id);
        Ok(())
    }

    /// Allocates a UAR page in new host memory.
    ///
    /// # Errors
    ///
    /// - [`Error::Exhausted`]: no page IDs are left.
    pub fn alloc_uar(&self) -> Result<Uar, Error> {
        let memory = Arc::new(HostBuffer::new(PAGE));
        let page_id = self.alloc_uar_in(Arc::clone(&memory) as _, 0)?;
        let page = memory.as_ptr();
        Ok(Uar { page_id, page, reg_addr: page.wrapping_add(uar::DB), memory })
    }

    /// Turns the 4096 bytes of `memory` at `offset` into a UAR page. Returns its ID for CREATE_QP and CREATE_CQ.
    ///
    /// The bytes must be page-aligned, and zero until a doorbell is rung. Every process that maps the memory can ring,
    /// so a driver may share pages of a file with other processes. A page in GPU memory is polled by reads, which take
    /// microseconds.
    ///
    /// # Errors
    ///
    /// - [`Error::UarMemory`]: the memory cannot be used as a UAR page.
    /// - [`Error::Exhausted`]: no page IDs are left.
    pub fn alloc_uar_in(&self, memory: Arc<dyn Memory>, offset: u64) -> Result<u32, Error> {
        let uar = UarPage::new(self.id, &memory, offset).map_err(|bad| {
            let why = match bad {
                BadQueueMemory::Range => "its 4096 bytes leave the memory",
                BadQueueMemory::Alignment => "it is not aligned to 4096 bytes",
            };
            Error::UarMemory { offset, why }
        })?;
        self.shared.core().path.objects.uars.insert(uar).ok_or(Error::Exhausted("UAR page"))
    }

    /// Frees a UAR page, which no QP or CQ may use any more.
    ///
    /// # Errors
    ///
    /// - [`Error::Unknown`]: no such page in this context.
    /// - [`Error::InUse`]: a QP or CQ still refers to it.
    pub fn free_uar(&self, page_id: u32) -> Result<(), Error> {
        let mut core = self.shared.core();
        let uar = core.path.objects.uars.get(page_id).filter(|uar| uar.owner == self.id);
        let users = uar.ok_or(Error::Unknown { kind: "UAR page", id: page_id })?.users;
        if users != 0 {
            return Err(Error::InUse { kind: "UAR page", id: page_id, users });
        }
        core.path.objects.uars.remove(page_id);
        Ok(())
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        self.shared.core().close_context(self.id);
    }
}
