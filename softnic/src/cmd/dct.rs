//! Commands for targets of dynamic connections: CREATE_DCT, DRAIN_DCT, QUERY_DCT, DESTROY_DCT.

use super::memory::own_pd;
use super::refuse::{Reason, bad_resource, refuse};
use super::{CmdResult, cq, require, rmp};
use crate::engine::core::Core;
use crate::objects::{Dct, Objects};
use crate::report::Event;
use crate::transport::datapath::Datapath;
use rushmem_mlx5::prm::CmdStatus;
use rushmem_mlx5::prm::dct::{
    CreateDct, CreateDctOut, DctContext, DctState, DestroyDct, DestroyDctOut, DrainDct, DrainDctOut,
    QueryDct, QueryDctOut,
};
use std::collections::HashMap;

pub(super) fn create(path: &mut Datapath, context: u32, command: CreateDct) -> CmdResult<CreateDctOut> {
    let dctc = command.context;
    own_pd(&path.objects, context, dctc.pd)?;
    cq::own(&path.objects, context, dctc.cqn)?;
    let srq = rmp::own(&path.objects, context, dctc.srqn_xrqn)?.clone();
    let pkey = path.config.pkeys.get(usize::from(dctc.pkey_index)).copied();
    let pkey = pkey.ok_or(refuse(CmdStatus::BAD_PARAM, Reason::Partition))?;
    let set = dctc.counter_set_id;
    if set != 0 && path.report.counters.0.get(set.into()).is_none() {
        return Err(bad_resource(Reason::NoCounters));
    }
    let limit = path.config.mtu;
    require(dctc.mtu.bytes().is_some_and(|mtu| mtu <= limit), Reason::Mtu)?;
    require(!dctc.dp_ordering_1, Reason::Ordering)?;
    let dct = Dct {
        owner: context,
        context: dctc,
        pkey,
        srq,
        is_drained: false,
        wrong_keys: 0,
        connections: HashMap::new(),
    };
    let dctn = path.objects.add_dct(dct).ok_or(refuse(CmdStatus::NO_RES, Reason::Full))?;
    Ok(CreateDctOut { dctn, ece: 0 })
}

/// Executes DRAIN_DCT. Closes all connections of the DCT right away, so it is drained when the command completes.
pub(super) fn drain(core: &mut Core, context: u32, command: DrainDct) -> CmdResult<DrainDctOut> {
    let dctn = command.dctn;
    own(&mut core.path.objects, context, dctn)?;
    core.catch_up();
    own(&mut core.path.objects, context, dctn)?.is_drained = true;
    core.path.objects.remove_connections(dctn);
    core.path.report.events.push(Event::DctDrained { dctn });
    Ok(DrainDctOut {})
}

pub(super) fn query(objects: &mut Objects, context: u32, command: QueryDct) -> CmdResult<QueryDctOut> {
    let dct = own(objects, context, command.dctn)?;
    let state = if dct.is_drained { DctState::DRAINED } else { DctState::ACTIVE };
    let dc_access_key_violation_count = dct.wrong_keys;
    Ok(QueryDctOut { context: DctContext { state, dc_access_key_violation_count, ..dct.context } })
}

pub(super) fn destroy(objects: &mut Objects, context: u32, command: DestroyDct) -> CmdResult<DestroyDctOut> {
    own(objects, context, command.dctn)?;
    objects.remove_dct(command.dctn);
    Ok(DestroyDctOut {})
}

/// Returns DCT `dctn` if `context` may use it.
fn own(objects: &mut Objects, context: u32, dctn: u32) -> CmdResult<&mut Dct> {
    let is_own = objects.dcts.get(dctn).is_some_and(|dct| objects.may_use(context, dct.owner));
    let dct = if is_own { objects.dcts.get_mut(dctn) } else { None };
    dct.ok_or(bad_resource(Reason::NoDct))
}
