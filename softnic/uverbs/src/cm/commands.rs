//! Commands about identifiers and addresses, and the dispatch of all commands.

use super::abi::{self, command, event, option, port_space};
use super::address::{self, Given};
use super::names::{self, Endpoint};
use super::request::Request;
use super::state::{self, Param, Phase, Service};
use super::{Cm, attributes, connection, multicast};
use crate::errno::Errno;
use crate::process;
use crate::user;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

/// Executes a command that a program has written to `/dev/infiniband/rdma_cm`.
pub(super) fn execute(cm: &'static Cm, request: &Request<'_>) -> Result<(), Errno> {
    match request.command {
        command::CREATE_ID => create(cm, request),
        command::DESTROY_ID => destroy(cm, request),
        command::BIND_IP => {
            let bind_ip: abi::BindIp = request.input()?;
            bind(cm, request, bind_ip.id, Given::parse(&bind_ip.addr)?)
        }
        command::BIND => {
            let given: abi::Bind = request.input()?;
            bind(cm, request, given.id, sockaddr(&given.addr, given.addr_size)?)
        }
        command::RESOLVE_IP => {
            let given: abi::ResolveIp = request.input()?;
            resolve(cm, request, given.id, Given::parse(&given.src)?, Given::parse(&given.dst)?)
        }
        command::RESOLVE_ADDR => {
            let given: abi::ResolveAddr = request.input()?;
            let (src, dst) = (sockaddr(&given.src, given.src_size)?, sockaddr(&given.dst, given.dst_size)?);
            resolve(cm, request, given.id, src, dst)
        }
        command::RESOLVE_ROUTE => {
            let given: abi::ResolveRoute = request.input()?;
            resolve_route(cm, request, given.id)
        }
        command::LISTEN => listen(cm, request),
        command::SET_OPTION => set_option(cm, request),
        command::MIGRATE_ID => migrate(cm, request),
        command::QUERY_ROUTE => attributes::query_route(cm, request),
        command::QUERY => attributes::query(cm, request),
        command::INIT_QP_ATTR => attributes::init_qp_attr(cm, request),
        command::CONNECT => connection::connect(cm, request),
        command::ACCEPT => connection::accept(cm, request),
        command::REJECT => connection::reject(cm, request),
        command::DISCONNECT => connection::disconnect(cm, request),
        command::NOTIFY => connection::notify(cm, request),
        command::JOIN_IP_MCAST => {
            let given: abi::JoinIpMcast = request.input()?;
            let member = (given.id, given.uid, given.response);
            multicast::join(cm, request, member, Given::parse(&given.addr)?)
        }
        command::JOIN_MCAST => {
            let given: abi::JoinMcast = request.input()?;
            let member = (given.id, given.uid, given.response);
            multicast::join(cm, request, member, sockaddr(&given.addr, given.addr_size)?)
        }
        command::LEAVE_MCAST => multicast::leave(cm, request),
        // The kernel reserves the number, but never had the command.
        command::GET_OPTION => Err(Errno::ENOSYS),
        _ => Err(Errno::EINVAL),
    }
}

fn sockaddr(storage: &abi::Storage, size: u16) -> Result<Given, Errno> {
    let bytes: &[u8] = bytemuck::bytes_of(storage);
    Given::parse(bytes.get(..size.into()).ok_or(Errno::EINVAL)?)
}

fn create(cm: &'static Cm, request: &Request<'_>) -> Result<(), Errno> {
    let given: abi::CreateId = request.input()?;
    let service = Service::of(given.ps, given.qp_type)?;
    let mut state = cm.state();
    let handle = state.create(request.file, given.uid, given.ps, service)?;
    let answered = request.answer(given.response, &handle);
    // Without the handle, the program could never destroy it.
    if answered.is_err() {
        state.remove(handle);
    }
    answered
}

fn destroy(cm: &'static Cm, request: &Request<'_>) -> Result<(), Errno> {
    let given: abi::DestroyId = request.input()?;
    let mut state = cm.state();
    state.id(request.file, given.id)?;
    let reported = state.destroy(given.id);
    request.answer(given.response, &reported)
}

/// Handles BIND and BIND_IP.
fn bind(cm: &'static Cm, request: &Request<'_>, handle: u32, given: Given) -> Result<(), Errno> {
    let mut state = cm.state();
    let id = state.id(request.file, handle)?;
    if id.phase != Phase::Idle {
        return Err(Errno::EINVAL);
    }
    if let Given::Gid(gid) = given
        && gid == [0; 16]
        && id.ps == port_space::IB
    {
        // A library does this to find out whether the commands with addresses of any family exist.
        id.phase = Phase::Bound;
        return Ok(());
    }
    let local = given.ip()?.ok_or(Errno::EAFNOSUPPORT)?;
    let (ps, reuse) = (id.ps, id.options.reuse_address);
    if !local.ip().is_unspecified() && !address::is_local(local.ip()) {
        return Err(Errno::EADDRNOTAVAIL);
    }
    let (name, port) = match reuse && local.port() != 0 {
        // Several identifiers may reuse the address, so LISTEN reserves the port.
        true => (None, local.port()),
        false => {
            let endpoint = Endpoint { ps, port: local.port(), ip: local.ip().to_canonical() };
            let (name, port) = names::reserve(endpoint)?;
            (Some(name), port)
        }
    };
    // Starting an adapter takes long, and locks the state again.
    drop(state);
    let device = (!local.ip().is_unspecified()).then(|| device_port(cm, local.ip())).transpose()?;
    let mut state = cm.state();
    let id = state.id(request.file, handle)?;
    (id.phase, id.local, id.name, id.port) =
        (Phase::Bound, Some(SocketAddr::new(local.ip(), port)), name, device);
    Ok(())
}

/// Returns the adapter for an address of this machine, starting it if necessary.
fn device_port(cm: &'static Cm, ip: IpAddr) -> Result<Arc<super::port::Port>, Errno> {
    let device = state::device_with(process::current().devices(), ip)?;
    let port = cm.state().port(device, &cm.inbox)?;
    cm.start()?;
    Ok(port)
}

/// Handles RESOLVE_ADDR and RESOLVE_IP.
fn resolve(cm: &'static Cm, request: &Request<'_>, handle: u32, src: Given, dst: Given) -> Result<(), Errno> {
    let to = address::destination(dst.ip()?.ok_or(Errno::EAFNOSUPPORT)?);
    if src.ip()?.is_some() && cm.state().id(request.file, handle)?.phase == Phase::Idle {
        bind(cm, request, handle, src)?;
    }
    let bound = {
        let mut state = cm.state();
        let id = state.id(request.file, handle)?;
        let same_family = id.local.is_none_or(|local| local.is_ipv4() == to.is_ipv4());
        if !matches!(id.phase, Phase::Idle | Phase::Bound) || !same_family {
            return Err(Errno::EINVAL);
        }
        id.local
    };
    let found = find(cm, request, handle, bound, to);
    let mut state = cm.state();
    match found {
        Ok(()) => state.tell(handle, event::ADDR_RESOLVED, 0, &Param::None),
        Err(Errno(number)) => state.tell(handle, event::ADDR_ERROR, -number, &Param::None),
    }
    Ok(())
}

/// Finds the route to an address, and stores it in the identifier.
fn find(
    cm: &'static Cm,
    request: &Request<'_>,
    handle: u32,
    bound: Option<SocketAddr>,
    to: SocketAddr,
) -> Result<(), Errno> {
    let source = match bound {
        Some(bound) if !bound.ip().is_unspecified() => bound.ip(),
        // Without a route, the group is limited to this machine.
        _ if to.ip().is_multicast() => address::source(to).unwrap_or(Ipv4Addr::LOCALHOST.into()),
        _ => address::source(to)?,
    };
    let port = device_port(cm, source)?;
    let number = match bound {
        Some(bound) => bound.port(),
        None => names::any_port()?,
    };
    let ps = cm.state().id(request.file, handle)?.ps;
    let peer = address::adapter_of(port.ip, ps, to)?;
    let mut state = cm.state();
    let id = state.id(request.file, handle)?;
    id.connection.peer = peer;
    (id.local, id.remote) = (Some(SocketAddr::new(source, number)), Some(to));
    (id.port, id.phase) = (Some(port), Phase::AddressResolved);
    Ok(())
}

fn resolve_route(cm: &'static Cm, request: &Request<'_>, handle: u32) -> Result<(), Errno> {
    let mut state = cm.state();
    let id = state.id(request.file, handle)?;
    if id.phase != Phase::AddressResolved {
        return Err(Errno::EINVAL);
    }
    id.phase = Phase::RouteResolved;
    state.tell(handle, event::ROUTE_RESOLVED, 0, &Param::None);
    Ok(())
}

fn listen(cm: &'static Cm, request: &Request<'_>) -> Result<(), Errno> {
    /// Maximum number of connection requests waiting for the program.
    const MAX_BACKLOG: u32 = 1024;

    let given: abi::Listen = request.input()?;
    let (phase, bound) = {
        let mut state = cm.state();
        let id = state.id(request.file, given.id)?;
        (id.phase, id.local)
    };
    if phase == Phase::Idle {
        let any = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0);
        bind(cm, request, given.id, Given::Ip(bound.unwrap_or(any)))?;
    } else if phase != Phase::Bound {
        return Err(Errno::EINVAL);
    }
    let (ps, local, named) = {
        let mut state = cm.state();
        let id = state.id(request.file, given.id)?;
        (id.ps, id.local.ok_or(Errno::EINVAL)?, id.name.is_some())
    };
    let endpoint = Endpoint { ps, port: local.port(), ip: local.ip().to_canonical() };
    let name = if named { None } else { Some(names::reserve(endpoint)?.0) };
    let devices = process::current().devices();
    let devices = match local.ip().is_unspecified() {
        true => devices.iter().collect(),
        false => vec![state::device_with(devices, local.ip())?],
    };
    cm.start()?;
    // Requests may arrive as soon as the name exists. They wait for this lock.
    let mut state = cm.state();
    let mut listening = Vec::new();
    for device in devices {
        let port = state.port(device, &cm.inbox)?;
        let announced = names::announce(endpoint, port.ip)?;
        listening.push((port, announced));
    }
    let id = state.id(request.file, given.id)?;
    id.name = id.name.take().or(name);
    let backlog = if given.backlog == 0 { MAX_BACKLOG } else { given.backlog.min(MAX_BACKLOG) };
    (id.listening, id.backlog, id.phase) = (listening, backlog as usize, Phase::Listening);
    Ok(())
}

fn set_option(cm: &'static Cm, request: &Request<'_>) -> Result<(), Errno> {
    /// Largest ACK timeout, as an InfiniBand code: 4.096 us times 2 to this power.
    const MAX_TIMEOUT: u8 = 31;

    let given: abi::SetOption = request.input()?;
    let number =
        || if given.optlen == 4 { user::read_value::<u32>(given.optval) } else { Err(Errno::EINVAL) };
    let byte = || if given.optlen == 1 { user::read_value::<u8>(given.optval) } else { Err(Errno::EINVAL) };
    let mut state = cm.state();
    let id = state.id(request.file, given.id)?;
    match given.level << 16 | given.optname {
        option::TOS => id.options.tos = byte()?,
        option::REUSE_ADDRESS => match number()? != 0 {
            reuse if id.phase == Phase::Idle || reuse && id.phase != Phase::Listening => {
                id.options.reuse_address = reuse;
            }
            _ => return Err(Errno::EINVAL),
        },
        option::IPV6_ONLY => match number()? != 0 {
            only if matches!(id.phase, Phase::Idle | Phase::Bound) => id.options.ipv6_only = only,
            _ => return Err(Errno::EINVAL),
        },
        option::ACK_TIMEOUT => match byte()? {
            timeout @ 0..=MAX_TIMEOUT if !id.is_datagram() => id.options.ack_timeout = Some(timeout),
            _ => return Err(Errno::EINVAL),
        },
        // Ethernet has a single path, so the program's own path record is not needed.
        option::PATH if id.phase == Phase::AddressResolved => {
            id.phase = Phase::RouteResolved;
            state.tell(given.id, event::ROUTE_RESOLVED, 0, &Param::None);
        }
        option::PATH => return Err(Errno::EINVAL),
        _ => return Err(Errno::ENOSYS),
    }
    Ok(())
}

fn migrate(cm: &'static Cm, request: &Request<'_>) -> Result<(), Errno> {
    let given: abi::MigrateId = request.input()?;
    let mut state = cm.state();
    let from = state.file_of(given.fd as i32).ok_or(Errno::EINVAL)?;
    state.id(from, given.id)?;
    let reported = state.migrate(given.id, request.file)?;
    request.answer(given.response, &reported)
}
