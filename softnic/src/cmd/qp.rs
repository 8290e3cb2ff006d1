//! Commands that create, query and destroy QPs: CREATE_QP, QUERY_QP, DESTROY_QP.

use super::caps::offered_ece;
use super::memory::{own_pd, own_uar};
use super::place::{self, Pages, Place, queue_memory};
use super::refuse::{Reason, bad_resource, refuse};
use super::{CmdResult, cq, require, rmp, xrc};
use crate::engine::core::Core;
use crate::limits::LOG_MAX_QP_SIZE;
use crate::objects::Objects;
use crate::objects::qp::{Qp, Rq, Sq, State};
use crate::roce::Service;
use crate::transport::datapath::Datapath;
use rushmem_mlx5::doorbell::Record;
use rushmem_mlx5::prm::CmdStatus;
use rushmem_mlx5::prm::qp::{
    CreateQp, CreateQpOut, DestroyQp, DestroyQpOut, Mtu, QpContext, QpState, QueryQp, QueryQpOut, RqType,
    SEND_DBR, SEND_NO_DBR, ServiceType, TS_FREE_RUNNING,
};
use rushmem_mlx5::seg::WQEBB_BYTES;

/// Executes CREATE_QP. `list` has the addresses of the pages, unless the queues lie in a umem.
pub(super) fn create(
    path: &mut Datapath,
    context: u32,
    command: CreateQp,
    list: &[u8],
) -> CmdResult<CreateQpOut> {
    let (qpc, ece) = (command.context, offered_ece(command.ece));
    if qpc.st == ServiceType::XRC && qpc.no_sq {
        return xrc::create_target(&mut path.objects, context, qpc, ece);
    }
    let (service, receives) = check_supported(&command)?;
    let has_rq = receives == RqType::REGULAR;
    let is_of_kernel = [ServiceType::REG_UMR, ServiceType::QP0, ServiceType::QP1].contains(&qpc.st);
    require(!is_of_kernel || path.objects.is_function(context), Reason::KernelQp)?;
    // A QP that changes keys needs no protection domain.
    if qpc.st != ServiceType::REG_UMR || qpc.pd != 0 {
        own_pd(&path.objects, context, qpc.pd)?;
    }
    own_uar(&path.objects, context, qpc.uar_page)?;
    check_record(path, &qpc)?;
    require(!path.config.real_time || qpc.ts_format != TS_FREE_RUNNING, Reason::TimeStamps)?;
    let cq_send = (!qpc.no_sq).then_some(qpc.cqn_snd);
    let cq_recv = (receives != RqType::ZERO_SIZE).then_some(qpc.cqn_rcv);
    for cqn in [cq_send, cq_recv].into_iter().flatten() {
        cq::own(&path.objects, context, cqn)?;
    }
    let at = place(&command, list)?;
    let (rq, sq) = queues(&path.objects, context, &qpc, at, has_rq)?;
    let record_at = place::record(qpc.dbr_umem_valid, qpc.dbr_umem_id, qpc.dbr_addr);
    let record = queue_memory(&path.objects, context, record_at, size_of::<Record>(), 8)?;

    let srq = match receives {
        RqType::SRQ => Some(rmp::own(&path.objects, context, qpc.srqn_rmpn_xrqn)?.clone()),
        _ => None,
    };

    let umems = [at.umem(), record_at.umem()];
    let qpn = path.objects.add_qp(|qpn| {
        let mut qp = Box::new(Qp::new(context, qpn, service, qpc));
        (qp.cq_send, qp.cq_recv, qp.umems) = (cq_send, cq_recv, umems);
        (qp.sq, qp.rq, qp.srq, qp.record) = (sq, rq, srq, Some(record));
        qp.offered_ece = ece;
        qp.dci = (service == Service::Dc).then(Box::default);
        qp
    });
    let qpn = qpn.ok_or(refuse(CmdStatus::NO_RES, Reason::Full))?;
    Ok(CreateQpOut { qpn, ece })
}

/// Checks that the adapter supports the requested QP. Returns its service and the type of its receive queue.
///
/// `cs_req` and `cs_res` are not checked: they only permit the adapter to scatter data into CQEs, which it never does.
fn check_supported(command: &CreateQp) -> CmdResult<(Service, RqType)> {
    let qpc = &command.context;
    let service = match qpc.st {
        ServiceType::RC | ServiceType::REG_UMR => Service::Rc,
        ServiceType::UC => Service::Uc,
        ServiceType::UD | ServiceType::QP0 | ServiceType::QP1 => Service::Ud,
        ServiceType::XRC => Service::Xrc,
        ServiceType::DCI => Service::Dc,
        _ => return Err(refuse(CmdStatus::BAD_PARAM, Reason::Service)),
    };
    require(qpc.log_sq_size <= LOG_MAX_QP_SIZE, Reason::SqSize)?;
    require(!qpc.wq_signature, Reason::Signature)?;
    require(matches!(qpc.rq_type, RqType::REGULAR | RqType::SRQ | RqType::ZERO_SIZE), Reason::RqType)?;
    if service == Service::Xrc {
        // An XRC initiator receives nothing, although a kernel driver names an SRQ.
        require(qpc.rq_type != RqType::REGULAR, Reason::RqType)?;
        return Ok((service, RqType::ZERO_SIZE));
    }
    if service == Service::Dc && qpc.rq_type == RqType::SRQ {
        // Neither does a DC initiator. The SRQ that a kernel driver names is its own, not the program's.
        return Ok((service, RqType::ZERO_SIZE));
    }
    Ok((service, qpc.rq_type))
}

/// Refuses a QP without a doorbell record if the configuration forbids it, or if its UAR page already has such a QP.
fn check_record(path: &Datapath, qpc: &QpContext) -> CmdResult<()> {
    if qpc.send_dbr_mode == SEND_DBR {
        return Ok(());
    }
    require(path.config.no_record && qpc.send_dbr_mode == SEND_NO_DBR, Reason::DbrMode)?;
    // A register holds only the last doorbell, and there is no record to recover others from.
    let users = path.objects.uars.get(qpc.uar_page).map_or(&[][..], |uar| &uar.qps);
    let shares = users.iter().any(|qpn| path.objects.qps.get(*qpn).is_some_and(|qp| !qp.has_send_record()));
    require(!shares, Reason::DbrShared)
}

/// Returns where the queues of a QP lie.
fn place<'c>(command: &CreateQp, list: &'c [u8]) -> CmdResult<Place<'c>> {
    let qpc = &command.context;
    require(!command.wq_umem_valid || qpc.page_offset == 0, Reason::PageOffset)?;
    let umem = command.wq_umem_valid.then_some((command.wq_umem_id, command.wq_umem_offset));
    Ok(Place::of_queue(umem, Pages::of_queue(list, qpc.log_page_size, qpc.page_offset)))
}

/// Creates the receive queue and the send queue of a QP in the memory at `place`.
fn queues(
    objects: &Objects,
    context: u32,
    qpc: &QpContext,
    place: Place<'_>,
    has_rq: bool,
) -> CmdResult<(Option<Rq>, Option<Sq>)> {
    if !has_rq && qpc.no_sq {
        return Ok((None, None));
    }
    // The send queue follows the receive queue in memory.
    let stride = 16usize << qpc.log_rq_stride;
    let rq_bytes = if has_rq { stride << qpc.log_rq_size } else { 0 };
    let sq_bytes = if qpc.no_sq { 0 } else { WQEBB_BYTES << qpc.log_sq_size };
    let region = place.find(objects, context, (rq_bytes + sq_bytes) as u64)?;
    let rq = match has_rq {
        true => {
            let ring = region.queue(0, rq_bytes, WQEBB_BYTES)?;
            Some(Rq { ring, log_size: qpc.log_rq_size, stride, consumer: 0 })
        }
        false => None,
    };
    let sq = match qpc.no_sq {
        false => {
            let ring = region.queue(rq_bytes as u64, sq_bytes, WQEBB_BYTES)?;
            Some(Sq { ring, log_size: qpc.log_sq_size, producer: 0, consumer: 0 })
        }
        true => None,
    };
    Ok((rq, sq))
}

pub(super) fn query(objects: &mut Objects, context: u32, command: QueryQp) -> CmdResult<QueryQpOut> {
    let qp = own(objects, context, command.qpn)?;
    let state = match qp.state {
        State::Reset => QpState::RST,
        State::Init => QpState::INIT,
        State::Rtr => QpState::RTR,
        State::Rts => QpState::RTS,
        State::Error => QpState::ERR,
    };
    let (consumer, producer) = qp.sq.as_ref().map_or((0, 0), |sq| (sq.consumer, sq.producer));
    let hw_rq_counter = qp.rq.as_ref().map_or(0, |rq| rq.consumer.into());
    let receives = qp.record_receives();
    let context = QpContext {
        state,
        next_send_psn: qp.send_psn.get(),
        last_acked_psn: qp.req.acked().plus(u32::MAX).get(),
        next_rcv_psn: qp.recv_psn.get(),
        rmsn: qp.msn & 0xff_ffff,
        hw_sq_wqebb_counter: consumer,
        sw_sq_wqebb_counter: producer,
        hw_rq_counter,
        sw_rq_counter: if qp.rq.is_some() { receives.into() } else { 0 },
        // GPUNetIO queries new QPs, and accepts only valid MTUs.
        mtu: if qp.context.mtu.bytes().is_some() { qp.context.mtu } else { Mtu::B256 },
        ..qp.context
    };
    Ok(QueryQpOut { context, ece: qp.ece, ..QueryQpOut::default() })
}

pub(super) fn destroy(core: &mut Core, context: u32, command: DestroyQp) -> CmdResult<DestroyQpOut> {
    own(&mut core.path.objects, context, command.qpn)?;
    core.catch_up();
    if own(&mut core.path.objects, context, command.qpn)?.service == Service::Ud {
        core.finish_datagrams(command.qpn);
    }
    core.remove_qp(command.qpn);
    Ok(DestroyQpOut {})
}

/// Returns QP `qpn` if `context` may use it.
pub(super) fn own(objects: &mut Objects, context: u32, qpn: u32) -> CmdResult<&mut Qp> {
    let owner = objects.qps.get(qpn).filter(|qp| qp.of_dct.is_none() && qp.raw.is_none()).map(|qp| qp.owner);
    let is_own = owner.is_some_and(|owner| objects.may_use(context, owner));
    let qp = if is_own { objects.qps.get_mut(qpn) } else { None };
    qp.map(|qp| &mut **qp).ok_or(bad_resource(Reason::NoQp))
}
