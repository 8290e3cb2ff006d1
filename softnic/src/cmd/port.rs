//! Commands by which a kernel driver queries the port: its state, tables and access registers.

use super::refuse::{Reason, bad_resource};
use super::register::{filled, node_description, port_one};
use super::{CmdResult, require};
use crate::address::port_guid;
use crate::bus::Attached;
use crate::management::subnet::{Adapter, SM_LID, SUBNET_PREFIX};
use crate::transport::datapath::Datapath;
use crate::transport::subnet::{GUIDS, PKEYS, own};
use rushmem_mlx5::prm::port::{
    AccessReg, HcaVportContext, ModifyHcaVportContext, ModifyHcaVportContextOut, PhysState, Pmtu, PortState,
    Ptys, Pvlc, QueryHcaVportContext, QueryHcaVportContextOut, QueryHcaVportGid, QueryHcaVportGidOut,
    QueryHcaVportPkey, QueryHcaVportPkeyOut, RegisterId,
};

/// Bits of the capability mask of PortInfo that a driver can set: its communication manager, SNMP agent, device
/// management and vendor class. The subnet has its own manager.
const SETTABLE: u32 = 1 << 16 | 1 << 17 | 1 << 19 | 1 << 21;

/// Checks that a command names the only port, which a driver of a single port leaves out.
fn own_port(path: &Datapath, other_vport: bool, port: u8) -> CmdResult<()> {
    require(path.config.infiniband, Reason::PortType)?;
    only_port(other_vport, port)
}

fn only_port(other_vport: bool, port: u8) -> CmdResult<()> {
    require(!other_vport && port <= 1, Reason::Port)
}

/// Returns the state of the port and of its link.
fn state(path: &Datapath) -> (PortState, PhysState) {
    match path.failures.health.port_is_down {
        true => (PortState::DOWN, PhysState::POLLING),
        false => (PortState::ACTIVE, PhysState::LINK_UP),
    }
}

pub(super) fn context(
    path: &mut Datapath,
    context: u32,
    command: QueryHcaVportContext,
) -> CmdResult<QueryHcaVportContextOut> {
    own_port(path, command.other_vport, command.port_num)?;
    let (state, port_physical_state) = state(path);
    let Adapter { guid, lid, capabilities, .. } = own(path, context);
    let context = HcaVportContext {
        has_smi: true,
        port_physical_state,
        port_state: state,
        vport_state: state,
        system_image_guid: guid,
        port_guid: guid,
        node_guid: guid,
        cap_mask1: capabilities,
        cap_mask1_field_select: SETTABLE,
        lid,
        sm_lid: SM_LID,
        ..HcaVportContext::default()
    };
    Ok(QueryHcaVportContextOut { context })
}

/// Executes MODIFY_HCA_VPORT_CONTEXT, which changes the capability mask. GUIDs follow from the address.
pub(super) fn modify_context(
    path: &mut Datapath,
    context: u32,
    command: ModifyHcaVportContext,
) -> CmdResult<ModifyHcaVportContextOut> {
    own_port(path, command.other_vport, command.port_num)?;
    let HcaVportContext { field_select, cap_mask1, cap_mask1_field_select: chosen, .. } = command.context;
    require(field_select == 0 && chosen & !SETTABLE == 0, Reason::PortField)?;
    let bus: &mut Attached = path.objects.buses.get_mut(&context).ok_or(bad_resource(Reason::NoBus))?;
    bus.capabilities = bus.capabilities & !chosen | cap_mask1 & chosen;
    Ok(ModifyHcaVportContextOut {})
}

pub(super) fn gid(path: &mut Datapath, _: u32, command: QueryHcaVportGid) -> CmdResult<QueryHcaVportGidOut> {
    own_port(path, command.other_vport, command.port_num)?;
    require(command.gid_index < GUIDS.into(), Reason::TableIndex)?;
    let mut gid = [0; 16];
    if command.gid_index == 0 {
        gid[..8].copy_from_slice(&SUBNET_PREFIX);
        gid[8..].copy_from_slice(&port_guid(*path.address.ip()).to_be_bytes());
    }
    Ok(QueryHcaVportGidOut { gids_num: 1, gid })
}

/// Executes QUERY_HCA_VPORT_PKEY. RoCE has a table of partition keys, too.
pub(super) fn pkey(
    path: &mut Datapath,
    _: u32,
    command: QueryHcaVportPkey,
) -> CmdResult<QueryHcaVportPkeyOut> {
    only_port(command.other_vport, command.port_num)?;
    require(command.pkey_index < PKEYS, Reason::TableIndex)?;
    // Other entries are unused, which 0 says.
    let pkey = path.config.pkeys.get(usize::from(command.pkey_index)).copied().unwrap_or(0);
    Ok(QueryHcaVportPkeyOut { pkey })
}

/// Reads a register of an InfiniBand port, whose contents are `data`. Returns the new contents.
pub(super) fn register(path: &mut Datapath, command: &AccessReg, data: &[u8]) -> CmdResult<Vec<u8>> {
    require(command.op_mod == AccessReg::READ, Reason::RegisterRead)?;
    match command.register_id {
        RegisterId::PTYS => filled(data, |given| ptys(path, given)),
        RegisterId::PMTU => filled(data, |given: Pmtu| {
            port_one(given.local_port)?;
            let mtu = path.config.mtu as u16;
            Ok(Pmtu { max_mtu: mtu, admin_mtu: mtu, oper_mtu: mtu, ..given })
        }),
        RegisterId::PVLC => filled(data, |given: Pvlc| {
            port_one(given.local_port)?;
            Ok(Pvlc { vl_hw_cap: 1, vl_admin: 1, vl_operational: 1, ..given })
        }),
        RegisterId::NODE_DESC => node_description(path, data),
        _ => Err(bad_resource(Reason::NoRegister)),
    }
}

fn ptys(path: &Datapath, given: Ptys) -> CmdResult<Ptys> {
    port_one(given.local_port)?;
    require(path.config.infiniband && given.proto_mask == Ptys::IB, Reason::PortType)?;
    let speed = path.config.model.speed().code;
    Ok(Ptys {
        ib_link_width_capability: Ptys::WIDTH_4X,
        ib_proto_capability: speed,
        ib_link_width_admin: Ptys::WIDTH_4X,
        ib_proto_admin: speed,
        ib_link_width_oper: Ptys::WIDTH_4X,
        ib_proto_oper: speed,
        ..given
    })
}
