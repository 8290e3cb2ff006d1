//! The adapter, and the handles of its users.
#![allow(unsafe_code, reason = "a doorbell page's address is handed out")]

use crate::address::{gid_of, lid_of, mac_of};
use crate::cmd;
use crate::config::{Config, Numbers};
use crate::dma::Umem;
use crate::engine::alarm::{Alarm, Waker};
use crate::engine::clock;
use crate::engine::core::Core;
use crate::engine::thread::{self, Shared};
use crate::error::Error;
use crate::health::Health;
use crate::link::Fabric;
use crate::link::udp::path_mtu;
use crate::management::{MAD, Mad};
use crate::memory::{HostBuffer, Memory, PAGE};
use crate::objects::UarPage;
use crate::queue_memory::{BadQueueMemory, QueueMemory};
use crate::report::{Event, Observer, Stats, Violation, WqeLog};
use crate::rng::Rng;
use crate::transport::datapath::Datapath;
use rushmem_mlx5::doorbell::uar;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

/// A software ConnectX: an engine thread, its objects and its fabric.
///
/// Dropping it stops the engine. Pages and memory stay valid as long as their own handles do.
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
    /// - [`Error::Bind`]: the socket of the fabric cannot be bound.
    /// - [`Error::Capture`], [`Error::Record`]: the file cannot be created.
    /// - [`Error::Random`]: the system has no random numbers.
    /// - [`Error::Thread`]: the system cannot start the engine thread.
    pub fn start(config: Config) -> Result<Nic, Error> {
        config.check()?;
        let fabric = Fabric::open(&config)?;
        let record = config.record.as_deref().map(WqeLog::open).transpose()?;
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

    /// Returns the adapter's GID: its IPv4 address, mapped into IPv6.
    #[must_use]
    pub fn gid(&self) -> [u8; 16] {
        gid_of(*self.address.ip())
    }

    /// Returns the adapter's LID, for drivers that address peers of this machine as on InfiniBand.
    ///
    /// The LID is the last two bytes of an address 127.64.hi.lo, as [`Ip::AnyLoopback`](crate::Ip::AnyLoopback)
    /// chooses it. With any other address there is none.
    #[must_use]
    pub fn lid(&self) -> Option<u16> {
        lid_of(*self.address.ip())
    }

    /// Passes every event to `sink` from now on, and none to an earlier sink.
    ///
    /// The engine thread calls `sink` with no lock held. `sink` may call the adapter, but all queues wait while it
    /// runs. An event arrives after the completion that it announces. Its CQ, QP or context may have been destroyed
    /// meanwhile. The sink is dropped with the adapter.
    pub fn on_event(&self, sink: impl Fn(Event) + Send + Sync + 'static) {
        self.shared.sink.set(Some(Arc::new(sink)));
    }

    /// Passes every management datagram of queue pair 1 to `receiver` from now on, and none to an earlier receiver.
    ///
    /// The engine thread calls `receiver` with no lock held. Without a receiver, datagrams are lost.
    pub fn on_mad(&self, receiver: impl Fn(Mad) + Send + Sync + 'static) {
        self.shared.mads.set(Some(Arc::new(receiver)));
    }

    /// Sends a management datagram from queue pair 1 of this adapter to queue pair 1 of the adapter at `to`.
    ///
    /// It leaves before this call returns. Nothing acknowledges it, and it may be lost.
    pub fn send_mad(&self, to: Ipv4Addr, bytes: &[u8; MAD]) {
        self.shared.core().path.send_mad(to, bytes);
        self.shared.alarm.ring();
    }

    /// Passes every observation to `observer` from now on, and none to an earlier observer.
    ///
    /// The adapter keeps the observer until it is dropped. Then the observer has got everything.
    pub fn observe(&self, observer: Arc<dyn Observer>) {
        self.shared.core().path.report.lookout.set(observer);
    }

    /// Returns the adapter's MAC address. It is locally administered and ends with the UDP port (0 without a fabric).
    #[must_use]
    pub fn mac(&self) -> [u8; 6] {
        mac_of(self.address.port())
    }

    /// Returns the address of the UDP fabric; the port is 0 without one.
    #[must_use]
    pub fn address(&self) -> SocketAddrV4 {
        self.address
    }

    /// Returns the largest path MTU, in bytes, for QPs towards an adapter at `peer`.
    ///
    /// It fits the link without fragments and is at most [`Config::mtu`]. Returns `None` if there is no route to
    /// `peer`.
    #[must_use]
    pub fn path_mtu(&self, peer: Ipv4Addr) -> Option<u32> {
        let own = *self.address.ip();
        let fits =
            if peer == own { self.mtu } else { path_mtu(own, SocketAddrV4::new(peer, self.address.port()))? };
        Some(fits.min(self.mtu))
    }

    /// Returns whether the adapter may acknowledge a WRITE before its data is in memory: see
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

    /// Returns the rules that drivers and kernels broke so far, oldest first. Only the first 256 are kept.
    #[must_use]
    pub fn violations(&self) -> Vec<Violation> {
        self.shared.core().path.report.violations.list().to_vec()
    }

    /// Returns the health of the port and the adapter.
    #[must_use]
    pub fn health(&self) -> Health {
        self.shared.core().path.failures.health
    }

    /// Returns the present value of the clock of completions, in nanoseconds.
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

/// A UAR page, with doorbell registers.
///
/// The page lives until [`Context::free_uar`], or else as long as the adapter. This handle keeps its memory alive
/// beyond both.
#[derive(Clone)]
pub struct Uar {
    /// Number of the page, for CREATE_QP and CREATE_CQ.
    pub page_id: u32,
    /// First byte of the page: 4096 bytes, page-aligned, which may be page-locked and mapped for a GPU.
    pub page: *mut u8,
    /// The doorbell register: 8 bytes, write only.
    pub reg_addr: *mut u8,
    memory: Arc<HostBuffer>,
}

// SAFETY: the pointers are plain addresses of memory that any thread may access with atomics.
unsafe impl Send for Uar {}
// SAFETY: as for Send.
unsafe impl Sync for Uar {}

impl Uar {
    /// Returns the page as memory, for drivers that use no pointers.
    #[must_use]
    pub fn memory(&self) -> &HostBuffer {
        &self.memory
    }
}

/// The handle of one user, who owns the objects made with it. Dropping it destroys them.
pub struct Context {
    shared: Arc<Shared>,
    id: u32,
    commands: AtomicU64,
}

impl Context {
    /// Executes a PRM command: a general, create, modify, query or destroy command.
    ///
    /// Status and syndrome are in the output mailbox, as firmware leaves them. If `output` is shorter than the answer,
    /// it gets the beginning. [`reason`](crate::reason) explains a syndrome.
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

    /// Returns the number of commands so far.
    #[must_use]
    pub fn commands(&self) -> u64 {
        self.commands.load(Ordering::Relaxed)
    }

    /// Returns a handle that ends a sleep of the engine.
    ///
    /// A program that rings a doorbell may call [`Waker::wake`] after it. The engine otherwise finds the doorbell after
    /// its sleep, for which [`Config::idle`] has the limit.
    #[must_use]
    pub fn waker(&self) -> Waker {
        Waker(Arc::clone(&self.shared.alarm))
    }

    /// Calls `listener` after the adapter has changed memory of this context, and an earlier listener no more.
    ///
    /// The changes are completions, and writes and atomics of peers. The engine thread calls `listener` once for all
    /// changes of a pass, with no lock held. Dropping the context drops `listener`.
    pub fn on_change(&self, listener: impl Fn() + Send + Sync + 'static) {
        self.shared.core().contexts.listen(self.id, Arc::new(listener));
    }

    /// Shows the clock of completions in 8 bytes of `memory` from `offset`, most significant byte first, as a ConnectX does.
    ///
    /// The clock never goes back. No completion of an operation that is posted after a read has an earlier time. The adapter
    /// stores the clock in each pass, and wakes up for nothing else. So the clock lags by at most a sleep, for which
    /// [`Config::idle`] has the limit, and a pass. It stands still when the context is dropped.
    ///
    /// # Errors
    ///
    /// [`Error::ClockMemory`]: the bytes leave the memory, or are not aligned.
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

    /// Takes the failures of this context's CQs and QPs, of the port and of the adapter since the last call.
    ///
    /// At most 256 are kept.
    #[must_use]
    pub fn failures(&self) -> Vec<Event> {
        self.shared.core().contexts.take_failures(self.id)
    }

    /// Adds a QP of datagrams to a multicast group, so that it receives what is sent to the group.
    ///
    /// Adapters of this machine, and of others in the network of its interface, share the groups. A member does not
    /// receive its own datagrams.
    ///
    /// # Errors
    ///
    /// - [`Error::Unknown`]: no such QP in this context.
    /// - [`Error::Group`]: the adapter cannot join the group.
    pub fn join_group(&self, qpn: u32, group: Ipv4Addr) -> Result<(), Error> {
        let mut core = self.shared.core();
        let own = core.path.objects.qps.get(qpn).is_some_and(|qp| qp.owner == self.id);
        if !own {
            return Err(Error::Unknown { kind: "QP", id: qpn });
        }
        let unsupported = || Err(std::io::ErrorKind::Unsupported.into());
        let joined = match &mut core.path.fabric {
            Some(fabric) if group.is_multicast() => fabric.join(group),
            _ => unsupported(),
        };
        joined.map_err(|source| Error::Group { group, source })?;
        core.transports.datagrams.members.add(group, qpn);
        Ok(())
    }

    /// Removes a QP from a multicast group.
    ///
    /// # Errors
    ///
    /// [`Error::Unknown`]: no such QP in this context is in the group.
    pub fn leave_group(&self, qpn: u32, group: Ipv4Addr) -> Result<(), Error> {
        let mut core = self.shared.core();
        let own = core.path.objects.qps.get(qpn).is_some_and(|qp| qp.owner == self.id);
        if own && core.transports.datagrams.members.remove(group, qpn) {
            return Ok(());
        }
        Err(Error::Unknown { kind: "member of a multicast group", id: qpn })
    }

    /// Registers `len` bytes of `memory` from `offset` for queues and memory keys, and returns the number of the umem.
    ///
    /// # Errors
    ///
    /// - [`Error::UmemRange`]: the range is empty or leaves the memory.
    /// - [`Error::Exhausted`]: no umem numbers are left.
    pub fn umem_reg(&self, memory: Arc<dyn Memory>, offset: u64, len: u64) -> Result<u32, Error> {
        let size = memory.len();
        if offset.checked_add(len).is_none_or(|end| end > size) || len == 0 {
            return Err(Error::UmemRange { offset, len, size });
        }
        let umem = Umem { owner: self.id, memory, offset, len, users: 0 };
        self.shared.core().path.objects.umems.insert(umem).ok_or(Error::Exhausted("umem"))
    }

    /// Exchanges what two memory keys of this context stand for: memory, range, protection domain and rights. Users of a
    /// key keep its number. A driver changes a memory region so.
    ///
    /// # Errors
    ///
    /// [`Error::Unknown`]: the context lacks one of the keys.
    pub fn swap_keys(&self, a: u32, b: u32) -> Result<(), Error> {
        let mut core = self.shared.core();
        let Datapath { objects, report, .. } = &mut core.path;
        let done = objects.swap_mkeys(self.id, (a, b), report);
        if done { Ok(()) } else { Err(Error::Unknown { kind: "memory key", id: a }) }
    }

    /// Unregisters a umem.
    ///
    /// # Errors
    ///
    /// - [`Error::Unknown`]: no such umem in this context.
    /// - [`Error::InUse`]: a key or a queue still uses it.
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

    /// Allocates a UAR page.
    ///
    /// # Errors
    ///
    /// - [`Error::Exhausted`]: no page numbers are left.
    pub fn alloc_uar(&self) -> Result<Uar, Error> {
        let memory = Arc::new(HostBuffer::new(PAGE));
        let page_id = self.alloc_uar_in(Arc::clone(&memory) as _, 0)?;
        let page = memory.as_ptr();
        Ok(Uar { page_id, page, reg_addr: page.wrapping_add(uar::DB), memory })
    }

    /// Makes 4096 bytes of `memory` from `offset` a UAR page, and returns its number for CREATE_QP and CREATE_CQ.
    ///
    /// The bytes must be page-aligned, and zero until a doorbell is rung. Every process that maps the memory can ring. A
    /// driver may share pages of a file with other processes this way. The adapter polls a page in GPU memory by reads,
    /// which take microseconds.
    ///
    /// # Errors
    ///
    /// - [`Error::UarMemory`]: the memory cannot be a UAR page.
    /// - [`Error::Exhausted`]: no page numbers are left.
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

    /// Frees a UAR page.
    ///
    /// # Errors
    ///
    /// - [`Error::Unknown`]: no such page in this context.
    /// - [`Error::InUse`]: a QP or CQ still uses it.
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
