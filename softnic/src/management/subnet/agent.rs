//! Responses of the nodes in the subnet: of their agents for subnet and performance management, and of the subnet
//! manager.

use super::{Node, SM_LID, SUBNET_PREFIX, Subnet};
use crate::management::MAD;
use crate::management::mad::{
    HAS_EXTENDED_SPEEDS, PKEYS_PER_BLOCK, at, class, method, performance_attribute, status, subnet_attribute,
};
use crate::model::{FunctionType, LinkSpeed};
use crate::report::Stats;

/// GUID of the switch.
const SWITCH_GUID: [u8; 8] = [0x52, 0x4d, 0x00, 0xff, 0xfe, 0x01, 0x00, 0x00];
/// PCI device ID of a Quantum switch.
const SWITCH_DEVICE: u16 = 0xd2f0;
/// Vendor of all nodes: the Mellanox OUI.
const VENDOR: [u8; 3] = [0x00, 0x02, 0xc9];
/// Capability bit of a port whose node runs the subnet manager.
const IS_SM: u32 = 1 << 1;
/// Capability bit of performance management: extended counters are supported.
const HAS_EXTENDED_COUNTERS: u16 = 1 << 9;

/// Where and how a MAD has arrived.
pub(super) struct Query {
    pub(super) node: Node,
    /// Port of the node at which the MAD has arrived.
    pub(super) entry: u8,
    pub(super) directed: bool,
}

/// Data area of a response, in which fields are set by their byte offset.
struct Data([u8; MAD - at::DATA]);

impl Data {
    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
    }
}

/// Returns the response of a node to a MAD, or `None` if the node ignores it. Only the method Get is supported.
pub(super) fn answer(subnet: &Subnet, query: &Query, mad: &[u8; MAD]) -> Option<[u8; MAD]> {
    let word = |at: usize| u16::from_be_bytes([mad[at], mad[at + 1]]);
    let modifier = u32::from_be_bytes([0, 1, 2, 3].map(|i| mad[at::MODIFIER + i]));
    // Drop responses, which are for agents of other nodes.
    if mad[at::METHOD] & 0x80 != 0 {
        return None;
    }
    let mut data = Data([0; MAD - at::DATA]);
    data.put(0, &mad[at::DATA..]);
    let filled = match (mad[at::METHOD], mad[at::CLASS]) {
        (method::GET, class::PERFORMANCE) => performance(subnet, query, word(at::ATTRIBUTE), &mut data),
        (method::GET, class::SUBNET | class::SUBNET_DIRECTED) => {
            // A directed-route MAD has its paths after 64 bytes of data.
            let attribute = attribute(subnet, query, word(at::ATTRIBUTE), modifier);
            data.put(0, &attribute.unwrap_or([0; 64]));
            attribute.map(drop)
        }
        (_, class::PERFORMANCE | class::SUBNET | class::SUBNET_DIRECTED) => Err(status::UNSUPPORTED_METHOD),
        _ => return None,
    };
    let mut answer = *mad;
    answer[at::DATA..].copy_from_slice(&data.0);
    answer[at::METHOD] = method::GET_RESPONSE;
    let mut code = filled.err().unwrap_or(0);
    if query.directed {
        code |= status::RESPONSE;
        answer[at::HOP_POINTER] = 0;
    }
    answer[at::STATUS..at::STATUS + 2].copy_from_slice(&code.to_be_bytes());
    Some(answer)
}

/// Fills an attribute of subnet management.
fn subnet(subnet: &Subnet, query: &Query, attribute: u16, modifier: u32, data: &mut Data) -> Result<(), u16> {
    let Query { node, entry, .. } = *query;
    match (attribute, node) {
        (subnet_attribute::NODE_DESCRIPTION, _) => {
            let text = description(subnet, node).as_bytes();
            data.put(0, &text[..text.len().min(63)]);
        }
        (subnet_attribute::NODE_INFO, _) => node_info(subnet, node, entry, data),
        (subnet_attribute::PORT_INFO, Node::Switch) => {
            let port = u8::try_from(modifier).map_err(|_| status::INVALID_VALUE)?;
            switch_port(subnet, port, entry, data)?;
        }
        (subnet_attribute::PORT_INFO, Node::Adapter(index)) if modifier <= 1 => {
            adapter_port(subnet, index, data);
        }
        (subnet_attribute::SWITCH_INFO, Node::Switch) => {
            // Capacity of the forwarding tables.
            data.put(0, &0xc000u16.to_be_bytes());
            data.put(4, &0x4000u16.to_be_bytes());
        }
        (subnet_attribute::GUID_INFO, _) if modifier == 0 => data.put(0, &guid(subnet, node)),
        (subnet_attribute::PKEY_TABLE, _) => {
            let block = modifier as usize & 0xffff;
            let keys = subnet.pkeys.iter().skip(block * PKEYS_PER_BLOCK).take(PKEYS_PER_BLOCK);
            keys.enumerate().for_each(|(i, key)| data.put(2 * i, &key.to_be_bytes()));
        }
        (subnet_attribute::SM_INFO, Node::Switch) => {
            data.put(0, &SWITCH_GUID);
            // Activity count, priority and state (master).
            data.put(16, &1u32.to_be_bytes());
            data.put(20, &[0x03]);
        }
        (subnet_attribute::PORT_INFO | subnet_attribute::GUID_INFO, _) => return Err(status::INVALID_VALUE),
        _ => return Err(status::UNSUPPORTED_ATTRIBUTE),
    }
    Ok(())
}

/// Returns an attribute of subnet management, or the status of a refusal.
pub(super) fn attribute(
    subnet: &Subnet,
    query: &Query,
    attribute: u16,
    modifier: u32,
) -> Result<[u8; 64], u16> {
    let mut data = Data([0; MAD - at::DATA]);
    self::subnet(subnet, query, attribute, modifier, &mut data)?;
    Ok(std::array::from_fn(|i| data.0[i]))
}

pub(super) fn guid(subnet: &Subnet, node: Node) -> [u8; 8] {
    match node {
        Node::Switch => SWITCH_GUID,
        Node::Adapter(index) => subnet.adapters[index].guid.to_be_bytes(),
    }
}

fn description(subnet: &Subnet, node: Node) -> &str {
    match node {
        Node::Switch => "rushmem switch",
        Node::Adapter(index) => &subnet.adapters[index].description,
    }
}

fn node_info(subnet: &Subnet, node: Node, entry: u8, data: &mut Data) {
    let model = subnet.model;
    let (kind, ports, device) = match node {
        Node::Adapter(_) => (1, 1, model.device_id(FunctionType::Physical)),
        Node::Switch => (2, subnet.adapters.len() as u8, SWITCH_DEVICE),
    };
    data.put(0, &[1, 1, kind, ports]);
    for at in [4, 12, 20] {
        data.put(at, &guid(subnet, node));
    }
    data.put(28, &subnet.pkey_entries.to_be_bytes());
    data.put(30, &device.to_be_bytes());
    data.put(32, &u32::from(model.firmware()[0]).to_be_bytes());
    data.put(36, &[entry]);
    data.put(37, &VENDOR);
}

/// Fills the fields of PortInfo that describe a link of 4 lanes, up or down.
fn link(speed: LinkSpeed, is_up: bool, port: u8, data: &mut Data) {
    data.put(0x1c, &[port]);
    // Link width enabled, supported and active: 4 lanes.
    data.put(0x1d, &[2, 2, 2]);
    // Link speed SDR, overridden by extended speeds, and the port state.
    data.put(0x20, &[if is_up { 0x14 } else { 0x11 }]);
    // Physical state, and default state after link down: polling.
    data.put(0x21, &[if is_up { 0x52 } else { 0x22 }]);
    data.put(0x23, &[0x11]);
    // Neighbor MTU: 4096 bytes.
    data.put(0x24, &[0x50]);
    // Virtual lanes: one.
    data.put(0x25, &[0x10]);
    data.put(0x29, &[0x05]);
    data.put(0x2b, &[0x10]);
    // Extended speeds active, supported and enabled.
    let active = if is_up { speed.extended << 4 } else { 0 };
    data.put(0x3e, &[active | speed.extended, speed.extended]);
}

/// Fills PortInfo of an adapter.
fn adapter_port(subnet: &Subnet, index: usize, data: &mut Data) {
    let adapter = &subnet.adapters[index];
    let sm_lid = if subnet.has_switch { SM_LID } else { 0 };
    link(subnet.model.speed(), subnet.is_up(index), 1, data);
    data.put(0x08, &SUBNET_PREFIX);
    data.put(0x10, &adapter.lid.to_be_bytes());
    data.put(0x12, &sm_lid.to_be_bytes());
    data.put(0x14, &adapter.capabilities.to_be_bytes());
    data.put(0x32, &[subnet.guid_entries]);
}

/// Fills PortInfo of a switch port. Port 0 is the switch itself.
fn switch_port(subnet: &Subnet, port: u8, entry: u8, data: &mut Data) -> Result<(), u16> {
    let speed = subnet.model.speed();
    match port.checked_sub(1) {
        None => {
            link(speed, true, entry, data);
            data.put(0x08, &SUBNET_PREFIX);
            data.put(0x10, &SM_LID.to_be_bytes());
            data.put(0x12, &SM_LID.to_be_bytes());
            data.put(0x14, &(IS_SM | HAS_EXTENDED_SPEEDS).to_be_bytes());
        }
        Some(index) if usize::from(index) < subnet.adapters.len() => {
            link(speed, subnet.is_up(index.into()), entry, data);
        }
        Some(_) => return Err(status::INVALID_VALUE),
    }
    Ok(())
}

/// Fills an attribute of performance management. The counters are those of the adapter; the switch counts nothing.
fn performance(subnet: &Subnet, query: &Query, attribute: u16, data: &mut Data) -> Result<(), u16> {
    const ALL_PORTS: u8 = 0xff;
    if attribute == performance_attribute::CLASS_PORT_INFO {
        data.put(0, &[1, 1]);
        data.put(2, &HAS_EXTENDED_COUNTERS.to_be_bytes());
        return Ok(());
    }
    let port = data.0[1];
    let stats: Stats = match query.node {
        Node::Adapter(index) if port == 1 || port == ALL_PORTS => subnet.adapters[index].stats,
        Node::Switch if port == ALL_PORTS || usize::from(port) <= subnet.adapters.len() => Default::default(),
        _ => return Err(status::INVALID_VALUE),
    };
    let short = |value: u64| u32::try_from(value).unwrap_or(u32::MAX).to_be_bytes();
    let word = |value: u64| u16::try_from(value).unwrap_or(u16::MAX).to_be_bytes();
    // Data counters are in units of four bytes.
    let [sent, received] = [stats.bytes_sent / 4, stats.bytes_received / 4];
    match attribute {
        performance_attribute::PORT_COUNTERS => {
            data.put(8, &word(stats.dropped));
            data.put(14, &word(stats.send_failures));
            let counters = [sent, received, stats.packets_sent, stats.packets_received];
            counters.into_iter().enumerate().for_each(|(i, value)| data.put(24 + 4 * i, &short(value)));
        }
        performance_attribute::PORT_COUNTERS_EXTENDED => {
            let packets = [stats.packets_sent, stats.packets_received];
            let counters = [[sent, received], packets, packets].concat();
            counters.into_iter().enumerate().for_each(|(i, value)| data.put(8 + 8 * i, &value.to_be_bytes()));
        }
        _ => return Err(status::UNSUPPORTED_ATTRIBUTE),
    }
    Ok(())
}
