//! Commands for queue counters: ALLOC_Q_COUNTER, QUERY_Q_COUNTER, DEALLOC_Q_COUNTER.

use super::CmdResult;
use super::refuse::{Reason, bad_resource, refuse};
use crate::report::CounterSet;
use crate::transport::datapath::Datapath;
use rushmem_mlx5::prm::CmdStatus;
use rushmem_mlx5::prm::counter::{
    AllocQCounter, AllocQCounterOut, DeallocQCounter, DeallocQCounterOut, QueryQCounter, QueryQCounterOut,
};

pub(super) fn alloc(path: &mut Datapath, context: u32, _: AllocQCounter) -> CmdResult<AllocQCounterOut> {
    let set = CounterSet { owner: context, ..CounterSet::default() };
    let number = path.report.counters.0.insert(set).ok_or(refuse(CmdStatus::NO_RES, Reason::Full))?;
    Ok(AllocQCounterOut { counter_set_id: number as u8 })
}

pub(super) fn query(
    path: &mut Datapath,
    context: u32,
    command: QueryQCounter,
) -> CmdResult<QueryQCounterOut> {
    let set = own(path, context, command.counter_set_id)?;
    let counts = set.counts;
    if command.clear {
        set.counts = QueryQCounterOut::default();
    }
    Ok(counts)
}

pub(super) fn dealloc(
    path: &mut Datapath,
    context: u32,
    command: DeallocQCounter,
) -> CmdResult<DeallocQCounterOut> {
    own(path, context, command.counter_set_id)?;
    let number = command.counter_set_id;
    if path.objects.qps.iter().any(|(_, qp)| qp.context.counter_set_id == number) {
        return Err(refuse(CmdStatus::RES_BUSY, Reason::CountersUsed));
    }
    path.report.counters.0.remove(number.into());
    Ok(DeallocQCounterOut {})
}

fn own(path: &mut Datapath, context: u32, number: u8) -> CmdResult<&mut CounterSet> {
    let set = path.report.counters.0.get_mut(number.into()).filter(|set| set.owner == context);
    set.ok_or(bad_resource(Reason::NoCounters))
}
