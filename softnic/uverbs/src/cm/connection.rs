//! Commands that open, accept, reject and close connections.

use super::abi::{self, event};
use super::header::{self, Header};
use super::mad::{
    self, Ids, Message, RESPONSE_TIMEOUT, RETRIES, Rep, Req, answered, reason, sidr_status, time_of,
};
use super::port::{Port, gid_of};
use super::request::Request;
use super::state::{Id, Param, Phase, Service, State, Timer};
use super::{Cm, address};
use crate::errno::Errno;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Code of the ACK timeout of a queue pair if the program sets none: half a second.
const ACK_TIMEOUT: u8 = 17;
pub(super) const HOP_LIMIT: u8 = 64;
/// The default Q_Key of datagrams.
pub(super) const UDP_QKEY: u32 = 0x0123_4567;
/// How long packets of a closed connection may still arrive.
const TIME_WAIT: Duration = Duration::from_millis(500);

/// Returns the private data of a program, or `EINVAL` if it exceeds `limit` bytes.
fn private(data: &abi::PrivateData, len: u8, limit: usize) -> Result<Vec<u8>, Errno> {
    let bytes: &[u8] = bytemuck::bytes_of(data);
    let len = usize::from(len);
    if len > limit { Err(Errno::EINVAL) } else { Ok(bytes[..len].to_vec()) }
}

fn random() -> Result<u32, Errno> {
    getrandom::u32().map_err(|_| Errno::EAGAIN)
}

/// Starts the timer after which an unanswered message is resent.
pub(super) fn expect_answer(id: &mut Id) {
    let due = Instant::now() + time_of(RESPONSE_TIMEOUT);
    id.connection.timer = Some(Timer { due, tries: RETRIES });
}

pub(super) fn connect(cm: &'static Cm, request: &Request<'_>) -> Result<(), Errno> {
    let given: abi::Connect = request.input_without(size_of::<abi::Ece>())?;
    let param = &given.param;
    if param.valid == 0 {
        return Err(Errno::EINVAL);
    }
    let (ps, from, to, port) = {
        let mut state = cm.state();
        let id = state.id(request.file, given.id)?;
        let (Phase::RouteResolved, Some(from), Some(to)) = (id.phase, id.local, id.remote) else {
            return Err(Errno::EINVAL);
        };
        (id.ps, from, to, Arc::clone(id.port()?))
    };
    // Resolve the listener again: another process may have taken over since the address was resolved. The lock is not
    // held, because this reads a file of the system.
    let peer = address::adapter_of(port.ip, ps, to)?;
    let mut state = cm.state();
    let local = state.communication();
    let id = state.id(request.file, given.id)?;
    let limit = if id.is_datagram() { mad::SIDR_REQ_PRIVATE } else { mad::REQ_PRIVATE } - header::LEN;
    let mut data = Header { from, to: to.ip() }.encode().to_vec();
    data.extend(private(&param.private_data, param.private_data_len, limit)?);
    start(id, param, local, (&port, peer))?;
    let service_id = header::service_id(id.ps, to.port());
    let message = match id.is_datagram() {
        true => Message::SidrReq { id: local, pkey: Port::pkey(), service_id, private: data },
        false => Message::Req(Box::new(req(id, param, &port, service_id, data))),
    };
    id.phase = if id.is_datagram() { Phase::SidrSent } else { Phase::ReqSent };
    id.send_and_keep(message);
    expect_answer(id);
    state.watch(given.id, &cm.inbox);
    cm.inbox.ring();
    Ok(())
}

/// Initializes the connection that a program asks for, with communication ID `local`.
fn start(
    id: &mut Id,
    param: &abi::ConnParam,
    local: u32,
    (port, peer): (&Port, Ipv4Addr),
) -> Result<(), Errno> {
    let connection = &mut id.connection;
    connection.peer = peer;
    connection.since = Instant::now();
    connection.ids = Ids { local, remote: 0 };
    connection.tid = u64::from(random()?) << 32 | u64::from(local);
    connection.qpn = param.qp_num & 0xff_ffff;
    connection.psn = random()? & 0xff_ffff;
    connection.responder_resources = param.responder_resources;
    connection.initiator_depth = param.initiator_depth;
    connection.retry_count = param.retry_count.min(7);
    connection.ack_timeout = id.options.ack_timeout.unwrap_or(ACK_TIMEOUT);
    connection.mtu = port.mtu(peer);
    Ok(())
}

fn req(id: &Id, param: &abi::ConnParam, port: &Port, service_id: u64, private: Vec<u8>) -> Req {
    let connection = &id.connection;
    Req {
        local: connection.ids.local,
        service_id,
        guid: port.device.guid(),
        qpn: connection.qpn,
        responder_resources: param.responder_resources,
        initiator_depth: param.initiator_depth,
        remote_timeout: RESPONSE_TIMEOUT,
        flow_control: param.flow_control != 0,
        psn: connection.psn,
        local_timeout: RESPONSE_TIMEOUT,
        retry_count: connection.retry_count,
        pkey: Port::pkey(),
        mtu: connection.mtu,
        rnr_retry: param.rnr_retry_count.min(7),
        max_retries: RETRIES as u8,
        srq: param.srq != 0,
        is_xrc: id.service == Service::XrcInitiator,
        // Ethernet has no LIDs.
        lids: [0xffff; 2],
        local_gid: gid_of(port.ip),
        remote_gid: gid_of(connection.peer),
        traffic_class: id.options.tos,
        hop_limit: HOP_LIMIT,
        ack_timeout: connection.ack_timeout,
        private,
    }
}

/// Handles ACCEPT. The passive side answers a request with a REP. The active side, which passes no parameters, confirms
/// the REP with an RTU.
pub(super) fn accept(cm: &'static Cm, request: &Request<'_>) -> Result<(), Errno> {
    let given: abi::Accept = request.input_without(size_of::<abi::Ece>())?;
    let mut state = cm.state();
    let id = state.id(request.file, given.id)?;
    let param = &given.param;
    match (id.phase, param.valid != 0) {
        (Phase::ReqReceived, true) => grant(id, param)?,
        (Phase::SidrReceived, true) => grant_datagrams(id, param)?,
        (Phase::RepReceived, _) => {
            id.phase = Phase::Established;
            let ids = id.connection.ids;
            id.send_and_keep(Message::Rtu { ids });
        }
        _ => return Err(Errno::EINVAL),
    }
    // From now on, events reach the program.
    if param.valid != 0 {
        id.uid = given.uid;
    }
    state.watch(given.id, &cm.inbox);
    cm.inbox.ring();
    Ok(())
}

fn grant(id: &mut Id, param: &abi::ConnParam) -> Result<(), Errno> {
    let private = private(&param.private_data, param.private_data_len, mad::REP_PRIVATE)?;
    let guid = id.port()?.device.guid();
    let connection = &mut id.connection;
    connection.qpn = param.qp_num & 0xff_ffff;
    connection.responder_resources = param.responder_resources;
    connection.initiator_depth = param.initiator_depth;
    let is_target = id.service == Service::XrcTarget;
    // The QPN of an XRC target travels as the EE context number.
    let (qpn, eecn) = if is_target { (0, connection.qpn) } else { (connection.qpn, 0) };
    let rep = Rep {
        ids: connection.ids,
        qpn,
        eecn,
        psn: connection.psn,
        responder_resources: param.responder_resources,
        initiator_depth: param.initiator_depth,
        flow_control: param.flow_control != 0,
        rnr_retry: param.rnr_retry_count.min(7),
        srq: is_target || param.srq != 0,
        guid,
        private,
    };
    id.phase = Phase::RepSent;
    id.send_and_keep(Message::Rep(Box::new(rep)));
    expect_answer(id);
    Ok(())
}

fn grant_datagrams(id: &mut Id, param: &abi::ConnParam) -> Result<(), Errno> {
    let private = private(&param.private_data, param.private_data_len, mad::SIDR_REP_PRIVATE)?;
    let port = id.local.ok_or(Errno::EINVAL)?.port();
    id.connection.qpn = param.qp_num & 0xff_ffff;
    id.connection.qkey = if param.qkey == 0 { UDP_QKEY } else { param.qkey };
    id.phase = Phase::Established;
    id.send_and_keep(Message::SidrRep {
        id: id.connection.ids.remote,
        status: sidr_status::VALID,
        qpn: id.connection.qpn,
        service_id: header::service_id(id.ps, port),
        qkey: id.connection.qkey,
        private,
    });
    Ok(())
}

/// Sends the message that rejects or cancels a connection in its current phase.
fn refuse(id: &Id, reason: u16, private: Vec<u8>) {
    let ids = id.connection.ids;
    id.send(match id.phase {
        Phase::SidrReceived => Message::SidrRep {
            id: ids.remote,
            status: sidr_status::REJECTED,
            qpn: 0,
            service_id: header::service_id(id.ps, id.local.map_or(0, |local| local.port())),
            qkey: 0,
            private,
        },
        phase => {
            let answered = match phase {
                Phase::ReqReceived => answered::REQ,
                Phase::RepReceived => answered::REP,
                _ => answered::NONE,
            };
            Message::Rej { ids, answered, reason, private }
        }
    });
}

pub(super) fn reject(cm: &'static Cm, request: &Request<'_>) -> Result<(), Errno> {
    let given: abi::Reject = request.input()?;
    let reason = if given.reason == 0 { reason::CONSUMER } else { given.reason.into() };
    let mut state = cm.state();
    let id = state.id(request.file, given.id)?;
    let limit = if id.is_datagram() { mad::SIDR_REP_PRIVATE } else { mad::REJ_PRIVATE };
    let private = private(&given.private_data, given.private_data_len, limit)?;
    if !matches!(id.phase, Phase::ReqReceived | Phase::SidrReceived | Phase::RepReceived | Phase::RepSent) {
        return Err(Errno::EINVAL);
    }
    refuse(id, reason, private);
    (id.phase, id.connection.timer) = (Phase::Ended, None);
    Ok(())
}

/// Asks the peer to close the connection.
fn end(id: &mut Id) {
    let (ids, qpn) = (id.connection.ids, id.connection.remote_qpn);
    id.phase = Phase::DreqSent;
    id.send_and_keep(Message::Dreq { ids, qpn });
    expect_answer(id);
}

pub(super) fn disconnect(cm: &'static Cm, request: &Request<'_>) -> Result<(), Errno> {
    let given: abi::Disconnect = request.input()?;
    let mut state = cm.state();
    let id = state.id(request.file, given.id)?;
    match id.phase {
        Phase::Established | Phase::RepSent if !id.is_datagram() => end(id),
        Phase::Idle | Phase::Bound | Phase::Listening | Phase::AddressResolved | Phase::RouteResolved => {
            return Err(Errno::EINVAL);
        }
        // There is no connection yet, or no longer: like in the kernel, the command succeeds without sending a message.
        _ => {}
    }
    cm.inbox.ring();
    Ok(())
}

/// Handles NOTIFY: a queue pair has received something, so the connection is in use.
pub(super) fn notify(cm: &'static Cm, request: &Request<'_>) -> Result<(), Errno> {
    /// The QP event that reports an established connection.
    const COMMUNICATION_ESTABLISHED: u32 = 4;

    let given: abi::Notify = request.input()?;
    let mut state = cm.state();
    let id = state.id(request.file, given.id)?;
    if given.event != COMMUNICATION_ESTABLISHED {
        return Err(Errno::EINVAL);
    }
    match id.phase {
        // The first data may arrive before the RTU, or the RTU may be lost.
        Phase::RepSent => {
            (id.phase, id.connection.timer) = (Phase::Established, None);
            state.tell(given.id, event::ESTABLISHED, 0, &Param::None);
            Ok(())
        }
        Phase::Established => Err(Errno::EISCONN),
        _ => Err(Errno::EINVAL),
    }
}

impl State {
    /// Destroys an identifier and notifies its peer. Returns how many of its events the program has read.
    pub(super) fn destroy(&mut self, handle: u32) -> u32 {
        let Some(mut id) = self.remove(handle) else { return 0 };
        match id.phase {
            // The peer has not answered, so this side does not know its communication ID.
            Phase::ReqSent => refuse(&id, reason::TIMEOUT, Vec::new()),
            Phase::ReqReceived | Phase::SidrReceived | Phase::RepReceived | Phase::RepSent => {
                refuse(&id, reason::CONSUMER, Vec::new());
            }
            Phase::Established if !id.is_datagram() => end(&mut id),
            _ => {}
        }
        id.events_reported
    }

    /// Enters the TIME_WAIT state of a closed connection, and informs the program.
    pub(super) fn has_ended(&mut self, handle: u32, status: i32) {
        let Some(id) = self.ids.get_mut(&handle) else { return };
        id.phase = Phase::TimeWait;
        id.connection.timer = Some(Timer { due: Instant::now() + TIME_WAIT, tries: 0 });
        self.tell(handle, event::DISCONNECTED, status, &Param::None);
    }
}
