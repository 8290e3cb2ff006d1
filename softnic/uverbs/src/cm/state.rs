//! State of the connection manager: event files with their events, identifiers, adapters.

use super::abi::{self, event, port_space};
use super::mad::{Ids, Mad, Message};
use super::names::{self, Name};
use super::port::Port;
use super::request::Request;
use super::worker::Inbox;
use crate::abi::qp_type;
use crate::device::Device;
use crate::errno::Errno;
use crate::events::{Channel, Kind};
use crate::process;
use crate::settings::Settings;
use crate::sys::{self, Identity};
use crate::user;
use std::collections::{BTreeMap, VecDeque};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// Maximum number of identifiers, and of memberships, per process.
const MAX_OBJECTS: usize = 1 << 16;

/// How long messages of a process that has exited may still arrive.
const LAST_MESSAGES: Duration = Duration::from_millis(50);

/// State of the connection manager in this process.
#[derive(Default)]
pub(super) struct State {
    files: BTreeMap<u64, File>,
    next_file: u64,
    pub(super) ids: BTreeMap<u32, Id>,
    memberships: BTreeMap<u32, Membership>,
    ports: BTreeMap<u32, Weak<Port>>,
    /// The address and the listening socket of each device. Peers stay connected to the socket, which is how they
    /// notice that this process has exited. It is never closed earlier: while the worker polls it, a closed socket
    /// would keep its name and its streams.
    named: BTreeMap<u32, (Ipv4Addr, UnixListener)>,
    /// Processes that own the adapters of peers.
    peers: BTreeMap<Ipv4Addr, Peer>,
    next_process: u64,
    /// Processes that have exited, and when to close the connections to them.
    ended: Vec<(Instant, u64)>,
    /// Streams from processes that watch this one.
    watchers: Vec<UnixStream>,
    next_communication: u32,
}

/// A process that owns an adapter. A later process may take over the address.
struct Peer {
    process: u64,
    /// Hangs up when the process exits.
    stream: UnixStream,
}

/// An open file of `/dev/infiniband/rdma_cm`, from which a program reads events.
struct File {
    fd: RawFd,
    identity: Identity,
    /// Holds one byte while there are events, which makes the descriptor readable.
    signal: Arc<Channel>,
    events: VecDeque<Queued>,
    /// Set once a thread has waited for an event.
    was_waited_for: bool,
    /// If the program has closed the file but its descriptor is kept open for a while, the time at which to close it.
    closes: Option<Instant>,
}

/// What happens to a descriptor that a program closes.
pub(super) enum Closed {
    /// It is not an event file.
    Nothing,
    Now,
    Later,
}

/// Membership of an identifier in a multicast group.
pub(super) struct Membership {
    file: u64,
    id: u32,
    uid: u64,
    events_reported: u32,
}

/// An event that the program has not read.
struct Queued {
    /// Handle of the identifier whose count of reported events includes this one.
    owner: u32,
    /// ID of the multicast membership that counts the event, too.
    membership: Option<u32>,
    /// Handle of the new identifier that a connection request brings. The program learns of it by this event.
    brings: Option<u32>,
    event: abi::Event,
}

/// The state of an identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Idle,
    Bound,
    Listening,
    AddressResolved,
    RouteResolved,
    ReqSent,
    ReqReceived,
    RepSent,
    RepReceived,
    SidrSent,
    SidrReceived,
    Established,
    DreqSent,
    TimeWait,
    Ended,
}

/// When to resend a message that has not been answered, or when a pause is over.
pub(super) struct Timer {
    pub(super) due: Instant,
    pub(super) tries: u32,
}

/// Options set by the program.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Options {
    pub(super) tos: u8,
    pub(super) reuse_address: bool,
    pub(super) ipv6_only: bool,
    pub(super) ack_timeout: Option<u8>,
}

/// The type of queue pair that an identifier is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Service {
    Rc,
    Ud,
    XrcInitiator,
    XrcTarget,
}

impl Service {
    /// Returns the type for a port space, or `EINVAL`. Only `RDMA_PS_IB` leaves the choice to the program.
    pub(super) fn of(ps: u16, wanted: u8) -> Result<Service, Errno> {
        match (ps, wanted.into()) {
            (port_space::TCP, _) | (port_space::IB, qp_type::RC) => Ok(Service::Rc),
            (port_space::UDP | port_space::IPOIB, _) | (port_space::IB, qp_type::UD) => Ok(Service::Ud),
            (port_space::IB, qp_type::XRC_INITIATOR) => Ok(Service::XrcInitiator),
            (port_space::IB, qp_type::XRC_TARGET) => Ok(Service::XrcTarget),
            _ => Err(Errno::EINVAL),
        }
    }

    /// Returns the type for the identifier of a request that a listener has received.
    pub(super) fn of_request(is_xrc: bool) -> Service {
        if is_xrc { Service::XrcTarget } else { Service::Rc }
    }
}

pub(super) struct Id {
    /// Value by which the program names the identifier in events. It is 0 until the program has accepted the
    /// connection.
    pub(super) uid: u64,
    pub(super) file: u64,
    pub(super) ps: u16,
    pub(super) service: Service,
    pub(super) phase: Phase,
    pub(super) local: Option<SocketAddr>,
    pub(super) remote: Option<SocketAddr>,
    /// Adapter that the identifier is bound to.
    pub(super) port: Option<Arc<Port>>,
    /// The adapters that a listener uses, with the names that announce them.
    pub(super) listening: Vec<(Arc<Port>, Name)>,
    /// Registered name that holds the identifier's port number.
    pub(super) name: Option<Name>,
    pub(super) options: Options,
    pub(super) backlog: usize,
    /// The listener that received the connection request.
    pub(super) listener: Option<u32>,
    pub(super) events_reported: u32,
    pub(super) connection: Connection,
}

pub(super) struct Connection {
    pub(super) peer: Ipv4Addr,
    /// The process that owns the peer's adapter, if this process watches it.
    pub(super) process: Option<u64>,
    pub(super) ids: Ids,
    pub(super) tid: u64,
    pub(super) qpn: u32,
    pub(super) remote_qpn: u32,
    pub(super) psn: u32,
    pub(super) remote_psn: u32,
    pub(super) responder_resources: u8,
    pub(super) initiator_depth: u8,
    pub(super) retry_count: u8,
    pub(super) rnr_retry: u8,
    pub(super) ack_timeout: u8,
    pub(super) mtu: u8,
    pub(super) qkey: u32,
    /// The last message sent that the peer may need again.
    pub(super) last: Option<Mad>,
    pub(super) timer: Option<Timer>,
    /// When the program asked for the connection.
    pub(super) since: Instant,
    /// Whether nobody was listening at the peer's address. When the timer expires, the listener is then looked up
    /// again.
    pub(super) looks_again: bool,
}

impl Id {
    fn new(file: u64, uid: u64, ps: u16, service: Service) -> Id {
        Id {
            uid,
            file,
            ps,
            service,
            phase: Phase::Idle,
            local: None,
            remote: None,
            port: None,
            listening: Vec::new(),
            name: None,
            options: Options::default(),
            backlog: 0,
            listener: None,
            events_reported: 0,
            connection: Connection::default(),
        }
    }

    pub(super) fn is_datagram(&self) -> bool {
        self.service == Service::Ud
    }

    /// Returns the adapter that the identifier is bound to, or `EINVAL` if it has none yet.
    pub(super) fn port(&self) -> Result<&Arc<Port>, Errno> {
        self.port.as_ref().ok_or(Errno::EINVAL)
    }

    pub(super) fn send(&self, message: Message) {
        self.send_mad(&Mad { tid: self.connection.tid, message });
    }

    pub(super) fn send_mad(&self, mad: &Mad) {
        if let Some(port) = &self.port {
            port.send(self.connection.peer, mad);
        }
    }

    /// Sends a message, and keeps a copy for when the peer needs it again.
    pub(super) fn send_and_keep(&mut self, message: Message) {
        let mad = Mad { tid: self.connection.tid, message };
        self.send_mad(&mad);
        self.connection.last = Some(mad);
    }
}

impl Default for Connection {
    fn default() -> Connection {
        Connection {
            peer: Ipv4Addr::UNSPECIFIED,
            process: None,
            ids: Ids::default(),
            tid: 0,
            qpn: 0,
            remote_qpn: 0,
            psn: 0,
            remote_psn: 0,
            responder_resources: 0,
            initiator_depth: 0,
            retry_count: 0,
            rnr_retry: 0,
            ack_timeout: 0,
            mtu: 0,
            qkey: 0,
            last: None,
            timer: None,
            since: Instant::now(),
            looks_again: false,
        }
    }
}

pub(super) enum Param {
    None,
    Connection(abi::ConnParam),
    Datagram(abi::UdParam),
}

impl State {
    pub(super) fn new() -> State {
        // Random, to keep messages for an earlier process from matching a connection of this one.
        State { next_communication: getrandom::u32().unwrap_or(1), ..State::default() }
    }

    /// Opens an event file and returns the program's descriptor.
    pub(super) fn open(&mut self, close_on_exec: bool) -> Result<RawFd, Errno> {
        let (signal, fd) = Channel::new(Kind::Fixed)?;
        if !close_on_exec {
            sys::keep_on_exec(fd)?;
        }
        let identity = sys::identity(fd).ok_or(Errno::EIO)?;
        self.next_file += 1;
        let file =
            File { fd, identity, signal, events: VecDeque::new(), was_waited_for: false, closes: None };
        self.files.insert(self.next_file, file);
        Ok(fd)
    }

    /// Returns the ID of the file that a descriptor refers to. Descriptors may have been duplicated.
    pub(super) fn file_of(&self, fd: RawFd) -> Option<u64> {
        let identity = sys::identity(fd)?;
        self.files.iter().find(|(_, file)| file.identity == identity).map(|(number, _)| *number)
    }

    /// Records that a thread waits for an event of a file.
    pub(super) fn waits_for(&mut self, file: u64) {
        if let Some(file) = self.files.get_mut(&file) {
            file.was_waited_for = true;
        }
    }

    /// Closes the file of a descriptor returned by `open`, and destroys its identifiers. If threads have waited for its
    /// events, the descriptor stays open until `later`.
    pub(super) fn close(&mut self, fd: RawFd, later: Instant) -> Closed {
        let found = self.file_of(fd).filter(|number| self.files[number].fd == fd);
        let Some(number) = found else { return Closed::Nothing };
        let ids: Vec<u32> =
            self.ids.iter().filter(|(_, id)| id.file == number).map(|(handle, _)| *handle).collect();
        for handle in ids {
            self.destroy(handle);
        }
        if let Some(file) = self.files.get_mut(&number).filter(|file| file.was_waited_for) {
            file.closes.get_or_insert(later);
            return Closed::Later;
        }
        self.forget(number);
        Closed::Now
    }

    fn forget(&mut self, number: u64) {
        if let Some(file) = self.files.remove(&number) {
            // A descriptor that was marked can be unmarked.
            let _ = process::mark(file.fd, false);
        }
    }

    /// Closes the descriptors of closed files whose grace period is over at `now`.
    pub(super) fn close_due(&mut self, now: Instant) {
        let is_due = |file: &File| file.closes.is_some_and(|due| due <= now);
        let due: Vec<(u64, RawFd)> = self
            .files
            .iter()
            .filter(|(_, file)| is_due(file))
            .map(|(number, file)| (*number, file.fd))
            .collect();
        for (number, fd) in due {
            self.forget(number);
            sys::close(fd);
        }
    }

    /// Creates an identifier and returns its handle.
    pub(super) fn create(&mut self, file: u64, uid: u64, ps: u16, service: Service) -> Result<u32, Errno> {
        if self.ids.len() >= MAX_OBJECTS {
            return Err(Errno::ENOMEM);
        }
        // Programs keep a table indexed by handle, so use the smallest free one.
        let handle = (0..).find(|handle| !self.ids.contains_key(handle)).ok_or(Errno::ENOMEM)?;
        self.ids.insert(handle, Id::new(file, uid, ps, service));
        Ok(handle)
    }

    /// Returns an identifier of a file. Returns `ENOENT` if it does not exist, and `EINVAL` if it belongs to another
    /// file.
    pub(super) fn id(&mut self, file: u64, handle: u32) -> Result<&mut Id, Errno> {
        let id = self.ids.get_mut(&handle).ok_or(Errno::ENOENT)?;
        if id.file == file { Ok(id) } else { Err(Errno::EINVAL) }
    }

    /// Removes an identifier with its events. Identifiers that the program would have learned of by those events are
    /// destroyed.
    pub(super) fn remove(&mut self, handle: u32) -> Option<Id> {
        let id = self.ids.remove(&handle)?;
        self.memberships.retain(|_, membership| membership.id != handle);
        let mut lost = Vec::new();
        if let Some(file) = self.files.get_mut(&id.file) {
            file.events.retain(|queued| {
                let stays = queued.owner != handle;
                lost.extend(queued.brings.filter(|_| !stays));
                stays
            });
            file.settle();
        }
        for handle in lost {
            self.destroy(handle);
        }
        Some(id)
    }

    /// Moves an identifier with its events to another file. Returns how many of its events the program has read.
    pub(super) fn migrate(&mut self, handle: u32, to: u64) -> Result<u32, Errno> {
        let id = self.ids.get_mut(&handle).ok_or(Errno::ENOENT)?;
        let from = std::mem::replace(&mut id.file, to);
        self.memberships.values_mut().filter(|membership| membership.id == handle).for_each(|membership| {
            membership.file = to;
        });
        let reported = id.events_reported;
        let mut moved = VecDeque::new();
        let mut brought = Vec::new();
        if let Some(file) = self.files.get_mut(&from) {
            let (own, rest) =
                std::mem::take(&mut file.events).into_iter().partition(|queued| queued.owner == handle);
            (moved, file.events) = (own, rest);
            file.settle();
        }
        brought.extend(moved.iter().filter_map(|queued| queued.brings));
        if let Some(file) = self.files.get_mut(&to) {
            file.events.append(&mut moved);
            file.settle();
        }
        for handle in brought {
            if let Some(id) = self.ids.get_mut(&handle) {
                id.file = to;
            }
        }
        Ok(reported)
    }

    /// Adds an event of an identifier. A negative status is an error number.
    pub(super) fn tell(&mut self, handle: u32, kind: u32, status: i32, param: &Param) {
        let Some(id) = self.ids.get(&handle) else { return };
        let event = abi::Event { uid: id.uid, id: handle, ..event_of(kind, status, param) };
        // The program has no name yet for a connection that it has not accepted. If that fails, ACCEPT reports it.
        if id.uid != 0 {
            self.queue(id.file, Queued { owner: handle, membership: None, brings: None, event });
        }
    }

    /// Adds a membership of an identifier and returns its ID.
    pub(super) fn add_membership(&mut self, file: u64, id: u32, uid: u64) -> Result<u32, Errno> {
        if self.memberships.len() >= MAX_OBJECTS {
            return Err(Errno::ENOMEM);
        }
        let free = (0..).find(|number| !self.memberships.contains_key(number));
        let number = free.ok_or(Errno::ENOMEM)?;
        self.memberships.insert(number, Membership { file, id, uid, events_reported: 0 });
        Ok(number)
    }

    /// Checks that a file has a membership with this ID.
    pub(super) fn membership(&self, file: u64, number: u32) -> Result<(), Errno> {
        let membership = self.memberships.get(&number).ok_or(Errno::ENOENT)?;
        if membership.file == file { Ok(()) } else { Err(Errno::EINVAL) }
    }

    /// Removes a membership with its events. Returns how many of its events the program has read.
    pub(super) fn remove_membership(&mut self, number: u32) -> u32 {
        let Some(membership) = self.memberships.remove(&number) else { return 0 };
        if let Some(file) = self.files.get_mut(&membership.file) {
            file.events.retain(|queued| queued.membership != Some(number));
            file.settle();
        }
        membership.events_reported
    }

    pub(super) fn tell_member(&mut self, number: u32, kind: u32, param: &Param) {
        let Some(membership) = self.memberships.get(&number) else { return };
        let (file, owner) = (membership.file, membership.id);
        let event = abi::Event { uid: membership.uid, id: number, ..event_of(kind, 0, param) };
        self.queue(file, Queued { owner, membership: Some(number), brings: None, event });
    }

    /// Returns the number of connection requests of a listener that the program has not read.
    pub(super) fn unread_requests(&self, file: u64, listener: u32) -> usize {
        let is_request = |queued: &&Queued| queued.owner == listener && queued.brings.is_some();
        self.files.get(&file).map_or(0, |file| file.events.iter().filter(is_request).count())
    }

    /// Adds the event of a listener that introduces a new identifier.
    pub(super) fn tell_request(&mut self, listener: u32, new: u32, param: &Param) {
        let Some(id) = self.ids.get(&listener) else { return };
        let event = abi::Event { uid: id.uid, id: new, ..event_of(event::CONNECT_REQUEST, 0, param) };
        self.queue(id.file, Queued { owner: listener, membership: None, brings: Some(new), event });
    }

    fn queue(&mut self, file: u64, queued: Queued) {
        let Some(file) = self.files.get_mut(&file) else { return };
        let uevent = &queued.event;
        tracing::debug!(
            id = uevent.id,
            event = uevent.event,
            status = uevent.status as i32,
            "event of rdma_cm"
        );
        file.events.push_back(queued);
        file.settle();
    }

    /// Handles GET_EVENT. Returns `EAGAIN` if there is no event.
    pub(super) fn next_event(&mut self, request: &Request<'_>) -> Result<(), Errno> {
        let get: abi::GetEvent = request.input()?;
        let file = self.files.get_mut(&request.file).ok_or(Errno::EINVAL)?;
        let next = file.events.front().ok_or(Errno::EAGAIN)?;
        // An older program has no room for the options of enhanced connections.
        let least = size_of::<abi::Event>() - size_of::<abi::Ece>() - size_of::<u32>();
        let room = usize::from(request.room);
        if room < least {
            return Err(Errno::ENOSPC);
        }
        let bytes = bytemuck::bytes_of(&next.event);
        user::write(get.response, &bytes[..bytes.len().min(room)])?;
        let (owner, membership) = (next.owner, next.membership);
        // Counted only once the program has the event: if writing fails, it stays in the queue.
        file.events.pop_front();
        file.settle();
        if let Some(id) = self.ids.get_mut(&owner) {
            id.events_reported += 1;
        }
        if let Some(membership) = membership.and_then(|number| self.memberships.get_mut(&number)) {
            membership.events_reported += 1;
        }
        Ok(())
    }

    /// Returns the adapter of a device, starting it if necessary.
    pub(super) fn port(&mut self, device: &Arc<Device>, inbox: &Arc<Inbox>) -> Result<Arc<Port>, Errno> {
        if let Some(port) = self.running(device.index) {
            return Ok(port);
        }
        let port = Arc::new(Port::open(device, inbox)?);
        self.ports.insert(device.index, Arc::downgrade(&port));
        self.name_adapter(device.index, port.ip);
        inbox.ring();
        Ok(port)
    }

    /// Returns the adapter of a device if it is running.
    pub(super) fn running(&self, device: u32) -> Option<Arc<Port>> {
        self.ports.get(&device).and_then(Weak::upgrade)
    }

    /// Allocates a communication ID for one end of a connection.
    pub(super) fn communication(&mut self) -> u32 {
        loop {
            self.next_communication = self.next_communication.wrapping_add(1);
            let number = self.next_communication;
            if number != 0 && !self.ids.values().any(|id| id.connection.ids.local == number) {
                return number;
            }
        }
    }

    /// Announces this process as the owner of a device's adapter.
    fn name_adapter(&mut self, device: u32, ip: Ipv4Addr) {
        if self.named.get(&device).is_none_or(|(named, _)| *named != ip) {
            match names::name_adapter(ip) {
                Ok(listener) => drop(self.named.insert(device, (ip, listener))),
                Err(error) => tracing::warn!(%ip, ?error, "cannot name the adapter"),
            }
        }
    }

    /// Watches the process that owns the adapter of an identifier's peer, if it is another process on this machine.
    pub(super) fn watch(&mut self, handle: u32, inbox: &Inbox) {
        let Some(adapter) = self.ids.get(&handle).map(|id| id.connection.peer) else { return };
        // The adapter belongs to this process.
        if self.ports.values().filter_map(Weak::upgrade).any(|port| port.ip == adapter) {
            return;
        }
        // A stream that has hung up belongs to an earlier process at the same address.
        let living = self.peers.get(&adapter).filter(|peer| !sys::is_ready(peer.stream.as_raw_fd()));
        let process = match living {
            Some(peer) => peer.process,
            None => {
                let Some(stream) = names::watch_adapter(adapter) else { return };
                self.next_process += 1;
                let peer = Peer { process: self.next_process, stream };
                if let Some(earlier) = self.peers.insert(adapter, peer) {
                    self.ended.push((Instant::now() + LAST_MESSAGES, earlier.process));
                }
                inbox.ring();
                self.next_process
            }
        };
        if let Some(id) = self.ids.get_mut(&handle) {
            id.connection.process = Some(process);
        }
    }

    /// Returns the descriptors to wait for, and when to stop waiting.
    pub(super) fn waits(&self) -> (Vec<RawFd>, Option<Instant>) {
        let streams = self.peers.values().map(|peer| &peer.stream).chain(&self.watchers);
        let mut fds: Vec<RawFd> = streams.map(AsRawFd::as_raw_fd).collect();
        fds.extend(self.named.values().map(|(_, listener)| listener.as_raw_fd()));
        let timers = self.ids.values().filter_map(|id| id.connection.timer.as_ref().map(|timer| timer.due));
        let ends = self.ended.iter().map(|(due, _)| *due);
        (fds, timers.chain(ends).chain(self.files.values().filter_map(|file| file.closes)).min())
    }

    /// Accepts processes that watch this one, and records which peers have exited.
    pub(super) fn look_at_peers(&mut self) {
        for (_, listener) in self.named.values() {
            while let Ok((stream, _)) = listener.accept() {
                self.watchers.push(stream);
            }
        }
        // A watcher sends nothing, so a readable stream has hung up.
        self.watchers.retain(|stream| !sys::is_ready(stream.as_raw_fd()));
        // Its last messages may still be on the way, so its connections are not closed yet.
        let due = Instant::now() + LAST_MESSAGES;
        let State { peers, ended, ids, .. } = self;
        peers.retain(|_, peer| {
            let has_ended = sys::is_ready(peer.stream.as_raw_fd());
            if has_ended {
                ended.push((due, peer.process));
            }
            !has_ended && ids.values().any(|id| id.connection.process == Some(peer.process))
        });
    }

    /// Removes and returns the processes that exited long enough before `now` to close the connections to them.
    pub(super) fn take_ended(&mut self, now: Instant) -> Vec<u64> {
        self.ended.extract_if(.., |(due, _)| *due <= now).map(|(_, process)| process).collect()
    }
}

impl File {
    /// Updates the descriptor to be readable if and only if there are events.
    fn settle(&self) {
        self.signal.take_back(1, |_| true);
        if !self.events.is_empty() {
            self.signal.send(&[1]);
        }
    }
}

fn event_of(kind: u32, status: i32, param: &Param) -> abi::Event {
    let mut event = abi::Event { event: kind, status: status as u32, ..abi::Event::default() };
    let bytes = match param {
        Param::None => &[][..],
        Param::Connection(param) => bytemuck::bytes_of(param),
        Param::Datagram(param) => bytemuck::bytes_of(param),
    };
    bytemuck::bytes_of_mut(&mut event.param)[..bytes.len()].copy_from_slice(bytes);
    event
}

/// Returns the device with this IP address, or else the first one.
pub(super) fn device_with(devices: &[Arc<Device>], ip: std::net::IpAddr) -> Result<&Arc<Device>, Errno> {
    let has = |settings: &Settings, index: u32| {
        settings.addresses.get(index as usize).is_some_and(|own| std::net::IpAddr::V4(*own) == ip)
    };
    let found = devices.iter().find(|device| has(&device.settings, device.index));
    found.or_else(|| devices.first()).ok_or(Errno::ENODEV)
}
