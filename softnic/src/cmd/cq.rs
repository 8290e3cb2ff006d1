//! Commands for completion queues: CREATE_CQ, MODIFY_CQ, QUERY_CQ, DESTROY_CQ.

use super::memory::own_uar;
use super::place::{self, Pages, Place, queue_memory};
use super::refuse::{Reason, bad_resource, refuse};
use super::{CmdResult, require};
use crate::limits::LOG_MAX_CQ_SIZE;
use crate::objects::{Cq, Objects};
use rushmem_mlx5::cqe::CQE_BYTES;
use rushmem_mlx5::prm::CmdStatus;
use rushmem_mlx5::prm::cq::{
    CqContext, CqStatus, CreateCq, CreateCqOut, DestroyCq, DestroyCqOut, ModifyCq, ModifyCqOut, QueryCq,
    QueryCqOut,
};

/// Executes CREATE_CQ. `list` has the addresses of the pages, unless the CQ lies in a umem.
pub(super) fn create(
    objects: &mut Objects,
    context: u32,
    command: CreateCq,
    list: &[u8],
) -> CmdResult<CreateCqOut> {
    let cqc = command.context;
    require(cqc.cqe_sz <= 1 && !cqc.cqe_comp_en, Reason::CqeSize)?;
    require(cqc.log_cq_size <= LOG_MAX_CQ_SIZE, Reason::CqSize)?;
    let umem = command.umem_valid.then_some((command.umem_id, command.umem_offset));
    let at = place(umem, &cqc, list)?;
    let record_at = place::record(cqc.dbr_umem_valid, cqc.dbr_umem_id, cqc.dbr_addr);
    own_uar(objects, context, cqc.uar_page)?;
    let bytes = (CQE_BYTES << cqc.cqe_sz) << cqc.log_cq_size;
    let ring = queue_memory(objects, context, at, bytes, CQE_BYTES)?;
    let record = queue_memory(objects, context, record_at, 8, 8)?;
    let umems = [at.umem(), record_at.umem()];
    let cq = Cq { umems, ..Cq::new(context, &cqc, ring, record) };
    let cqn = objects.add_cq(cq).ok_or(refuse(CmdStatus::NO_RES, Reason::Full))?;
    Ok(CreateCqOut { cqn })
}

/// Returns where the ring of a CQ lies: at an offset in a umem, or in pages whose addresses are in `list`.
fn place<'c>(umem: Option<(u32, u64)>, cqc: &CqContext, list: &'c [u8]) -> CmdResult<Place<'c>> {
    require(umem.is_none() || cqc.page_offset == 0, Reason::PageOffset)?;
    Ok(Place::of_queue(umem, Pages::of_queue(list, cqc.log_page_size, cqc.page_offset)))
}

/// Executes MODIFY_CQ. `list` has the addresses of the new pages, unless the CQ lies in a umem.
pub(super) fn modify(
    objects: &mut Objects,
    context: u32,
    command: ModifyCq,
    list: &[u8],
) -> CmdResult<ModifyCqOut> {
    let ModifyCq { op_mod, cqn, field_select, context: cqc, umem_offset, umem_id, umem_valid, .. } = command;
    const MODERATION: u32 = ModifyCq::PERIOD | ModifyCq::COUNT | ModifyCq::PERIOD_MODE;
    if op_mod != ModifyCq::RESIZE && field_select & !MODERATION == 0 {
        own(objects, context, cqn)?;
        let Some(cq) = objects.cqs.get_mut(cqn) else { return Err(bad_resource(Reason::NoCq)) };
        moderate(cq, field_select, &cqc);
        return Ok(ModifyCqOut {});
    }
    let is_resize = op_mod == ModifyCq::RESIZE && field_select & ModifyCq::LOG_SIZE != 0;
    let cq = own(objects, context, cqn)?;
    require(is_resize && !cq.collapsed && CQE_BYTES << cqc.cqe_sz == cq.entry, Reason::Resize)?;
    require(cqc.log_cq_size <= LOG_MAX_CQ_SIZE, Reason::CqSize)?;
    let at = place(umem_valid.then_some((umem_id, umem_offset)), &cqc, list)?;
    let bytes = cq.entry << cqc.log_cq_size;
    let ring = queue_memory(objects, context, at, bytes, CQE_BYTES)?;
    let Some(cq) = objects.cqs.get_mut(cqn) else { return Err(bad_resource(Reason::NoCq)) };
    let moved = cq.resize(ring, cqc.log_cq_size);
    moved.map_err(|_| refuse(CmdStatus::BAD_SIZE_OUTS_CQES, Reason::CqFull))?;
    objects.move_cq(cqn, at.umem());
    Ok(ModifyCqOut {})
}

/// Stores how long and for how many completions events may be delayed. That is an upper limit: the adapter delays none.
fn moderate(cq: &mut Cq, fields: u32, given: &CqContext) {
    if fields & ModifyCq::PERIOD != 0 {
        cq.moderation.period = given.cq_period;
    }
    if fields & ModifyCq::COUNT != 0 {
        cq.moderation.count = given.cq_max_count;
    }
    if fields & ModifyCq::PERIOD_MODE != 0 {
        cq.moderation.mode = given.cq_period_mode;
    }
}

pub(super) fn query(objects: &mut Objects, context: u32, command: QueryCq) -> CmdResult<QueryCqOut> {
    let cq = own(objects, context, command.cqn)?;
    let context = CqContext {
        status: if cq.overrun { CqStatus::OVERFLOW } else { CqStatus::OK },
        dbr_umem_valid: cq.umems[1] != 0,
        cqe_sz: u8::from(cq.entry != CQE_BYTES),
        cc: cq.collapsed,
        oi: cq.ignore_overrun,
        dbr_umem_id: cq.umems[1],
        log_cq_size: cq.log_size,
        cq_period_mode: cq.moderation.mode,
        cq_period: cq.moderation.period,
        cq_max_count: cq.moderation.count,
        uar_page: cq.uar,
        c_eqn: cq.eqn,
        last_notified_index: cq.arm_state.last & 0xff_ffff,
        last_solicit_index: cq.arm_state.solicited & 0xff_ffff,
        consumer_counter: cq.consumed(),
        producer_counter: cq.produced as u32 & 0xff_ffff,
        ..CqContext::default()
    };
    Ok(QueryCqOut { context })
}

pub(super) fn destroy(objects: &mut Objects, context: u32, command: DestroyCq) -> CmdResult<DestroyCqOut> {
    if own(objects, context, command.cqn)?.users != 0 {
        return Err(refuse(CmdStatus::RES_BUSY, Reason::CqUsed));
    }
    objects.remove_cq(command.cqn);
    Ok(DestroyCqOut {})
}

/// Returns CQ `cqn` if it belongs to `context`.
pub(super) fn own(objects: &Objects, context: u32, cqn: u32) -> CmdResult<&Cq> {
    objects.cqs.get(cqn).filter(|cq| objects.may_use(context, cq.owner)).ok_or(bad_resource(Reason::NoCq))
}
