//! Commands that query addresses and paths, and attributes of queue pairs.

use super::Cm;
use super::abi::{self, query};
use super::address::{gid_storage, short, storage};
use super::connection::{HOP_LIMIT, UDP_QKEY};
use super::header;
use super::port::{Port, gid_of};
use super::request::Request;
use super::state::{Id, Phase, Service};
use crate::abi::{AhAttributes, access, qp_attr, qp_state};
use crate::errno::Errno;
use std::net::SocketAddr;

/// Port number on every device.
const PORT: u8 = 1;
/// Rate of every path as an InfiniBand code: 100 Gb/s.
const RATE: u8 = 16;
/// Packet lifetime of every path as an InfiniBand code: 4.096 us times 2 to this power.
const LIFE_TIME: u8 = 16;
/// Selector of a path record field: the path has exactly the given value.
const EXACTLY: u8 = 2;
/// Flags of a path record: a primary path, usable in both directions and for GMPs.
const PATH_FLAGS: u32 = 1 | 1 << 1 | 1 << 3 | 1 << 5;

/// Returns the GIDs of both sides, zero if still unknown.
fn gids(id: &Id) -> Result<([u8; 16], [u8; 16]), Errno> {
    let Some(port) = &id.port else { return Ok(([0; 16], [0; 16])) };
    let remote = if id.remote.is_some() { gid_of(id.connection.peer) } else { [0; 16] };
    Ok((port.gid()?.1, remote))
}

fn node_guid(id: &Id) -> u64 {
    id.port.as_ref().map_or(0, |port| u64::from_ne_bytes(port.device.guid()))
}

fn device_index(id: &Id) -> u32 {
    id.port.as_ref().map_or(u32::MAX, |port| port.device.index)
}

fn has_route(id: &Id) -> bool {
    !matches!(id.phase, Phase::Idle | Phase::Bound | Phase::Listening | Phase::AddressResolved)
}

fn mtu(id: &Id) -> u8 {
    match (id.connection.mtu, &id.port) {
        (0, Some(port)) => port.mtu(id.connection.peer),
        (mtu, _) => mtu,
    }
}

pub(super) fn query_route(cm: &'static Cm, request: &Request<'_>) -> Result<(), Errno> {
    let given: abi::Query = request.input()?;
    let mut state = cm.state();
    let id = state.id(request.file, given.id)?;
    let (sgid, dgid) = gids(id)?;
    let path = abi::PathRecord {
        dgid,
        sgid,
        flow_label: 0,
        reversible: 1,
        mtu: mtu(id).into(),
        pkey: Port::pkey().to_be(),
        hop_limit: HOP_LIMIT,
        traffic_class: id.options.tos,
        numb_path: 1,
        mtu_selector: EXACTLY,
        rate_selector: EXACTLY,
        rate: RATE,
        life_time_selector: EXACTLY,
        life_time: LIFE_TIME,
        ..abi::PathRecord::default()
    };
    // Programs read the addresses of the first path, even before a path is known.
    let response = abi::QueryRouteResponse {
        node_guid: node_guid(id),
        routes: [path, abi::PathRecord::default()],
        src: short(id.local),
        dst: short(id.remote),
        num_paths: has_route(id).into(),
        port_num: if id.port.is_some() { PORT } else { 0 },
        device: device_index(id),
        ..abi::QueryRouteResponse::default()
    };
    // Older programs have no room for the device's index.
    request.answer_without(8, given.response, &response)
}

pub(super) fn query(cm: &'static Cm, request: &Request<'_>) -> Result<(), Errno> {
    let given: abi::Query = request.input()?;
    let mut state = cm.state();
    let id = state.id(request.file, given.id)?;
    match given.option {
        query::ADDRESS | query::GID => {
            let ((src, src_size), (dst, dst_size)) = match given.option {
                query::ADDRESS => (storage(id.local), storage(id.remote)),
                _ => {
                    let (sgid, dgid) = gids(id)?;
                    let service = |side: Option<SocketAddr>| {
                        header::service_id(id.ps, side.map_or(0, |side| side.port()))
                    };
                    let size = size_of::<abi::SockaddrIb>() as u16;
                    let side = |gid, side| (gid_storage(gid, Port::pkey(), service(side)), size);
                    (side(sgid, id.local), side(dgid, id.remote))
                }
            };
            let response = abi::QueryAddrResponse {
                node_guid: node_guid(id),
                port_num: if id.port.is_some() { PORT } else { 0 },
                pkey: Port::pkey().to_be(),
                src_size,
                dst_size,
                src,
                dst,
                device: device_index(id),
                ..abi::QueryAddrResponse::default()
            };
            request.answer_without(8, given.response, &response)
        }
        query::PATH => {
            let (sgid, dgid) = gids(id)?;
            let response = abi::QueryPathResponse {
                num_paths: has_route(id).into(),
                flags: PATH_FLAGS,
                dgid,
                sgid,
                flow_label_hop_limit: u32::from(HOP_LIMIT).to_be(),
                traffic_class: id.options.tos,
                reversible_numb_path: 1 << 7 | 1,
                pkey: Port::pkey().to_be(),
                mtu: EXACTLY << 6 | mtu(id),
                rate: EXACTLY << 6 | RATE,
                life_time: EXACTLY << 6 | LIFE_TIME,
                ..abi::QueryPathResponse::default()
            };
            request.answer(given.response, &response)
        }
        _ => Err(Errno::ENOSYS),
    }
}

/// Returns the attributes of an address handle for the peer.
pub(super) fn ah(id: &Id) -> Result<AhAttributes, Errno> {
    Ok(AhAttributes {
        dgid: gid_of(id.connection.peer),
        sgid_index: id.port()?.gid()?.0,
        hop_limit: HOP_LIMIT,
        traffic_class: id.options.tos,
        is_global: 1,
        port_num: PORT,
        ..AhAttributes::default()
    })
}

/// Handles INIT_QP_ATTR: returns the attributes with which a queue pair enters a state.
pub(super) fn init_qp_attr(cm: &'static Cm, request: &Request<'_>) -> Result<(), Errno> {
    let given: abi::InitQpAttr = request.input()?;
    let mut state = cm.state();
    let id = state.id(request.file, given.id)?;
    let attributes = attributes(id, given.qp_state)?;
    request.answer(given.response, &attributes)
}

fn attributes(id: &Id, qp_state: u32) -> Result<abi::QpAttr, Errno> {
    id.port()?;
    let common = abi::QpAttr { mask: qp_attr::STATE, qp_state, port_num: PORT, ..abi::QpAttr::default() };
    let connection = &id.connection;
    // For XRC, each side only sends or only receives.
    let (receives, sends) = (id.service != Service::XrcInitiator, id.service != Service::XrcTarget);
    let has_peer = matches!(
        id.phase,
        Phase::ReqSent | Phase::ReqReceived | Phase::RepSent | Phase::RepReceived | Phase::Established
    );
    match u8::try_from(qp_state) {
        Ok(qp_state::INIT) if id.is_datagram() => Ok(abi::QpAttr {
            mask: qp_attr::STATE | qp_attr::PKEY_INDEX | qp_attr::PORT | qp_attr::QKEY,
            qkey: UDP_QKEY,
            ..common
        }),
        Ok(qp_state::INIT) => {
            let reads = match connection.responder_resources {
                0 => 0,
                _ => access::REMOTE_READ | access::REMOTE_ATOMIC,
            };
            let rights = if has_peer { access::REMOTE_WRITE | reads } else { 0 };
            Ok(abi::QpAttr {
                mask: qp_attr::STATE | qp_attr::PKEY_INDEX | qp_attr::PORT | qp_attr::ACCESS_FLAGS,
                qp_access_flags: rights,
                ..common
            })
        }
        Ok(qp_state::RTR) if has_peer && !id.is_datagram() => Ok(abi::QpAttr {
            mask: qp_attr::STATE
                | qp_attr::AV
                | qp_attr::PATH_MTU
                | qp_attr::DEST_QPN
                | qp_attr::RQ_PSN
                | if receives { qp_attr::MAX_DEST_RD_ATOMIC | qp_attr::MIN_RNR_TIMER } else { 0 },
            ah: ah(id)?,
            path_mtu: mtu(id).into(),
            dest_qp_num: connection.remote_qpn,
            rq_psn: connection.remote_psn,
            max_dest_rd_atomic: connection.responder_resources,
            ..common
        }),
        Ok(qp_state::RTS) if has_peer && !id.is_datagram() => Ok(abi::QpAttr {
            mask: qp_attr::STATE
                | qp_attr::TIMEOUT
                | qp_attr::SQ_PSN
                | if sends { qp_attr::RETRY_CNT | qp_attr::RNR_RETRY | qp_attr::MAX_QP_RD_ATOMIC } else { 0 },
            sq_psn: connection.psn,
            timeout: connection.ack_timeout,
            retry_cnt: connection.retry_count,
            rnr_retry: connection.rnr_retry,
            max_rd_atomic: connection.initiator_depth,
            ..common
        }),
        _ => Err(Errno::EINVAL),
    }
}
