//! Reactions of the connection manager to messages of peers, to timeouts, and to the exit of a peer's process.

use super::abi::{self, event};
use super::address;
use super::attributes;
use super::connection;
use super::header::{self, Header};
use super::mad::{
    self, Ids, Mad, Message, RESPONSE_TIMEOUT, Rep, Req, answered, reason, sidr_status, time_of,
};
use super::names::{self, Endpoint};
use super::port::{Port, gid_of};
use super::state::{Connection, Id, Param, Phase, Service, State, Timer};
use super::worker::Inbox;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Code of the time that a program gets to decide about a connection: a minute.
const PROGRAM_TIMEOUT: u8 = 24;

/// How long to wait for a process of this machine to bind a port. Starting an adapter takes longer here than with
/// hardware, which programs do not expect.
const BINDING: Duration = Duration::from_millis(300);
/// How long to wait for a process that has bound a port to start listening on it.
const LISTENING: Duration = Duration::from_secs(2);
/// Time between two lookups of a listener.
const LISTENER_RETRY: Duration = Duration::from_millis(20);

/// Where a message came from.
struct From {
    port: Arc<Port>,
    adapter: Ipv4Addr,
    tid: u64,
}

impl From {
    /// Answers a message that belongs to no identifier.
    fn answer(&self, message: Message) {
        self.port.send(self.adapter, &Mad { tid: self.tid, message });
    }

    fn reject(&self, remote: u32, answered: u8, reason: u16) {
        let ids = Ids { local: 0, remote };
        self.answer(Message::Rej { ids, answered, reason, private: Vec::new() });
    }
}

/// Converts the private data of a message to the format of events. Also returns its length in bytes.
pub(super) fn private(bytes: &[u8]) -> (abi::PrivateData, u8) {
    let mut data = abi::PrivateData::default();
    let len = bytes.len().min(size_of::<abi::PrivateData>());
    bytemuck::bytes_of_mut(&mut data)[..len].copy_from_slice(&bytes[..len]);
    (data, len.min(255) as u8)
}

fn only_private(bytes: &[u8]) -> Param {
    let (private_data, private_data_len) = private(bytes);
    Param::Connection(abi::ConnParam { private_data, private_data_len, ..abi::ConnParam::default() })
}

/// Handles the refusal of a connection request because nobody listens. If the adapter that refused it is this machine's
/// own, schedules another lookup of the listener and returns `true`.
fn looks_again(id: &mut Id, from: &From) -> bool {
    let Some(to) = id.remote.filter(|_| matches!(id.phase, Phase::ReqSent | Phase::SidrSent)) else {
        return false;
    };
    let endpoint = Endpoint { ps: id.ps, port: to.port(), ip: to.ip().to_canonical() };
    // A bound port will be listened on soon. An unbound one may never be, so the wait is shorter.
    let limit = if names::is_taken(endpoint) { LISTENING } else { BINDING };
    let puts_off = from.adapter == from.port.ip && id.connection.since.elapsed() < limit;
    if puts_off {
        id.connection.looks_again = true;
        id.connection.timer = Some(Timer { due: Instant::now() + LISTENER_RETRY, tries: 0 });
    }
    puts_off
}

/// Resolves the listener again, and sends it the request.
fn look_again(id: &mut Id) {
    let (Some(port), Some(to)) = (&id.port, id.remote) else { return };
    let peer = address::adapter_of(port.ip, id.ps, to).unwrap_or(port.ip);
    id.connection.peer = peer;
    if let Some(Mad { message: Message::Req(req), .. }) = &mut id.connection.last {
        req.remote_gid = gid_of(peer);
    }
    if let Some(last) = &id.connection.last {
        id.send_mad(last);
    }
    connection::expect_answer(id);
}

impl State {
    /// Processes a management datagram that a device has received.
    pub(super) fn receive(&mut self, device: u32, mad: &rushmem_softnic::Mad) {
        let Some(port) = self.running(device) else { return };
        let Some(Mad { tid, message }) = Mad::parse(&mad.bytes) else {
            tracing::debug!(from = %mad.from, "management datagram of another kind");
            return;
        };
        tracing::debug!(to = %port.ip, from = %mad.from, ?message, "receives");
        let from = From { port, adapter: mad.from, tid };
        match message {
            Message::Req(req) => self.request(&from, &req),
            Message::Rep(rep) => self.reply(&from, &rep),
            Message::Rtu { ids } => self.ready(&from, ids),
            Message::Rej { ids, reason, private, .. } => self.rejected(&from, ids, reason, &private),
            Message::Mra { ids, timeout, .. } => self.wait(&from, ids, timeout),
            Message::Dreq { ids, .. } => self.disconnect_request(&from, ids),
            Message::Drep { ids } => {
                let asked = self.end_of(&from, ids).filter(|handle| self.phase(*handle) == Phase::DreqSent);
                if let Some(handle) = asked {
                    self.has_ended(handle, 0);
                }
            }
            Message::SidrReq { id, service_id, private, .. } => {
                self.datagram_request(&from, id, service_id, &private);
            }
            Message::SidrRep { id, status, qpn, qkey, private, .. } => {
                self.datagram_reply(&from, id, status, (qpn, qkey), &private);
            }
        }
    }

    fn phase(&self, handle: u32) -> Phase {
        self.ids.get(&handle).map_or(Phase::Idle, |id| id.phase)
    }

    /// Returns the identifier of the connection that a message concerns.
    fn end_of(&self, from: &From, ids: Ids) -> Option<u32> {
        // The peer's ID is not known before its first answer.
        let is_it = |connection: &Connection| {
            connection.peer == from.adapter
                && connection.ids.local == ids.remote
                && (connection.ids.remote == 0 || connection.ids.remote == ids.local)
        };
        let mut ends = self.ids.iter().filter(|(_, id)| ids.remote != 0 && is_it(&id.connection));
        ends.next().map(|(handle, _)| *handle)
    }

    /// Returns the identifier created for a peer's request.
    fn made_by(&self, from: &From, remote: u32) -> Option<u32> {
        let is_it = |id: &Id| {
            let connection = &id.connection;
            id.listener.is_some() && connection.peer == from.adapter && connection.ids.remote == remote
        };
        self.ids.iter().find(|(_, id)| is_it(id)).map(|(handle, _)| *handle)
    }

    /// Returns the listener for a service ID and an address, with the addresses of the connection.
    fn listener(&self, service_id: u64, data: &[u8]) -> Option<(u32, SocketAddr, Header)> {
        let (ps, port) = header::port_of(service_id)?;
        let header = Header::parse(data)?;
        let to = header.to.to_canonical();
        let fit = |id: &Id| {
            let own = id.local.filter(|own| id.phase == Phase::Listening && own.port() == port)?;
            let serves = id.ps == ps && !(id.options.ipv6_only && to.is_ipv4());
            let ip: IpAddr = own.ip().to_canonical();
            (serves && (ip == to || ip.is_unspecified())).then_some(!ip.is_unspecified())
        };
        let found = self.ids.iter().filter_map(|(handle, id)| Some((fit(id)?, *handle)));
        // A listener bound to the address itself is preferred to one bound to all addresses.
        let (_, handle) = found.max()?;
        Some((handle, SocketAddr::new(header.to, port), header))
    }

    /// Whether a listener accepts another connection request. As in the kernel, its backlog limits only the requests
    /// whose events the program has not read yet.
    fn has_room(&self, listener: u32) -> bool {
        self.ids.get(&listener).is_some_and(|id| self.unread_requests(id.file, listener) < id.backlog)
    }

    /// Creates the identifier for a connection that a peer requests.
    fn make(
        &mut self,
        from: &From,
        (listener, local, header): (u32, SocketAddr, Header),
        service: Service,
        remote: u32,
    ) -> Option<(u32, &mut Id)> {
        let of_listener = self.ids.get(&listener).filter(|id| id.service == service);
        let (file, ps) = of_listener.map(|id| (id.file, id.ps))?;
        let communication = self.communication();
        let handle = self.create(file, 0, ps, service).ok()?;
        let id = self.ids.get_mut(&handle)?;
        (id.local, id.remote) = (Some(local), Some(header.from));
        (id.port, id.listener) = (Some(Arc::clone(&from.port)), Some(listener));
        id.connection.peer = from.adapter;
        id.connection.ids = Ids { local: communication, remote };
        id.connection.tid = from.tid;
        Some((handle, id))
    }

    fn request(&mut self, from: &From, req: &Req) {
        if let Some(handle) = self.made_by(from, req.local) {
            // A duplicate: the program has not decided yet. The MRA keeps the peer from resending.
            if let Some(id) = self.ids.get(&handle).filter(|id| id.phase == Phase::ReqReceived) {
                let ids = id.connection.ids;
                id.send(Message::Mra { ids, answered: answered::REQ, timeout: PROGRAM_TIMEOUT });
            }
            return;
        }
        let Some(found) = self.listener(req.service_id, &req.private) else {
            return from.reject(req.local, answered::REQ, reason::INVALID_SERVICE_ID);
        };
        let listener = found.0;
        let psn = getrandom::u32().unwrap_or(req.psn) & 0xff_ffff;
        let service = Service::of_request(req.is_xrc);
        let made = if self.has_room(listener) { self.make(from, found, service, req.local) } else { None };
        let Some((handle, id)) = made else {
            return from.reject(req.local, answered::REQ, reason::CONSUMER);
        };
        id.phase = Phase::ReqReceived;
        let connection = &mut id.connection;
        (connection.psn, connection.remote_psn, connection.remote_qpn) = (psn, req.psn, req.qpn);
        // Each side names what it offers, so the two values are swapped.
        connection.responder_resources = req.initiator_depth;
        connection.initiator_depth = req.responder_resources;
        (connection.retry_count, connection.rnr_retry) = (req.retry_count, req.rnr_retry);
        connection.ack_timeout = req.ack_timeout;
        connection.mtu = req.mtu.clamp(1, 5).min(from.port.mtu(from.adapter));
        let (private_data, private_data_len) = private(&req.private[header::LEN..]);
        let param = abi::ConnParam {
            qp_num: req.qpn,
            private_data,
            private_data_len,
            srq: req.srq.into(),
            responder_resources: req.initiator_depth,
            initiator_depth: req.responder_resources,
            flow_control: req.flow_control.into(),
            retry_count: req.retry_count,
            rnr_retry_count: req.rnr_retry,
            ..abi::ConnParam::default()
        };
        self.tell_request(listener, handle, &Param::Connection(param));
    }

    fn reply(&mut self, from: &From, rep: &Rep) {
        let Some(handle) = self.end_of(from, rep.ids) else {
            return from.reject(rep.ids.local, answered::REP, reason::INVALID_COMMUNICATION_ID);
        };
        let Some(id) = self.ids.get_mut(&handle) else { return };
        match id.phase {
            Phase::ReqSent => {}
            // A duplicate: the program has not confirmed the first one yet, or the confirmation was lost.
            Phase::RepReceived => {
                let ids = id.connection.ids;
                return id.send(Message::Mra { ids, answered: answered::REP, timeout: PROGRAM_TIMEOUT });
            }
            Phase::Established => {
                if let Some(last) = &id.connection.last {
                    id.send_mad(last);
                }
                return;
            }
            _ => return,
        }
        id.phase = Phase::RepReceived;
        let connection = &mut id.connection;
        connection.timer = None;
        connection.ids.remote = rep.ids.local;
        let qpn = if id.service == Service::XrcInitiator { rep.eecn } else { rep.qpn };
        (connection.remote_psn, connection.remote_qpn) = (rep.psn, qpn);
        connection.responder_resources = rep.initiator_depth;
        connection.initiator_depth = rep.responder_resources;
        connection.rnr_retry = rep.rnr_retry;
        let (private_data, private_data_len) = private(&rep.private);
        let param = abi::ConnParam {
            qp_num: qpn,
            private_data,
            private_data_len,
            srq: rep.srq.into(),
            responder_resources: rep.initiator_depth,
            initiator_depth: rep.responder_resources,
            flow_control: rep.flow_control.into(),
            rnr_retry_count: rep.rnr_retry,
            ..abi::ConnParam::default()
        };
        self.tell(handle, event::CONNECT_RESPONSE, 0, &Param::Connection(param));
    }

    fn ready(&mut self, from: &From, ids: Ids) {
        let Some(handle) = self.end_of(from, ids) else { return };
        if let Some(id) = self.ids.get_mut(&handle).filter(|id| id.phase == Phase::RepSent) {
            (id.phase, id.connection.timer) = (Phase::Established, None);
            self.tell(handle, event::ESTABLISHED, 0, &Param::None);
        }
    }

    fn rejected(&mut self, from: &From, ids: Ids, reason: u16, private: &[u8]) {
        // A peer that gives up before it gets an answer knows only its own communication ID.
        let handle = match ids.remote {
            0 => self.made_by(from, ids.local),
            _ => self.rejected_end(from, ids),
        };
        let Some(handle) = handle else { return };
        let Some(id) = self.ids.get_mut(&handle) else { return };
        if reason == reason::INVALID_SERVICE_ID && looks_again(id, from) {
            return;
        }
        match id.phase {
            Phase::ReqSent | Phase::ReqReceived | Phase::RepReceived | Phase::RepSent => {
                (id.phase, id.connection.timer) = (Phase::Ended, None);
                self.tell(handle, event::REJECTED, reason.into(), &only_private(private));
            }
            Phase::Established | Phase::DreqSent => self.has_ended(handle, 0),
            _ => {}
        }
    }

    /// Returns the identifier that a REJ concerns. If the peer has no identifier for the connection, its communication
    /// ID is 0.
    fn rejected_end(&self, from: &From, ids: Ids) -> Option<u32> {
        let is_it =
            |connection: &Connection| connection.peer == from.adapter && connection.ids.local == ids.remote;
        let any = self.ids.iter().find(|(_, id)| is_it(&id.connection)).map(|(handle, _)| *handle);
        if ids.local == 0 { any } else { self.end_of(from, ids) }
    }

    /// Handles an MRA, by which the peer announces that its answer will take longer. Extends the timer of a REQ or REP,
    /// but at most by [`PROGRAM_TIMEOUT`].
    fn wait(&mut self, from: &From, ids: Ids, timeout: u8) {
        let Some(handle) = self.end_of(from, ids) else { return };
        let Some(id) = self.ids.get_mut(&handle) else { return };
        let waits = matches!(id.phase, Phase::ReqSent | Phase::RepSent);
        if let Some(timer) = id.connection.timer.as_mut().filter(|_| waits) {
            timer.due = Instant::now() + time_of(timeout.min(PROGRAM_TIMEOUT));
        }
    }

    fn disconnect_request(&mut self, from: &From, ids: Ids) {
        // Always answered, so the peer does not wait for a connection that is gone.
        from.answer(Message::Drep { ids: Ids { local: ids.remote, remote: ids.local } });
        let Some(handle) = self.end_of(from, ids) else { return };
        if matches!(self.phase(handle), Phase::Established | Phase::RepSent | Phase::DreqSent) {
            self.has_ended(handle, 0);
        }
    }

    fn datagram_request(&mut self, from: &From, remote: u32, service_id: u64, data: &[u8]) {
        if let Some(id) = self.made_by(from, remote).and_then(|handle| self.ids.get(&handle)) {
            // A duplicate: resend the answer, if the program has decided.
            if let Some(last) = &id.connection.last {
                id.send_mad(last);
            }
            return;
        }
        let refuse = |status| {
            let (qpn, qkey, private) = (0, 0, Vec::new());
            from.answer(Message::SidrRep { id: remote, status, qpn, service_id, qkey, private });
        };
        let Some(found) = self.listener(service_id, data) else { return refuse(sidr_status::UNSUPPORTED) };
        let listener = found.0;
        let made = if self.has_room(listener) { self.make(from, found, Service::Ud, remote) } else { None };
        let Some((handle, id)) = made else { return refuse(sidr_status::REJECTED) };
        id.phase = Phase::SidrReceived;
        let (private_data, private_data_len) = private(&data[header::LEN..]);
        let param = abi::UdParam { private_data, private_data_len, ..abi::UdParam::default() };
        self.tell_request(listener, handle, &Param::Datagram(param));
    }

    fn datagram_reply(&mut self, from: &From, local: u32, status: u8, (qpn, qkey): (u32, u32), data: &[u8]) {
        let Some(handle) = self.end_of(from, Ids { local: 0, remote: local }) else { return };
        let Some(id) = self.ids.get_mut(&handle).filter(|id| id.phase == Phase::SidrSent) else { return };
        if status == sidr_status::UNSUPPORTED && looks_again(id, from) {
            return;
        }
        id.connection.timer = None;
        (id.connection.remote_qpn, id.connection.qkey) = (qpn, qkey);
        let ah = attributes::ah(id).unwrap_or_default();
        let valid = status == sidr_status::VALID;
        id.phase = if valid { Phase::Established } else { Phase::Ended };
        let (private_data, private_data_len) = private(data);
        let param =
            abi::UdParam { qp_num: qpn, qkey, ah, private_data, private_data_len, ..abi::UdParam::default() };
        let kind = if valid { event::ESTABLISHED } else { event::UNREACHABLE };
        self.tell(handle, kind, status.into(), &Param::Datagram(param));
    }

    /// Resends messages that were not answered in time, and gives up on those that were resent often enough.
    pub(super) fn time_out(&mut self, now: Instant, inbox: &Inbox) {
        self.close_due(now);
        for process in self.take_ended(now) {
            self.peer_has_ended(process);
        }
        let is_due = |id: &Id| id.connection.timer.as_ref().is_some_and(|timer| timer.due <= now);
        let due: Vec<u32> = self.ids.iter().filter(|(_, id)| is_due(id)).map(|(handle, _)| *handle).collect();
        for handle in due {
            let Some(id) = self.ids.get_mut(&handle) else { continue };
            if std::mem::take(&mut id.connection.looks_again) {
                look_again(id);
                self.watch(handle, inbox);
                continue;
            }
            if let Some(timer) = id.connection.timer.as_mut().filter(|timer| timer.tries != 0) {
                timer.tries -= 1;
                timer.due = now + time_of(RESPONSE_TIMEOUT);
                if let Some(last) = &id.connection.last {
                    id.send_mad(last);
                }
                continue;
            }
            id.connection.timer = None;
            match id.phase {
                Phase::ReqSent | Phase::SidrSent | Phase::RepSent => {
                    id.phase = Phase::Ended;
                    self.tell(handle, event::UNREACHABLE, -libc::ETIMEDOUT, &Param::None);
                }
                Phase::DreqSent => self.has_ended(handle, -libc::ETIMEDOUT),
                Phase::TimeWait => {
                    id.phase = Phase::Ended;
                    self.tell(handle, event::TIMEWAIT_EXIT, 0, &Param::None);
                }
                _ => {}
            }
        }
    }

    /// Closes the connections to a process that has exited, as its kernel would.
    fn peer_has_ended(&mut self, process: u64) {
        let theirs: Vec<u32> = self
            .ids
            .iter()
            .filter(|(_, id)| id.connection.process == Some(process) && !id.is_datagram())
            .map(|(handle, _)| *handle)
            .collect();
        for handle in theirs {
            let Some(id) = self.ids.get_mut(&handle) else { continue };
            match id.phase {
                Phase::Established | Phase::DreqSent => self.has_ended(handle, 0),
                Phase::ReqSent | Phase::ReqReceived | Phase::RepReceived | Phase::RepSent => {
                    (id.phase, id.connection.timer) = (Phase::Ended, None);
                    let none = [0; mad::REJ_PRIVATE];
                    self.tell(handle, event::REJECTED, reason::CONSUMER.into(), &only_private(&none));
                }
                _ => {}
            }
        }
    }
}
