//! Commands for flow tables, their groups, entries and counters.

use super::super::refuse::{Reason, bad_resource, refuse};
use super::super::{CmdResult, require};
use super::own_function;
use crate::objects::ethernet::Ethernet;
use crate::objects::ethernet::flow::{
    Counter, Entry, FlowTable, Group, LEVELS, LOG_MAX_DESTINATIONS, LOG_MAX_ENTRIES, LOG_MAX_SIZE, masked,
};
use crate::transport::datapath::Datapath;
use crate::transport::ethernet::{GROUP, leave_if_unused};
use rushmem_mlx5::prm::CmdStatus;
use rushmem_mlx5::prm::flow::{
    AllocFlowCounter, AllocFlowCounterOut, CreateFlowGroup, CreateFlowGroupOut, CreateFlowTable,
    CreateFlowTableOut, DeallocFlowCounter, DeallocFlowCounterOut, DeleteFlowTableEntry,
    DeleteFlowTableEntryOut, Destination, DestinationType, DestroyFlowGroup, DestroyFlowGroupOut,
    DestroyFlowTable, DestroyFlowTableOut, FlowContext, FlowCounter, FlowTableContext, MissAction,
    ModifyFlowTable, ModifyFlowTableOut, QueryFlowCounter, QueryFlowCounterOut, SetFlowTableEntry,
    SetFlowTableEntryOut, SetFlowTableRoot, SetFlowTableRootOut, TableType, criteria,
};
use std::collections::BTreeMap;

/// Maximum number of groups of a table.
const MAX_GROUPS: usize = 1 << 10;

fn own_table(
    path: &mut Datapath,
    context: u32,
    kind: TableType,
    (other_vport, id): (bool, u32),
) -> CmdResult<&mut FlowTable> {
    own_function(path, context, other_vport)?;
    require(kind == TableType::NIC_RX, Reason::TableType)?;
    let table = path.objects.ethernet.flow.tables.get_mut(id).filter(|table| table.owner == context);
    table.ok_or(bad_resource(Reason::NoTable))
}

/// Returns the table to which misses of a table at `level` go.
fn miss(path: &Datapath, context: u32, level: u8, given: &FlowTableContext) -> CmdResult<Option<u32>> {
    match given.table_miss_action {
        MissAction::DEFAULT => Ok(None),
        MissAction::FORWARD => {
            check_next(path, context, level, given.table_miss_id)?;
            Ok(Some(given.table_miss_id))
        }
        _ => Err(refuse(CmdStatus::BAD_PARAM, Reason::TableType)),
    }
}

/// Checks that a table at `level` may lead to another one.
fn check_next(path: &Datapath, context: u32, level: u8, id: u32) -> CmdResult<()> {
    let next = path.objects.ethernet.flow.tables.get(id).filter(|next| next.owner == context);
    require(next.ok_or(bad_resource(Reason::NoTable))?.level > level, Reason::TableLevel)
}

pub(in crate::cmd) fn create_table(
    path: &mut Datapath,
    context: u32,
    command: CreateFlowTable,
) -> CmdResult<CreateFlowTableOut> {
    own_function(path, context, command.other_vport)?;
    require(command.table_type == TableType::NIC_RX, Reason::TableType)?;
    let given = command.context;
    require(!given.reformat_en && !given.decap_en && !given.sw_owner, Reason::TableType)?;
    require(given.level < LEVELS && given.log_size <= LOG_MAX_SIZE, Reason::TableLevel)?;
    let miss = miss(path, context, given.level, &given)?;
    let table = path.objects.ethernet.flow.tables.insert(FlowTable {
        owner: context,
        level: given.level,
        size: 1 << given.log_size,
        miss,
        groups: BTreeMap::new(),
        last_group: 0,
        entries: BTreeMap::new(),
    });
    Ok(CreateFlowTableOut { table_id: table.ok_or(refuse(CmdStatus::NO_RES, Reason::Full))? })
}

pub(in crate::cmd) fn modify_table(
    path: &mut Datapath,
    context: u32,
    command: ModifyFlowTable,
) -> CmdResult<ModifyFlowTableOut> {
    let at = (command.other_vport, command.table_id);
    let level = own_table(path, context, command.table_type, at)?.level;
    require(command.modify_field_select & !ModifyFlowTable::MISS == 0, Reason::TableType)?;
    if command.modify_field_select & ModifyFlowTable::MISS != 0 {
        let miss = miss(path, context, level, &command.context)?;
        own_table(path, context, command.table_type, at)?.miss = miss;
    }
    Ok(ModifyFlowTableOut {})
}

pub(in crate::cmd) fn destroy_table(
    path: &mut Datapath,
    context: u32,
    command: DestroyFlowTable,
) -> CmdResult<DestroyFlowTableOut> {
    let id = command.table_id;
    let has_groups =
        !own_table(path, context, command.table_type, (command.other_vport, id))?.groups.is_empty();
    let flow = &mut path.objects.ethernet.flow;
    if has_groups || flow.leads_to(DestinationType::FLOW_TABLE, id) {
        return Err(refuse(CmdStatus::RES_BUSY, Reason::TableUsed));
    }
    flow.tables.remove(id);
    // Drivers destroy the last table without disconnecting it.
    if flow.root == Some(id) {
        flow.root = None;
        leave_if_unused(path);
    }
    Ok(DestroyFlowTableOut {})
}

/// Executes SET_FLOW_TABLE_ROOT. While there is a root, the adapter receives frames for all stations.
pub(in crate::cmd) fn set_root(
    path: &mut Datapath,
    context: u32,
    command: SetFlowTableRoot,
) -> CmdResult<SetFlowTableRootOut> {
    own_table(path, context, command.table_type, (command.other_vport, command.table_id))?;
    require(command.underlay_qpn == 0 && command.op_mod <= SetFlowTableRoot::DISCONNECT, Reason::TableType)?;
    if command.op_mod == SetFlowTableRoot::DISCONNECT {
        path.objects.ethernet.flow.root = None;
        leave_if_unused(path);
        return Ok(SetFlowTableRootOut {});
    }
    if let Some(fabric) = &mut path.fabric {
        fabric.join(GROUP).map_err(|error| {
            tracing::warn!(%error, "frames for several stations cannot be received");
            refuse(CmdStatus::INT_ERR, Reason::NoGroup)
        })?;
    }
    path.objects.ethernet.flow.root = Some(command.table_id);
    Ok(SetFlowTableRootOut {})
}

pub(in crate::cmd) fn create_group(
    path: &mut Datapath,
    context: u32,
    command: CreateFlowGroup,
) -> CmdResult<CreateFlowGroupOut> {
    let at = (command.other_vport, command.table_id);
    let table = own_table(path, context, command.table_type, at)?;
    let (first, last) = (command.start_flow_index, command.end_flow_index);
    require(command.group_type == 0, Reason::Criteria)?;
    require(command.match_criteria_enable & !criteria::OUTER_HEADERS == 0, Reason::Criteria)?;
    let overlaps = |group: &Group| group.first <= last && first <= group.last;
    let is_free = first <= last && last < table.size && !table.groups.values().any(overlaps);
    require(is_free, Reason::FlowIndex)?;
    if table.groups.len() >= MAX_GROUPS {
        return Err(refuse(CmdStatus::NO_RES, Reason::Full));
    }
    let uses_outer = command.match_criteria_enable & criteria::OUTER_HEADERS != 0;
    let mask = if uses_outer { command.outer.0 } else { [0; _] };
    table.last_group += 1;
    table.groups.insert(table.last_group, Group { first, last, mask });
    Ok(CreateFlowGroupOut { group_id: table.last_group })
}

pub(in crate::cmd) fn destroy_group(
    path: &mut Datapath,
    context: u32,
    command: DestroyFlowGroup,
) -> CmdResult<DestroyFlowGroupOut> {
    let at = (command.other_vport, command.table_id);
    let table = own_table(path, context, command.table_type, at)?;
    if table.entries.values().any(|entry| entry.group == command.group_id) {
        return Err(refuse(CmdStatus::RES_BUSY, Reason::TableUsed));
    }
    table.groups.remove(&command.group_id).ok_or(bad_resource(Reason::NoGroupOfTable))?;
    Ok(DestroyFlowGroupOut {})
}

/// Reads the destinations and counters that follow an entry, and checks them.
fn lists(
    path: &Datapath,
    context: u32,
    level: u8,
    (given, list): (&FlowContext, &[u8]),
) -> CmdResult<(Vec<Destination>, Vec<u32>)> {
    const KNOWN: u16 = FlowContext::ALLOW | FlowContext::DROP | FlowContext::FORWARD | FlowContext::COUNT;

    require(given.action & !KNOWN == 0 && !given.extended_destination, Reason::FlowAction)?;
    let (to, counters) = (given.destination_list_size as usize, given.flow_counter_list_size as usize);
    require(to <= 1 << LOG_MAX_DESTINATIONS && counters <= 1, Reason::FlowAction)?;
    let entries = list.as_chunks::<8>().0;
    let short = refuse(CmdStatus::BAD_INP_LEN, Reason::InputLength);
    let (to, rest) = entries.split_at_checked(to).ok_or(short)?;
    let counters = rest.get(..counters).ok_or(short)?;
    let ethernet = &path.objects.ethernet;
    let destinations: Vec<Destination> = to.iter().map(Destination::read).collect();
    for to in &destinations {
        match to.destination_type {
            DestinationType::FLOW_TABLE => check_next(path, context, level, to.destination_id)?,
            DestinationType::TIR => {
                let tir = ethernet.tirs.get(to.destination_id);
                let tir = tir.filter(|tir| path.objects.may_use(context, tir.owner));
                tir.ok_or(bad_resource(Reason::NoTir))?;
            }
            _ => return Err(refuse(CmdStatus::BAD_PARAM, Reason::FlowAction)),
        }
    }
    let counters: Vec<u32> = counters.iter().map(|entry| FlowCounter::read(entry).flow_counter_id).collect();
    counters.iter().try_for_each(|id| check_counter(ethernet, context, *id))?;
    Ok((destinations, counters))
}

/// Executes SET_FLOW_TABLE_ENTRY. `list` has the destinations and counters.
pub(in crate::cmd) fn set_entry(
    path: &mut Datapath,
    context: u32,
    command: SetFlowTableEntry,
    list: &[u8],
) -> CmdResult<SetFlowTableEntryOut> {
    let (kind, at) = (command.table_type, (command.other_vport, command.table_id));
    let (given, index) = (command.context, command.flow_index);
    require(!command.ignore_flow_level && command.op_mod <= SetFlowTableEntry::MODIFY, Reason::FlowAction)?;
    let level = own_table(path, context, kind, at)?.level;
    let (destinations, counters) = lists(path, context, level, (&given, list))?;
    if command.op_mod == SetFlowTableEntry::MODIFY {
        let table = own_table(path, context, kind, at)?;
        let entry = table.entries.get_mut(&index).ok_or(bad_resource(Reason::FlowIndex))?;
        let changes = |bit| command.modify_enable_mask & bit != 0;
        if changes(SetFlowTableEntry::ACTION) {
            entry.action = given.action;
        }
        if changes(SetFlowTableEntry::FLOW_TAG) {
            entry.flow_tag = given.flow_tag;
        }
        if changes(SetFlowTableEntry::DESTINATIONS) {
            entry.destinations = destinations;
        }
        if changes(SetFlowTableEntry::COUNTERS) {
            entry.counters = counters;
        }
        return Ok(SetFlowTableEntryOut {});
    }
    let is_full = path.objects.ethernet.flow.entries() >= 1 << LOG_MAX_ENTRIES;
    let table = own_table(path, context, kind, at)?;
    let group = table.groups.get(&given.group_id).ok_or(bad_resource(Reason::NoGroupOfTable))?;
    let is_free = (group.first..=group.last).contains(&index) && !table.entries.contains_key(&index);
    require(is_free, Reason::FlowIndex)?;
    if is_full {
        return Err(refuse(CmdStatus::NO_RES, Reason::Full));
    }
    let value = masked(&given.outer.0, &group.mask);
    let (group, action, flow_tag) = (given.group_id, given.action, given.flow_tag);
    table.entries.insert(index, Entry { group, value, action, flow_tag, destinations, counters });
    Ok(SetFlowTableEntryOut {})
}

pub(in crate::cmd) fn delete_entry(
    path: &mut Datapath,
    context: u32,
    command: DeleteFlowTableEntry,
) -> CmdResult<DeleteFlowTableEntryOut> {
    let at = (command.other_vport, command.table_id);
    let table = own_table(path, context, command.table_type, at)?;
    table.entries.remove(&command.flow_index).ok_or(bad_resource(Reason::FlowIndex))?;
    Ok(DeleteFlowTableEntryOut {})
}

fn check_counter(ethernet: &Ethernet, context: u32, id: u32) -> CmdResult<()> {
    let own = ethernet.flow.counters.get(id).filter(|counter| counter.owner == context);
    own.map(|_| ()).ok_or(bad_resource(Reason::NoFlowCounter))
}

pub(in crate::cmd) fn alloc_counter(
    path: &mut Datapath,
    context: u32,
    command: AllocFlowCounter,
) -> CmdResult<AllocFlowCounterOut> {
    own_function(path, context, false)?;
    require(command.flow_counter_bulk == 0, Reason::FlowBulk)?;
    let counter = Counter { owner: context, count: Default::default() };
    let id = path.objects.ethernet.flow.counters.insert(counter);
    Ok(AllocFlowCounterOut { flow_counter_id: id.ok_or(refuse(CmdStatus::NO_RES, Reason::Full))? })
}

pub(in crate::cmd) fn query_counter(
    path: &mut Datapath,
    context: u32,
    command: QueryFlowCounter,
) -> CmdResult<QueryFlowCounterOut> {
    check_counter(&path.objects.ethernet, context, command.flow_counter_id)?;
    require(command.num_of_counters <= 1, Reason::FlowBulk)?;
    let Some(counter) = path.objects.ethernet.flow.counters.get_mut(command.flow_counter_id) else {
        return Err(bad_resource(Reason::NoFlowCounter));
    };
    let count = counter.count;
    if command.clear {
        counter.count = Default::default();
    }
    Ok(QueryFlowCounterOut { counter: count })
}

pub(in crate::cmd) fn dealloc_counter(
    path: &mut Datapath,
    context: u32,
    command: DeallocFlowCounter,
) -> CmdResult<DeallocFlowCounterOut> {
    let id = command.flow_counter_id;
    check_counter(&path.objects.ethernet, context, id)?;
    let flow = &mut path.objects.ethernet.flow;
    if flow.counts_in(id) {
        return Err(refuse(CmdStatus::RES_BUSY, Reason::CountersUsed));
    }
    flow.counters.remove(id);
    Ok(DeallocFlowCounterOut {})
}
