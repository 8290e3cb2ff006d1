//! Commands for Ethernet queues: CREATE, MODIFY, QUERY and DESTROY of SQs and RQs.

use super::super::memory::{own_pd, own_uar};
use super::super::place::{self, Pages, Place, queue_memory};
use super::super::refuse::{Reason, bad_resource, refuse};
use super::super::{CmdResult, cq, require};
use super::{LOG_BLOCK, LOG_STRIDES, own_function};
use crate::engine::core::Core;
use crate::limits::LOG_MAX_QP_SIZE;
use crate::objects::Objects;
use crate::objects::qp::{Qp, RawQueue, Rq, Sq, State};
use crate::queue_memory::QueueMemory;
use crate::roce::Service;
use crate::transport::datapath::Datapath;
use rushmem_mlx5::doorbell::Record;
use rushmem_mlx5::prm::CmdStatus;
use rushmem_mlx5::prm::qp::QpContext;
use rushmem_mlx5::prm::rmp::{Wq, WqType};
use rushmem_mlx5::prm::sq::{
    CreateRq, CreateRqOut, CreateSq, CreateSqOut, DestroyRq, DestroyRqOut, DestroySq, DestroySqOut, ModifyRq,
    ModifyRqOut, ModifySq, ModifySqOut, QueryRq, QueryRqOut, QuerySq, QuerySqOut, QueueState, RqContext,
    SqContext,
};

/// The memory of a queue: its ring, its doorbell record, and the umems of both.
struct Memory {
    ring: QueueMemory,
    record: QueueMemory,
    umems: [u32; 2],
}

/// Finds the memory of a queue. `list` has the addresses of the pages, unless the queue lies in a umem.
fn memory(objects: &Objects, context: u32, wq: &Wq, align: usize, list: &[u8]) -> CmdResult<Memory> {
    require(wq.wq_type == WqType::CYCLIC, Reason::WqType)?;
    require(!wq.wq_signature, Reason::Signature)?;
    require(wq.log_wq_sz <= LOG_MAX_QP_SIZE, Reason::SqSize)?;
    // A queue without a protection domain has access to no memory.
    if wq.pd != 0 {
        own_pd(objects, context, wq.pd)?;
    }
    let umem = wq.wq_umem_valid.then_some((wq.wq_umem_id, 0));
    let at = Place::of_queue(umem, Pages::of_queue(list, wq.log_wq_pg_sz, wq.page_offset));
    let ring = queue_memory(objects, context, at, 1 << (wq.log_wq_stride + wq.log_wq_sz), align)?;
    let record_at = place::record(wq.dbr_umem_valid, wq.dbr_umem_id, wq.dbr_addr);
    let record = queue_memory(objects, context, record_at, size_of::<Record>(), 8)?;
    Ok(Memory { ring, record, umems: [at.umem(), record_at.umem()] })
}

/// Executes CREATE_SQ.
pub(in crate::cmd) fn create_sq(
    path: &mut Datapath,
    context: u32,
    command: CreateSq,
    list: &[u8],
) -> CmdResult<CreateSqOut> {
    own_function(path, context, false)?;
    let sqc = command.context;
    let wq = sqc.wq;
    require(sqc.state == QueueState::RST && !sqc.rlky && !sqc.hairpin, Reason::QueueType)?;
    require(!sqc.allow_multi_pkt_send_wqe && !sqc.reg_umr && !sqc.allow_swp, Reason::QueueType)?;
    require(sqc.ts_format == 0 && sqc.packet_pacing_rate_limit_index == 0, Reason::QueueType)?;
    require(wq.log_wq_stride == LOG_BLOCK, Reason::SqSize)?;
    let objects = &mut path.objects;
    cq::own(objects, context, sqc.cqn)?;
    own_uar(objects, context, wq.uar_page)?;
    // A queue without a transport interface executes NOPs only, for their completions.
    if sqc.tis_lst_sz != 0 {
        require(sqc.tis_lst_sz == 1, Reason::QueueType)?;
        let tis = objects.ethernet.tiss.get(sqc.tis_num_0).filter(|tis| tis.owner == context);
        tis.ok_or(bad_resource(Reason::NoTis))?;
    }
    let Memory { ring, record, umems } = memory(objects, context, &wq, 1 << LOG_BLOCK, list)?;
    let qpc =
        QpContext { pd: wq.pd, uar_page: wq.uar_page, user_index: sqc.user_index, ..QpContext::default() };
    let sqn = objects.add_qp(|sqn| {
        let mut queue = Box::new(Qp::new(context, sqn, Service::Raw, qpc));
        (queue.cq_send, queue.umems, queue.record) = (Some(sqc.cqn), umems, Some(record));
        queue.sq = Some(Sq { ring, log_size: wq.log_wq_sz, producer: 0, consumer: 0 });
        queue.raw = Some(Box::new(RawQueue::Send(sqc)));
        queue
    });
    Ok(CreateSqOut { sqn: sqn.ok_or(refuse(CmdStatus::NO_RES, Reason::Full))? })
}

/// Executes CREATE_RQ.
pub(in crate::cmd) fn create_rq(
    path: &mut Datapath,
    context: u32,
    command: CreateRq,
    list: &[u8],
) -> CmdResult<CreateRqOut> {
    own_function(path, context, false)?;
    let rqc = command.context;
    let wq = rqc.wq;
    require(rqc.state == QueueState::RST && !rqc.rlky && !rqc.hairpin, Reason::QueueType)?;
    require(rqc.mem_rq_type == 0 && !rqc.scatter_fcs && !rqc.delay_drop_en, Reason::QueueType)?;
    require(rqc.ts_format == 0 && LOG_STRIDES.contains(&wq.log_wq_stride), Reason::SqSize)?;
    check_counters(path, &rqc)?;
    let objects = &mut path.objects;
    cq::own(objects, context, rqc.cqn)?;
    let Memory { ring, record, umems } = memory(objects, context, &wq, 16, list)?;
    let qpc = QpContext {
        pd: wq.pd,
        user_index: rqc.user_index,
        counter_set_id: rqc.counter_set_id,
        ..QpContext::default()
    };
    let rqn = objects.add_qp(|rqn| {
        let mut queue = Box::new(Qp::new(context, rqn, Service::Raw, qpc));
        (queue.cq_recv, queue.umems, queue.record) = (Some(rqc.cqn), umems, Some(record));
        let stride = 1 << wq.log_wq_stride;
        queue.rq = Some(Rq { ring, log_size: wq.log_wq_sz, stride, consumer: 0 });
        queue.raw = Some(Box::new(RawQueue::Receive(rqc)));
        queue
    });
    Ok(CreateRqOut { rqn: rqn.ok_or(refuse(CmdStatus::NO_RES, Reason::Full))? })
}

fn check_counters(path: &Datapath, rqc: &RqContext) -> CmdResult<()> {
    let set = rqc.counter_set_id;
    let exists = set == 0 || path.report.counters.0.get(set.into()).is_some();
    if exists { Ok(()) } else { Err(bad_resource(Reason::NoCounters)) }
}

/// Executes MODIFY_SQ.
pub(in crate::cmd) fn modify_sq(core: &mut Core, context: u32, command: ModifySq) -> CmdResult<ModifySqOut> {
    require(command.modify_bitmask == 0, Reason::QueueType)?;
    own_sq(&mut core.path.objects, context, command.sqn)?;
    change(core, command.sqn, command.sq_state, command.context.state)?;
    Ok(ModifySqOut {})
}

/// Executes MODIFY_RQ.
pub(in crate::cmd) fn modify_rq(core: &mut Core, context: u32, command: ModifyRq) -> CmdResult<ModifyRqOut> {
    let (mask, given) = (command.modify_bitmask, command.context);
    require(mask & !(ModifyRq::VSD | ModifyRq::COUNTERS) == 0, Reason::QueueType)?;
    if mask & ModifyRq::COUNTERS != 0 {
        check_counters(&core.path, &given)?;
    }
    own_rq(&mut core.path.objects, context, command.rqn)?;
    change(core, command.rqn, command.rq_state, given.state)?;
    let (queue, mut rqc) = own_rq(&mut core.path.objects, context, command.rqn)?;
    if mask & ModifyRq::VSD != 0 {
        rqc.vsd = given.vsd;
    }
    if mask & ModifyRq::COUNTERS != 0 {
        rqc.counter_set_id = given.counter_set_id;
        queue.context.counter_set_id = given.counter_set_id;
    }
    queue.raw = Some(Box::new(RawQueue::Receive(rqc)));
    Ok(ModifyRqOut {})
}

/// Moves a queue from the state in which the driver expects it to another one.
fn change(core: &mut Core, number: u32, from: QueueState, to: QueueState) -> CmdResult<()> {
    let missing = bad_resource(Reason::NoQueue);
    let state = core.path.objects.qps.get(number).ok_or(missing)?.state;
    if state_of(state) != from {
        return Err(refuse(CmdStatus::BAD_RES_STATE, Reason::State));
    }
    let queue = |core: &mut Core, state| {
        if let Some(queue) = core.path.objects.qps.get_mut(number) {
            queue.state = state;
        }
        core.path.enqueue(number);
    };
    match (from, to) {
        (QueueState::RST, QueueState::RDY) => queue(core, State::Rts),
        (QueueState::RDY, QueueState::ERR) => {
            core.catch_up();
            queue(core, State::Error);
        }
        (_, QueueState::RST) => {
            core.catch_up();
            if let Some(queue) = core.path.objects.qps.get_mut(number) {
                queue.reset();
            }
        }
        (from, to) if from == to => {}
        _ => return Err(refuse(CmdStatus::BAD_RES_STATE, Reason::State)),
    }
    Ok(())
}

fn state_of(state: State) -> QueueState {
    match state {
        State::Reset => QueueState::RST,
        State::Error => QueueState::ERR,
        State::Init | State::Rtr | State::Rts => QueueState::RDY,
    }
}

/// Executes QUERY_SQ.
pub(in crate::cmd) fn query_sq(
    objects: &mut Objects,
    context: u32,
    command: QuerySq,
) -> CmdResult<QuerySqOut> {
    let (queue, sqc) = own_sq(objects, context, command.sqn)?;
    let counters = queue.sq.as_ref().map_or((0, 0), |sq| (sq.consumer, sq.producer));
    let wq = Wq { hw_counter: counters.0.into(), sw_counter: counters.1.into(), ..sqc.wq };
    Ok(QuerySqOut { context: SqContext { state: state_of(queue.state), wq, ..sqc } })
}

/// Executes QUERY_RQ.
pub(in crate::cmd) fn query_rq(
    objects: &mut Objects,
    context: u32,
    command: QueryRq,
) -> CmdResult<QueryRqOut> {
    let (queue, rqc) = own_rq(objects, context, command.rqn)?;
    let hw_counter = queue.rq.as_ref().map_or(0, |rq| rq.consumer.into());
    let wq = Wq { hw_counter, sw_counter: queue.record_receives().into(), ..rqc.wq };
    Ok(QueryRqOut { context: RqContext { state: state_of(queue.state), wq, ..rqc } })
}

/// Executes DESTROY_SQ.
pub(in crate::cmd) fn destroy_sq(
    core: &mut Core,
    context: u32,
    command: DestroySq,
) -> CmdResult<DestroySqOut> {
    own_sq(&mut core.path.objects, context, command.sqn)?;
    core.catch_up();
    core.remove_qp(command.sqn);
    Ok(DestroySqOut {})
}

/// Executes DESTROY_RQ.
pub(in crate::cmd) fn destroy_rq(
    core: &mut Core,
    context: u32,
    command: DestroyRq,
) -> CmdResult<DestroyRqOut> {
    own_rq(&mut core.path.objects, context, command.rqn)?;
    if core.path.objects.ethernet.uses_rq(command.rqn) {
        return Err(refuse(CmdStatus::RES_BUSY, Reason::RqUsed));
    }
    core.remove_qp(command.rqn);
    Ok(DestroyRqOut {})
}

/// Returns send queue `sqn` and its settings, if `context` may use it.
fn own_sq(objects: &mut Objects, context: u32, sqn: u32) -> CmdResult<(&mut Qp, SqContext)> {
    own_queue(objects, context, sqn, |raw| match raw {
        RawQueue::Send(sqc) => Some(*sqc),
        RawQueue::Receive(_) => None,
    })
}

/// Returns receive queue `rqn` and its settings, if `context` may use it.
fn own_rq(objects: &mut Objects, context: u32, rqn: u32) -> CmdResult<(&mut Qp, RqContext)> {
    own_queue(objects, context, rqn, |raw| match raw {
        RawQueue::Receive(rqc) => Some(*rqc),
        RawQueue::Send(_) => None,
    })
}

fn own_queue<T>(
    objects: &mut Objects,
    context: u32,
    number: u32,
    settings: fn(&RawQueue) -> Option<T>,
) -> CmdResult<(&mut Qp, T)> {
    let owner = objects.qps.get(number).map(|queue| queue.owner);
    let may_use = owner.is_some_and(|owner| objects.may_use(context, owner));
    let queue = objects.qps.get_mut(number).filter(|_| may_use);
    let found = queue.and_then(|queue| Some((queue.raw.as_deref().and_then(settings)?, queue)));
    found.map(|(settings, queue)| (&mut **queue, settings)).ok_or(bad_resource(Reason::NoQueue))
}
