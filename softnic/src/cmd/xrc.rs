//! Commands for XRC domains and XRC SRQs, and the part of CREATE_QP that creates XRC targets.

use super::memory::own_pd;
use super::place::{self, Pages, Place, queue_memory};
use super::refuse::{Reason, bad_resource, refuse};
use super::{CmdResult, cq, require};
use crate::objects::qp::Qp;
use crate::objects::{Objects, OfXrcd, SharedSrq, Srq, Xrcd};
use crate::roce::Service;
use rushmem_mlx5::doorbell::Record;
use rushmem_mlx5::prm::CmdStatus;
use rushmem_mlx5::prm::qp::{CreateQpOut, QpContext, RqType};
use rushmem_mlx5::prm::xrc::{
    AllocXrcd, AllocXrcdOut, ArmXrcSrq, ArmXrcSrqOut, CreateXrcSrq, CreateXrcSrqOut, DeallocXrcd,
    DeallocXrcdOut, DestroyXrcSrq, DestroyXrcSrqOut, QueryXrcSrq, QueryXrcSrqOut, XrcSrqContext,
};

pub(super) fn alloc(objects: &mut Objects, context: u32, _: AllocXrcd) -> CmdResult<AllocXrcdOut> {
    let xrcd = objects.xrcds.insert(Xrcd { owner: context, users: 0 });
    Ok(AllocXrcdOut { xrcd: xrcd.ok_or(refuse(CmdStatus::NO_RES, Reason::Full))? })
}

pub(super) fn dealloc(
    objects: &mut Objects,
    context: u32,
    command: DeallocXrcd,
) -> CmdResult<DeallocXrcdOut> {
    let xrcd = objects.xrcds.get(command.xrcd).filter(|xrcd| xrcd.owner == context);
    if xrcd.ok_or(bad_resource(Reason::NoXrcd))?.users != 0 {
        return Err(refuse(CmdStatus::RES_BUSY, Reason::XrcdUsed));
    }
    objects.xrcds.remove(command.xrcd);
    Ok(DeallocXrcdOut {})
}

/// Executes CREATE_XRC_SRQ. `list` has the addresses of the pages, unless the queue lies in a umem.
pub(super) fn create_srq(
    objects: &mut Objects,
    context: u32,
    command: CreateXrcSrq,
    list: &[u8],
) -> CmdResult<CreateXrcSrqOut> {
    let srqc = command.context;
    require(!srqc.wq_signature, Reason::Signature)?;
    // One link and one data segment.
    require(srqc.log_rq_stride > 0, Reason::SqSize)?;
    own_pd(objects, context, srqc.pd)?;
    cq::own(objects, context, srqc.cqn)?;
    objects.xrcds.get(srqc.xrcd).ok_or(bad_resource(Reason::NoXrcd))?;
    let (stride, log_size) = (16usize << srqc.log_rq_stride, srqc.log_xrc_srq_size);
    let bytes = stride << log_size;
    let umem = command.umem_valid.then_some((command.umem_id, command.umem_offset));
    let at = Place::of_queue(umem, Pages::of_queue(list, srqc.log_page_size, srqc.page_offset));
    let ring = queue_memory(objects, context, at, bytes, 16)?;
    let record_at = place::record(srqc.dbr_umem_valid, srqc.dbr_umem_id, srqc.dbr_addr);
    let record = queue_memory(objects, context, record_at, size_of::<Record>(), 8)?;
    let umems = [at.umem(), record_at.umem()];
    let of_xrcd = OfXrcd { xrcd: srqc.xrcd, cqn: srqc.cqn, user_index: srqc.user_index };
    let srqn = objects.add_srq(|srqn| Srq {
        owner: context,
        srqn,
        pd: srqc.pd,
        umems,
        ring,
        record,
        log_size,
        stride,
        linked: true,
        has_link: true,
        next: 0,
        taken: 0,
        returned: Vec::new(),
        limit: srqc.lwm,
        users: 0,
        of_xrcd: Some(of_xrcd),
    });
    let xrc_srqn = srqn.ok_or(refuse(CmdStatus::NO_RES, Reason::Full))?;
    Ok(CreateXrcSrqOut { xrc_srqn })
}

pub(super) fn arm_srq(objects: &mut Objects, context: u32, command: ArmXrcSrq) -> CmdResult<ArmXrcSrqOut> {
    require(command.op_mod == ArmXrcSrq::XRC_SRQ, Reason::Command)?;
    own(objects, context, command.xrc_srqn)?.0.get().limit = command.lwm;
    Ok(ArmXrcSrqOut {})
}

pub(super) fn query_srq(
    objects: &mut Objects,
    context: u32,
    command: QueryXrcSrq,
) -> CmdResult<QueryXrcSrqOut> {
    let (srq, OfXrcd { xrcd, cqn, user_index }) = own(objects, context, command.xrc_srqn)?;
    let srq = srq.get();
    let context = XrcSrqContext {
        log_xrc_srq_size: srq.log_size,
        log_rq_stride: srq.stride.ilog2() as u8 - 4,
        xrcd,
        dbr_umem_valid: srq.umems[1] != 0,
        cqn,
        dbr_umem_id: srq.umems[1],
        user_index,
        pd: srq.pd,
        lwm: srq.limit,
        wqe_cnt: srq.posted(),
        ..XrcSrqContext::default()
    };
    Ok(QueryXrcSrqOut { context })
}

pub(super) fn destroy_srq(
    objects: &mut Objects,
    context: u32,
    command: DestroyXrcSrq,
) -> CmdResult<DestroyXrcSrqOut> {
    own(objects, context, command.xrc_srqn)?;
    objects.remove_srq(command.xrc_srqn);
    Ok(DestroyXrcSrqOut {})
}

/// Creates an XRC target: an extended QP without a send queue. It has no queue memory and no doorbells.
///
/// `ece` are the options of enhanced connection establishment that the adapter offers.
pub(super) fn create_target(
    objects: &mut Objects,
    context: u32,
    qpc: QpContext,
    ece: u32,
) -> CmdResult<CreateQpOut> {
    require(qpc.rq_type != RqType::REGULAR, Reason::RqType)?;
    own_pd(objects, context, qpc.pd)?;
    objects.xrcds.get(qpc.xrcd).ok_or(bad_resource(Reason::NoXrcd))?;
    let qpc = QpContext { uar_page: 0, ..qpc };
    let qpn =
        objects.add_qp(|qpn| Box::new(Qp { offered_ece: ece, ..Qp::new(context, qpn, Service::Xrc, qpc) }));
    let qpn = qpn.ok_or(refuse(CmdStatus::NO_RES, Reason::Full))?;
    Ok(CreateQpOut { qpn, ece })
}

/// Returns SRQ `srqn` and its XRC attributes, if it is an XRC SRQ that `context` may use.
fn own(objects: &Objects, context: u32, srqn: u32) -> CmdResult<(&SharedSrq, OfXrcd)> {
    let srq = objects.srqs.get(srqn).filter(|srq| objects.may_use(context, srq.get().owner));
    let of = srq.and_then(|srq| Some((srq, srq.get().of_xrcd?)));
    of.ok_or(bad_resource(Reason::NoSrq))
}
