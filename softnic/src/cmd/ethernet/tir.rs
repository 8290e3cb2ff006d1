//! Commands for transport domains, TISs, TIRs and RQTs.

use super::super::refuse::{Reason, bad_resource, refuse};
use super::super::{CmdResult, require};
use super::{LOG_MAX_RQT, numbers, own_function};
use crate::objects::Objects;
use crate::objects::ethernet::{Ethernet, Rqt, Tir, Tis};
use crate::objects::qp::RawQueue;
use crate::transport::datapath::Datapath;
use rushmem_mlx5::prm::CmdStatus;
use rushmem_mlx5::prm::flow::DestinationType;
use rushmem_mlx5::prm::tir::{
    AllocTransportDomain, AllocTransportDomainOut, CreateRqt, CreateRqtOut, CreateTir, CreateTirOut,
    CreateTis, CreateTisOut, DeallocTransportDomain, DeallocTransportDomainOut, DestroyRqt, DestroyRqtOut,
    DestroyTir, DestroyTirOut, DestroyTis, DestroyTisOut, Dispatch, HashFunction, ModifyRqt, ModifyRqtOut,
    ModifyTir, ModifyTirOut, ModifyTis, ModifyTisOut, TirContext, TisContext,
};

const FULL: Reason = Reason::Full;

pub(in crate::cmd) fn alloc_domain(
    path: &mut Datapath,
    context: u32,
    _: AllocTransportDomain,
) -> CmdResult<AllocTransportDomainOut> {
    own_function(path, context, false)?;
    let domain = path.objects.ethernet.domains.insert(context);
    Ok(AllocTransportDomainOut { transport_domain: domain.ok_or(refuse(CmdStatus::NO_RES, FULL))? })
}

pub(in crate::cmd) fn dealloc_domain(
    path: &mut Datapath,
    context: u32,
    command: DeallocTransportDomain,
) -> CmdResult<DeallocTransportDomainOut> {
    let Ethernet { domains, tiss, tirs, .. } = &mut path.objects.ethernet;
    let number = command.transport_domain;
    check_domain(domains.get(number), context)?;
    let used = tiss.iter().any(|(_, tis)| tis.context.transport_domain == number)
        || tirs.iter().any(|(_, tir)| tir.context.transport_domain == number);
    if used {
        return Err(refuse(CmdStatus::RES_BUSY, Reason::DomainUsed));
    }
    domains.remove(number);
    Ok(DeallocTransportDomainOut {})
}

fn check_domain(owner: Option<&u32>, context: u32) -> CmdResult<()> {
    if owner == Some(&context) { Ok(()) } else { Err(bad_resource(Reason::NoDomain)) }
}

pub(in crate::cmd) fn create_tis(
    path: &mut Datapath,
    context: u32,
    command: CreateTis,
) -> CmdResult<CreateTisOut> {
    own_function(path, context, false)?;
    let ethernet = &mut path.objects.ethernet;
    check_domain(ethernet.domains.get(command.context.transport_domain), context)?;
    require(!command.context.tls_en && command.context.underlay_qpn == 0, Reason::Interface)?;
    let tis = ethernet.tiss.insert(Tis { owner: context, context: command.context });
    Ok(CreateTisOut { tisn: tis.ok_or(refuse(CmdStatus::NO_RES, FULL))? })
}

/// Executes MODIFY_TIS. The medium has no priorities, and the port is not a bond, so neither setting affects frames.
pub(in crate::cmd) fn modify_tis(
    path: &mut Datapath,
    context: u32,
    command: ModifyTis,
) -> CmdResult<ModifyTisOut> {
    let tis = path.objects.ethernet.tiss.get_mut(command.tisn).filter(|tis| tis.owner == context);
    let tis = tis.ok_or(bad_resource(Reason::NoTis))?;
    let TisContext { prio, lag_tx_port_affinity, .. } = command.context;
    if command.sets_prio {
        tis.context.prio = prio;
    }
    if command.sets_affinity {
        tis.context.lag_tx_port_affinity = lag_tx_port_affinity;
    }
    Ok(ModifyTisOut {})
}

pub(in crate::cmd) fn destroy_tis(
    path: &mut Datapath,
    context: u32,
    command: DestroyTis,
) -> CmdResult<DestroyTisOut> {
    let objects = &mut path.objects;
    let own = objects.ethernet.tiss.get(command.tisn).filter(|tis| tis.owner == context);
    own.ok_or(bad_resource(Reason::NoTis))?;
    let used = objects.qps.iter().any(|(_, queue)| match queue.raw.as_deref() {
        Some(RawQueue::Send(sqc)) => sqc.tis_lst_sz != 0 && sqc.tis_num_0 == command.tisn,
        _ => false,
    });
    if used {
        return Err(refuse(CmdStatus::RES_BUSY, Reason::TisUsed));
    }
    objects.ethernet.tiss.remove(command.tisn);
    Ok(DestroyTisOut {})
}

/// Checks that the adapter supports what a TIR does.
fn check_tir(objects: &Objects, context: u32, tirc: &TirContext) -> CmdResult<()> {
    check_domain(objects.ethernet.domains.get(tirc.transport_domain), context)?;
    require(!tirc.tls_en && tirc.packet_merge_mask == 0 && !tirc.tunneled_offload_en, Reason::Interface)?;
    match tirc.disp_type {
        Dispatch::DIRECT => check_rq(objects, context, tirc.inline_rqn)?,
        Dispatch::INDIRECT => {
            let rqt = objects.ethernet.rqts.get(tirc.indirect_table).filter(|rqt| rqt.owner == context);
            rqt.ok_or(bad_resource(Reason::NoRqt))?;
        }
        _ => return Err(refuse(CmdStatus::BAD_PARAM, Reason::Interface)),
    }
    check_hash(tirc)
}

fn check_hash(tirc: &TirContext) -> CmdResult<()> {
    let is_known = tirc.rx_hash_fn.0 <= HashFunction::TOEPLITZ.0;
    require(is_known, Reason::Interface)
}

/// Checks that a receive queue belongs to a context.
fn check_rq(objects: &Objects, context: u32, rqn: u32) -> CmdResult<()> {
    let is_own = objects.qps.get(rqn).is_some_and(|queue| {
        queue.owner == context && matches!(queue.raw.as_deref(), Some(RawQueue::Receive(_)))
    });
    if is_own { Ok(()) } else { Err(bad_resource(Reason::NoQueue)) }
}

pub(in crate::cmd) fn create_tir(
    path: &mut Datapath,
    context: u32,
    command: CreateTir,
) -> CmdResult<CreateTirOut> {
    own_function(path, context, false)?;
    check_tir(&path.objects, context, &command.context)?;
    let tir = path.objects.ethernet.tirs.insert(Tir { owner: context, context: command.context });
    Ok(CreateTirOut { tirn: tir.ok_or(refuse(CmdStatus::NO_RES, FULL))? })
}

pub(in crate::cmd) fn modify_tir(
    path: &mut Datapath,
    context: u32,
    command: ModifyTir,
) -> CmdResult<ModifyTirOut> {
    let tir = path.objects.ethernet.tirs.get_mut(command.tirn).filter(|tir| tir.owner == context);
    let tir = tir.ok_or(bad_resource(Reason::NoTir))?;
    let given = command.context;
    require(!command.sets_merge || given.packet_merge_mask == 0, Reason::Interface)?;
    if command.sets_hash {
        check_hash(&given)?;
        tir.context = TirContext {
            rx_hash_fn: given.rx_hash_fn,
            rx_hash_toeplitz_key: given.rx_hash_toeplitz_key,
            outer: given.outer,
            ..tir.context
        };
    }
    if command.sets_loopback {
        tir.context.self_lb_block = given.self_lb_block;
    }
    Ok(ModifyTirOut {})
}

pub(in crate::cmd) fn destroy_tir(
    path: &mut Datapath,
    context: u32,
    command: DestroyTir,
) -> CmdResult<DestroyTirOut> {
    let ethernet = &mut path.objects.ethernet;
    let own = ethernet.tirs.get(command.tirn).filter(|tir| tir.owner == context);
    own.ok_or(bad_resource(Reason::NoTir))?;
    if ethernet.flow.leads_to(DestinationType::TIR, command.tirn) {
        return Err(refuse(CmdStatus::RES_BUSY, Reason::TirUsed));
    }
    ethernet.tirs.remove(command.tirn);
    Ok(DestroyTirOut {})
}

/// Reads the list of receive queues that follows a mailbox.
fn rq_list(objects: &Objects, context: u32, list: &[u8], (size, max): (u16, u16)) -> CmdResult<Vec<u32>> {
    require(size != 0 && size <= max && max <= 1 << LOG_MAX_RQT, Reason::RqtSize)?;
    let rqns: Vec<u32> = numbers(list, size.into())?.iter().map(|rqn| rqn & 0xff_ffff).collect();
    rqns.iter().try_for_each(|rqn| check_rq(objects, context, *rqn))?;
    Ok(rqns)
}

/// Executes CREATE_RQT. `list` has the numbers of the queues.
pub(in crate::cmd) fn create_rqt(
    path: &mut Datapath,
    context: u32,
    command: CreateRqt,
    list: &[u8],
) -> CmdResult<CreateRqtOut> {
    own_function(path, context, false)?;
    require(command.context.list_q_type == 0, Reason::Interface)?;
    let (size, max_size) = (command.context.rqt_actual_size, command.context.rqt_max_size);
    let rqns = rq_list(&path.objects, context, list, (size, max_size))?;
    let rqt = path.objects.ethernet.rqts.insert(Rqt { owner: context, max_size, rqns });
    Ok(CreateRqtOut { rqtn: rqt.ok_or(refuse(CmdStatus::NO_RES, FULL))? })
}

/// Executes MODIFY_RQT. `list` has the numbers of the queues.
pub(in crate::cmd) fn modify_rqt(
    path: &mut Datapath,
    context: u32,
    command: ModifyRqt,
    list: &[u8],
) -> CmdResult<ModifyRqtOut> {
    let max = own_rqt(&path.objects, context, command.rqtn)?.max_size;
    if command.sets_list {
        let rqns = rq_list(&path.objects, context, list, (command.context.rqt_actual_size, max))?;
        if let Some(rqt) = path.objects.ethernet.rqts.get_mut(command.rqtn) {
            rqt.rqns = rqns;
        }
    }
    Ok(ModifyRqtOut {})
}

pub(in crate::cmd) fn destroy_rqt(
    path: &mut Datapath,
    context: u32,
    command: DestroyRqt,
) -> CmdResult<DestroyRqtOut> {
    own_rqt(&path.objects, context, command.rqtn)?;
    let Ethernet { tirs, rqts, .. } = &mut path.objects.ethernet;
    if tirs.iter().any(|(_, tir)| tir.is_indirect() && tir.context.indirect_table == command.rqtn) {
        return Err(refuse(CmdStatus::RES_BUSY, Reason::RqtUsed));
    }
    rqts.remove(command.rqtn);
    Ok(DestroyRqtOut {})
}

fn own_rqt(objects: &Objects, context: u32, rqtn: u32) -> CmdResult<&Rqt> {
    let rqt = objects.ethernet.rqts.get(rqtn).filter(|rqt| rqt.owner == context);
    rqt.ok_or(bad_resource(Reason::NoRqt))
}
