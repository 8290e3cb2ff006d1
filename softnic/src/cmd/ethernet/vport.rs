//! Commands for the virtual port, and for the table of RoCE addresses.

use super::super::refuse::{Reason, refuse};
use super::super::{CmdResult, require};
use super::{LOG_MAX_ADDRESSES, LOG_MAX_VLANS, own_function};
use crate::address::{Mac, port_guid};
use crate::transport::datapath::Datapath;
use crate::transport::ethernet::{CHECK_SEQUENCE, MAX_FRAME};
use rushmem_mlx5::prm::caps::{RoceAddr, SetRoceAddress, SetRoceAddressOut};
use rushmem_mlx5::prm::vport::{
    ListType, ModifyNicVportContext, ModifyNicVportContextOut, NicVportContext, QueryNicVportContext,
    QueryNicVportContextOut, QueryVportCounter, QueryVportCounterOut, QueryVportState, QueryVportStateOut,
    VportState,
};
use rushmem_mlx5::prm::{CmdError, CmdStatus};

/// Number of entries of the table of RoCE addresses.
pub(in crate::cmd) const ROCE_ADDRESSES: u16 = 64;

/// Maximum length of a frame with its check sequence.
pub(in crate::cmd) const MAX_MTU: u16 = (MAX_FRAME + CHECK_SEQUENCE) as u16;

/// Length of an address in a list, of which the last 6 bytes are the MAC address.
const LISTED: usize = 8;

pub(in crate::cmd) fn state(
    path: &mut Datapath,
    context: u32,
    command: QueryVportState,
) -> CmdResult<QueryVportStateOut> {
    own_function(path, context, command.other_vport)?;
    // A guest learns the state of the physical port only from its own port.
    let state = if path.failures.health.port_is_down { VportState::DOWN } else { VportState::UP };
    Ok(QueryVportStateOut { admin_state: VportState::FOLLOW, state })
}

/// Executes QUERY_NIC_VPORT_CONTEXT, whose answer is followed by a list of addresses.
pub(in crate::cmd) fn query(
    path: &mut Datapath,
    context: u32,
    input: &[u8],
    output: &mut [u8],
) -> CmdResult<()> {
    let command = QueryNicVportContext::decode(input)
        .map_err(|_| refuse(CmdStatus::BAD_INP_LEN, Reason::InputLength))?;
    own_function(path, context, command.other_vport)?;
    let guid = port_guid(*path.address.ip());
    let (permanent_address, vport) = (path.mac(), &path.objects.ethernet.vport);
    let of_macs = |macs: &[Mac]| macs.iter().map(|mac| listed(*mac)).collect::<Vec<_>>();
    let list = match command.allowed_list_type {
        ListType::UNICAST => of_macs(&vport.unicast),
        ListType::MULTICAST => of_macs(&vport.multicast),
        ListType::VLAN => vport.vlans.iter().map(|vlan| u64::from(*vlan).to_be_bytes()).collect(),
        _ => return Err(refuse(CmdStatus::BAD_PARAM, Reason::AddressList)),
    };
    let context = NicVportContext {
        roce_en: vport.roce,
        mtu: vport.mtu.unwrap_or(MAX_MTU),
        system_image_guid: guid,
        port_guid: guid,
        node_guid: vport.node_guid.unwrap_or(guid),
        promisc_uc: vport.all_unicast,
        promisc_mc: vport.all_multicast,
        promisc_all: vport.promiscuous,
        allowed_list_type: command.allowed_list_type,
        allowed_list_size: list.len() as u16,
        permanent_address,
        ..NicVportContext::default()
    };
    let answer = QueryNicVportContextOut { context }.encode();
    output.fill(0);
    let bytes = answer.into_iter().chain(list.into_iter().flatten());
    output.iter_mut().zip(bytes).for_each(|(to, from)| *to = from);
    Ok(())
}

fn listed(mac: Mac) -> [u8; LISTED] {
    let [a, b, c, d, e, f] = mac;
    [0, 0, a, b, c, d, e, f]
}

/// Executes MODIFY_NIC_VPORT_CONTEXT. `list` has the addresses that it sets.
pub(in crate::cmd) fn modify(
    path: &mut Datapath,
    context: u32,
    command: ModifyNicVportContext,
    list: &[u8],
) -> CmdResult<ModifyNicVportContextOut> {
    own_function(path, context, command.other_vport)?;
    let given = command.context;
    // Which frames are looped back depends on the TIRs, which headers are inline is not restricted, and no change is
    // reported to the driver that makes it.
    let unsupported = command.sets_uc_local_lb || command.sets_mc_local_lb || command.sets_min_inline;
    require(!unsupported && !command.sets_port_guid, Reason::VportField)?;
    require(!command.sets_mtu || given.mtu <= MAX_MTU, Reason::VportField)?;
    let addresses = command.sets_addresses.then(|| address_list(&given, list)).transpose()?;
    let vport = &mut path.objects.ethernet.vport;
    vport.owner = Some(context);
    if command.sets_mtu {
        vport.mtu = Some(given.mtu);
    }
    if command.sets_promisc {
        vport.all_unicast = given.promisc_uc;
        vport.all_multicast = given.promisc_mc;
        vport.promiscuous = given.promisc_all;
    }
    if command.sets_permanent_address {
        vport.address = Some(given.permanent_address);
    }
    if command.sets_node_guid {
        vport.node_guid = Some(given.node_guid);
    }
    if command.sets_roce {
        vport.roce = given.roce_en;
    }
    match (addresses, given.allowed_list_type) {
        (Some(list), ListType::UNICAST) => vport.unicast = list.iter().map(mac).collect(),
        (Some(list), ListType::MULTICAST) => vport.multicast = list.iter().map(mac).collect(),
        (Some(list), _) => {
            vport.vlans = list.iter().map(|entry| u64::from_be_bytes(*entry) as u16 & 0xfff).collect()
        }
        (None, _) => {}
    }
    Ok(ModifyNicVportContextOut {})
}

fn mac(listed: &[u8; LISTED]) -> Mac {
    let [_, _, mac @ ..] = *listed;
    mac
}

/// Returns the list of addresses that follows a port context.
fn address_list<'c>(given: &NicVportContext, list: &'c [u8]) -> CmdResult<&'c [[u8; LISTED]]> {
    let most = match given.allowed_list_type {
        ListType::UNICAST | ListType::MULTICAST => 1 << LOG_MAX_ADDRESSES,
        ListType::VLAN => 1 << LOG_MAX_VLANS,
        _ => 0,
    };
    let size = usize::from(given.allowed_list_size);
    require(size <= most && most != 0, Reason::AddressList)?;
    let short: CmdError = refuse(CmdStatus::BAD_INP_LEN, Reason::InputLength);
    list.as_chunks().0.get(..size).ok_or(short)
}

pub(in crate::cmd) fn counters(
    path: &mut Datapath,
    context: u32,
    command: QueryVportCounter,
) -> CmdResult<QueryVportCounterOut> {
    own_function(path, context, command.other_vport)?;
    let counters = &mut path.objects.ethernet.vport.counters;
    let counts = *counters;
    if command.clear {
        *counters = QueryVportCounterOut::default();
    }
    Ok(counts)
}

/// Executes SET_ROCE_ADDRESS. An address of zero clears the entry.
pub(in crate::cmd) fn set_address(
    path: &mut Datapath,
    context: u32,
    command: SetRoceAddress,
) -> CmdResult<SetRoceAddressOut> {
    own_function(path, context, false)?;
    require(command.roce_address_index < ROCE_ADDRESSES, Reason::Index)?;
    let vport = &mut path.objects.ethernet.vport;
    vport.owner = Some(context);
    let (index, address) = (command.roce_address_index, command.address);
    match address.source_l3_address == [0; 16] {
        true => drop(vport.addresses.remove(&index)),
        false => drop(vport.addresses.insert(index, address)),
    }
    Ok(SetRoceAddressOut {})
}

/// Returns an entry of the table of RoCE addresses of a function.
pub(in crate::cmd) fn address(path: &Datapath, index: u16) -> CmdResult<RoceAddr> {
    require(index < ROCE_ADDRESSES, Reason::Index)?;
    Ok(path.objects.ethernet.vport.addresses.get(&index).copied().unwrap_or_default())
}
