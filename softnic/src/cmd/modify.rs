//! Commands that change the state of a QP.
//!
//! Required fields are always applied, optional ones only if their bit is set in the command's mask.

use super::qp::own;
use super::refuse::{Reason, bad_resource, refuse};
use super::{CmdResult, require};
use crate::config::Config;
use crate::engine::core::Core;
use crate::limits::LOG_MAX_MSG;
use crate::link::udp::path_mtu;
use crate::objects::Objects;
use crate::objects::qp::{Attrs, Qp, State};
use crate::roce::{Psn, Service};
use crate::route::{Address, BadAddress, Route};
use crate::transport::datapath::Datapath;
use crate::transport::{dc, finish_executed};
use rushmem_mlx5::prm::CmdStatus;
use rushmem_mlx5::prm::qp::{
    AddressPath, Init2Init, Init2Rtr, ModifyQpOut, Mtu, QpContext, Rst2Init, Rtr2Rts, Rts2Rts, ServiceType,
    ToErr, ToRst, opt_param,
};
use std::net::SocketAddrV4;
use std::time::Instant;

type Modified = CmdResult<ModifyQpOut>;

pub(super) fn rst2init(path: &mut Datapath, context: u32, command: Rst2Init) -> Modified {
    let given = command.context;
    let primary = &given.primary_address_path;
    let pkey = path.config.pkeys.get(usize::from(primary.pkey_index)).copied();
    let pkey = pkey.ok_or(refuse(CmdStatus::BAD_PARAM, Reason::Partition))?;
    let set = given.counter_set_id;
    if set != 0 && path.report.counters.0.get(set.into()).is_none() {
        return Err(bad_resource(Reason::NoCounters));
    }
    let qp = in_state(&mut path.objects, context, command.qpn, State::Reset)?;
    access(qp, &given, opt_param::RRE | opt_param::RWE | opt_param::RAE | opt_param::Q_KEY);
    qp.attrs.pkey = pkey;
    qp.context.counter_set_id = set;
    qp.context.primary_address_path.vhca_port_num = primary.vhca_port_num;
    qp.context.primary_address_path.pkey_index = primary.pkey_index;
    qp.state = State::Init;
    Ok(ModifyQpOut::default())
}

pub(super) fn init2init(objects: &mut Objects, context: u32, command: Init2Init) -> Modified {
    require(!command.qpc_ext, Reason::Extension)?;
    let qp = in_state(objects, context, command.qpn, State::Init)?;
    access(qp, &command.context, command.opt_param_mask);
    Ok(ModifyQpOut::default())
}

pub(super) fn init2rtr(path: &mut Datapath, context: u32, command: Init2Rtr) -> Modified {
    let hidden = path.report.draw_hidden_order();
    let to_peer = route(path, &command.context.primary_address_path);
    let qp = in_state(&mut path.objects, context, command.qpn, State::Init)?;
    let given = command.context;
    if qp.service == Service::Ud {
        // Each WQE names its own destination.
        access(qp, &given, command.opt_param_mask);
        qp.state = State::Rtr;
        return Ok(ModifyQpOut::default());
    }
    require(command.ece == 0 || qp.offered_ece != 0, Reason::Ece)?;
    check_init2rtr(&command, &path.config)?;
    let route = match qp.service {
        // Each WQE names its own destination.
        Service::Dc => Route::Loopback,
        // It has no peer.
        _ if qp.context.st == ServiceType::REG_UMR => Route::Loopback,
        _ => to_peer?,
    };
    let mtu = match route {
        Route::Peer(peer) => {
            require(path.fabric.is_some(), Reason::NoFabric)?;
            mtu_to(peer, path.address, &command)?
        }
        Route::Loopback => given.mtu,
    };
    // Firmware chooses, unless the driver forces an order.
    let by_itself = path.config.faults.unordered > 0.0 && !given.dp_ordering_force;
    let unordered = given.dp_ordering_0 || by_itself;
    qp.route = route;
    enter_rtr(qp, &command, mtu, unordered, unordered && !hidden);
    Ok(ModifyQpOut { ece: qp.ece })
}

/// Checks the fields of INIT2RTR that do not depend on the peer.
fn check_init2rtr(command: &Init2Rtr, config: &Config) -> CmdResult<()> {
    let given = &command.context;
    require(given.mtu.bytes().is_some_and(|mtu| mtu <= config.mtu), Reason::Mtu)?;
    require(given.log_msg_max <= LOG_MAX_MSG, Reason::MsgMax)?;
    require(given.log_rra_max <= config.log_max_reads, Reason::Retries)?;
    require(!given.dp_ordering_1, Reason::Ordering)?;
    let port = bond_port(command);
    require(port.is_none_or(|port| (1..=config.bond).contains(&port)), Reason::BondPort)
}

/// Returns the port of the bond that the driver has chosen for the QP, if any.
fn bond_port(command: &Init2Rtr) -> Option<u8> {
    let chooses = command.opt_param_mask & opt_param::LAG_TX_AFF != 0;
    chooses.then_some(command.context.lag_tx_port_affinity)
}

/// Returns the path MTU to `peer`: what the command asks for, or less if the packets would be fragmented.
fn mtu_to(peer: SocketAddrV4, own: SocketAddrV4, command: &Init2Rtr) -> CmdResult<Mtu> {
    let given = command.context.mtu;
    let fits = path_mtu(*own.ip(), peer).ok_or(refuse(CmdStatus::BAD_PARAM, Reason::NoPath))?;
    match given.bytes() {
        Some(asked) if fits < asked => {
            // Both sides of a link compute the same MTU, and QUERY_QP returns it.
            tracing::debug!(qpn = command.qpn, %peer, asked, fits, "path MTU cut to what the link carries");
            Ok(Mtu::within(fits))
        }
        _ => Ok(given),
    }
}

/// Moves a QP to state RTR. `unordered` is whether its WRITEs may be reordered, `shows_unordered` whether QUERY_QP
/// reports that.
fn enter_rtr(qp: &mut Qp, command: &Init2Rtr, mtu: Mtu, unordered: bool, shows_unordered: bool) {
    let given = command.context;
    qp.recv_psn = Psn::new(given.next_rcv_psn);
    qp.attrs = Attrs {
        remote_qpn: if qp.dci.is_some() { 0 } else { given.remote_qpn },
        mtu: mtu.0,
        log_msg_max: given.log_msg_max,
        min_rnr_nak: given.min_rnr_nak,
        log_rra_max: given.log_rra_max,
        unordered,
        ..qp.attrs
    };
    access(qp, &given, command.opt_param_mask);
    let old = qp.context;
    qp.context = QpContext {
        mtu,
        log_msg_max: given.log_msg_max,
        remote_qpn: given.remote_qpn,
        log_rra_max: given.log_rra_max,
        min_rnr_nak: given.min_rnr_nak,
        dp_ordering_0: shows_unordered,
        dp_ordering_force: given.dp_ordering_force,
        lag_tx_port_affinity: bond_port(command).unwrap_or(0),
        primary_address_path: AddressPath {
            vhca_port_num: old.primary_address_path.vhca_port_num,
            pkey_index: old.primary_address_path.pkey_index,
            ..given.primary_address_path
        },
        ..old
    };
    // UCX asks for all options (0xfffffffe) on every NIC, so firmware must ignore those that it did not offer.
    qp.ece = command.ece & qp.offered_ece;
    qp.state = State::Rtr;
}

pub(super) fn rtr2rts(path: &mut Datapath, context: u32, command: Rtr2Rts) -> Modified {
    let most = path.config.log_max_reads;
    let qp = in_state(&mut path.objects, context, command.qpn, State::Rtr)?;
    let given = command.context;
    require(given.log_sra_max <= most, Reason::Retries)?;
    qp.attrs = Attrs {
        retry_count: given.retry_count,
        rnr_retry: given.rnr_retry,
        ack_timeout: given.primary_address_path.ack_timeout,
        log_sra_max: given.log_sra_max,
        ..qp.attrs
    };
    optional(qp, &given, command.opt_param_mask);
    qp.context.retry_count = given.retry_count;
    qp.context.rnr_retry = given.rnr_retry;
    qp.context.log_sra_max = given.log_sra_max;
    qp.context.log_ack_req_freq = given.log_ack_req_freq;
    qp.context.primary_address_path.ack_timeout = given.primary_address_path.ack_timeout;
    qp.begin_sending(Psn::new(given.next_send_psn));
    qp.state = State::Rts;
    if let Route::Peer(peer) = qp.route {
        let address = address_of(&qp.context.primary_address_path);
        path.meet(peer, path.is_software(&address), Instant::now());
    }
    // Doorbells may have been rung before.
    path.enqueue(command.qpn);
    Ok(ModifyQpOut::default())
}

pub(super) fn rts2rts(objects: &mut Objects, context: u32, command: Rts2Rts) -> Modified {
    require(!command.qpc_ext, Reason::Extension)?;
    let qp = in_state(objects, context, command.qpn, State::Rts)?;
    optional(qp, &command.context, command.opt_param_mask);
    Ok(ModifyQpOut::default())
}

pub(super) fn to_error(core: &mut Core, context: u32, command: ToErr) -> Modified {
    own(&mut core.path.objects, context, command.qpn)?;
    core.catch_up();
    own(&mut core.path.objects, context, command.qpn)?.state = State::Error;
    // The driver may read how many requests the QP has executed, and rely on their effect.
    finish_executed(&mut core.path, command.qpn);
    core.path.enqueue(command.qpn);
    Ok(ModifyQpOut::default())
}

pub(super) fn to_reset(core: &mut Core, context: u32, command: ToRst) -> Modified {
    own(&mut core.path.objects, context, command.qpn)?;
    core.catch_up();
    dc::disconnect(&mut core.path, command.qpn);
    own(&mut core.path.objects, context, command.qpn)?.reset();
    Ok(ModifyQpOut::default())
}

fn in_state(objects: &mut Objects, context: u32, qpn: u32, state: State) -> CmdResult<&mut Qp> {
    let qp = own(objects, context, qpn)?;
    if qp.state == state { Ok(qp) } else { Err(refuse(CmdStatus::BAD_QP_STATE, Reason::State)) }
}

/// Sets the access rights, the atomic mode and the Q_Key whose bits are set in `mask`.
fn access(qp: &mut Qp, given: &QpContext, mask: u32) {
    if mask & opt_param::Q_KEY != 0 {
        (qp.attrs.qkey, qp.context.q_key) = (given.q_key, given.q_key);
    }
    if mask & opt_param::RRE != 0 {
        (qp.attrs.remote_read, qp.context.rre) = (given.rre, given.rre);
    }
    if mask & opt_param::RWE != 0 {
        (qp.attrs.remote_write, qp.context.rwe) = (given.rwe, given.rwe);
    }
    if mask & opt_param::RAE != 0 {
        (qp.attrs.remote_atomic, qp.context.rae) = (given.rae, given.rae);
        (qp.attrs.atomic_mode, qp.context.atomic_mode) = (given.atomic_mode.0, given.atomic_mode);
    }
}

/// Sets the attributes that a connected QP may change, if their bits are set in `mask`.
fn optional(qp: &mut Qp, given: &QpContext, mask: u32) {
    access(qp, given, mask);
    if mask & opt_param::RNR_TIMEOUT != 0 {
        (qp.attrs.min_rnr_nak, qp.context.min_rnr_nak) = (given.min_rnr_nak, given.min_rnr_nak);
    }
    if mask & opt_param::RETRY_COUNT != 0 {
        (qp.attrs.retry_count, qp.context.retry_count) = (given.retry_count, given.retry_count);
    }
    if mask & opt_param::RNR_RETRY != 0 {
        (qp.attrs.rnr_retry, qp.context.rnr_retry) = (given.rnr_retry, given.rnr_retry);
    }
    if mask & opt_param::ACK_TIMEOUT != 0 {
        qp.attrs.ack_timeout = given.primary_address_path.ack_timeout;
        qp.context.primary_address_path.ack_timeout = given.primary_address_path.ack_timeout;
    }
}

fn route(path: &Datapath, to: &AddressPath) -> CmdResult<Route> {
    if to.fl {
        return Ok(Route::Loopback);
    }
    path.route_to(&address_of(to)).map_err(|nowhere| {
        let why = match nowhere {
            BadAddress::Gid => Reason::Gid,
            BadAddress::Lid => Reason::Lid,
        };
        refuse(CmdStatus::BAD_PARAM, why)
    })
}

fn address_of(path: &AddressPath) -> Address {
    Address { gid: path.rgid_rip, mac: path.rmac, lid: path.rlid }
}
