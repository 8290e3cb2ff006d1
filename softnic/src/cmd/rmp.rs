//! Commands for receive memory pools (RMPs), which are shared receive queues: CREATE_RMP, MODIFY_RMP, QUERY_RMP,
//! DESTROY_RMP.

use super::memory::own_pd;
use super::place::{self, Pages, Place, queue_memory};
use super::refuse::{Reason, bad_resource, refuse};
use super::{CmdResult, require};
use crate::objects::{Objects, SharedSrq, Srq};
use rushmem_mlx5::doorbell::{Record, record_counter};
use rushmem_mlx5::prm::CmdStatus;
use rushmem_mlx5::prm::rmp::{
    CreateRmp, CreateRmpOut, DestroyRmp, DestroyRmpOut, ModifyRmp, ModifyRmpOut, QueryRmp, QueryRmpOut,
    RmpContext, RmpState, Wq, WqType,
};

/// log2 of the maximum number of receive WQEs in an RMP.
const LOG_MAX_SIZE: u8 = 15;

/// log2 of the allowed sizes of a receive WQE in an RMP, in bytes. The smallest holds a link or a single data segment.
const LOG_STRIDES: std::ops::RangeInclusive<u8> = 4..=11;

/// Executes CREATE_RMP. `list` has the addresses of the pages, unless the queue lies in a umem.
pub(super) fn create(
    objects: &mut Objects,
    context: u32,
    command: CreateRmp,
    list: &[u8],
) -> CmdResult<CreateRmpOut> {
    let RmpContext { basic_cyclic_rcv_wqe, wq, .. } = command.context;
    let linked = match wq.wq_type {
        WqType::LINKED_LIST => true,
        WqType::CYCLIC => false,
        _ => return Err(refuse(CmdStatus::BAD_PARAM, Reason::WqType)),
    };
    let has_link = linked || !basic_cyclic_rcv_wqe;
    require(!wq.wq_signature, Reason::Signature)?;
    require(wq.log_wq_sz <= LOG_MAX_SIZE && LOG_STRIDES.contains(&wq.log_wq_stride), Reason::SqSize)?;
    require(!has_link || wq.log_wq_stride > 4, Reason::SqSize)?;
    own_pd(objects, context, wq.pd)?;
    let stride = 1usize << wq.log_wq_stride;
    let umem = wq.wq_umem_valid.then_some((wq.wq_umem_id, 0));
    let at = Place::of_queue(umem, Pages::of_queue(list, wq.log_wq_pg_sz, wq.page_offset));
    let ring = queue_memory(objects, context, at, stride << wq.log_wq_sz, 16)?;
    let record_at = place::record(wq.dbr_umem_valid, wq.dbr_umem_id, wq.dbr_addr);
    let record = queue_memory(objects, context, record_at, size_of::<Record>(), 8)?;
    let umems = [at.umem(), record_at.umem()];
    let srqn = objects.add_srq(|srqn| Srq {
        owner: context,
        srqn,
        pd: wq.pd,
        umems,
        ring,
        record,
        log_size: wq.log_wq_sz,
        stride,
        linked,
        has_link,
        next: 0,
        taken: 0,
        returned: Vec::new(),
        limit: wq.lwm,
        users: 0,
        of_xrcd: None,
    });
    let rmpn = srqn.ok_or(refuse(CmdStatus::NO_RES, Reason::Full))?;
    Ok(CreateRmpOut { rmpn })
}

pub(super) fn modify(objects: &mut Objects, context: u32, command: ModifyRmp) -> CmdResult<ModifyRmpOut> {
    let srq = own(objects, context, command.rmpn)?;
    if command.lwm {
        srq.get().limit = command.context.wq.lwm;
    }
    Ok(ModifyRmpOut {})
}

pub(super) fn query(objects: &mut Objects, context: u32, command: QueryRmp) -> CmdResult<QueryRmpOut> {
    let srq = own(objects, context, command.rmpn)?;
    let srq = srq.get();
    let wq = Wq {
        wq_type: if srq.linked { WqType::LINKED_LIST } else { WqType::CYCLIC },
        lwm: srq.limit,
        pd: srq.pd,
        hw_counter: srq.taken.into(),
        sw_counter: record_counter(srq.record.load_u32(Record::RCV_OFFSET)).into(),
        log_wq_stride: srq.stride.ilog2() as u8,
        log_wq_sz: srq.log_size,
        wq_umem_valid: srq.umems[0] != 0,
        dbr_umem_valid: srq.umems[1] != 0,
        wq_umem_id: srq.umems[0],
        dbr_umem_id: srq.umems[1],
        ..Wq::default()
    };
    let context = RmpContext { state: RmpState::RDY, basic_cyclic_rcv_wqe: !srq.has_link, wq };
    Ok(QueryRmpOut { context })
}

pub(super) fn destroy(objects: &mut Objects, context: u32, command: DestroyRmp) -> CmdResult<DestroyRmpOut> {
    if own(objects, context, command.rmpn)?.get().users != 0 {
        return Err(refuse(CmdStatus::RES_BUSY, Reason::SrqUsed));
    }
    objects.remove_srq(command.rmpn);
    Ok(DestroyRmpOut {})
}

/// Returns SRQ `srqn` if `context` may use it.
pub(super) fn own(objects: &Objects, context: u32, srqn: u32) -> CmdResult<&SharedSrq> {
    let is_own = |srq: &&SharedSrq| {
        let srq = srq.get();
        objects.may_use(context, srq.owner) && srq.of_xrcd.is_none()
    };
    objects.srqs.get(srqn).filter(is_own).ok_or(bad_resource(Reason::NoSrq))
}
