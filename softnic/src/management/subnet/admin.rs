//! Responses of subnet administration, by which programs query records of the subnet (InfiniBand Architecture
//! Specification, volume 1, chapter 15).
//!
//! In this model, subnet administration is in the switch. A list of records is longer than a MAD. A program receives it
//! reassembled, as from the kernel.

use super::agent::{self, Query};
use super::group;
use super::{Node, SM_LID, SUBNET_PREFIX, Subnet};
use crate::management::MAD;
use crate::management::mad::{admin_attribute, at, component_mask, method, status, subnet_attribute};
use crate::roce::DEFAULT_PKEY;

/// Offset in a MAD of the RMPP header, for messages of several MADs.
pub(crate) const RMPP: usize = 24;
const RECORD_SIZE: usize = 44;

/// Capability mask of subnet administration: optional records, and the comparison of single capability bits.
const CAPABILITIES: u16 = 1 << 8 | 1 << 13;
/// Response time of subnet administration, as an InfiniBand code: 4.096 us times 2 to this power.
const RESPONSE_TIME: u8 = 18;
/// Number of LIDs that a block of a forwarding table covers.
const BLOCK: usize = 64;
const NO_PORT: u8 = 0xff;
/// Flag of a path record: the path works in both directions.
const REVERSIBLE: u8 = 0x80;
const MTU: u8 = 0x80 | 5;
const RATE: u8 = 0x80 | 21;
const LIFETIME: u8 = 0x80 | RESPONSE_TIME;

/// A component of a record: its bit in the mask, its offset and its length.
type Component = (u32, usize, usize);

/// The capability mask of PortInfoRecord.
const PORT_CAPABILITIES: Component = (7, 4 + 0x14, 4);

/// Returns the response to a query of subnet administration, or `None` if the MAD is itself a response.
pub(super) fn answer(subnet: &Subnet, mad: &[u8; MAD]) -> Option<Vec<u8>> {
    let word = |at: usize| u16::from_be_bytes([mad[at], mad[at + 1]]);
    let mut answer = mad[..at::ADMIN_DATA].to_vec();
    answer[at::METHOD] = method::response(mad[at::METHOD]);
    answer[RMPP..RECORD_SIZE + 4].fill(0);
    let found = match mad[at::METHOD] {
        // Drop responses, which are for agents of the subnet.
        method if method & 0x80 != 0 => return None,
        method::GET | method::GET_TABLE => records(subnet, word(at::ATTRIBUTE), mad),
        method::SET | method::DELETE if word(at::ATTRIBUTE) == admin_attribute::MULTICAST_MEMBER => {
            group::record(mad).map(|record| vec![record])
        }
        _ => Err(status::UNSUPPORTED_METHOD),
    };
    let is_list = mad[at::METHOD] == method::GET_TABLE;
    let found = match found {
        Ok(records) if is_list || records.len() == 1 => Ok(records),
        Ok(records) if records.is_empty() => Err(status::NO_RECORDS),
        Ok(_) => Err(status::TOO_MANY_RECORDS),
        Err(status) => Err(status),
    };
    match found {
        Ok(records) => {
            let size = records.first().map_or(0, |record| record.len() / 8);
            answer[RECORD_SIZE..][..2].copy_from_slice(&(size as u16).to_be_bytes());
            answer.extend(records.concat());
        }
        Err(status) => answer[at::STATUS..][..2].copy_from_slice(&status.to_be_bytes()),
    }
    if is_list {
        long_message(&mut answer);
    } else {
        answer.resize(MAD, 0);
    }
    Some(answer)
}

/// Fields of the RMPP header: version, type and flags.
const VERSION: u8 = 1;
const DATA_SEGMENT: u8 = 1;
const ACTIVE: u8 = 1;
const FIRST: u8 = 2;
const LAST: u8 = 4;

/// Writes the RMPP header of one of several segments, which has `len` bytes of data. The first segment has that of the
/// whole message.
pub(crate) fn set_segment(mad: &mut [u8; MAD], number: usize, count: usize, len: usize) {
    if number == 0 {
        return;
    }
    let (flags, payload) = match number + 1 == count {
        true => (ACTIVE | LAST, (len + at::ADMIN_DATA - RMPP - 12) as u32),
        false => (ACTIVE, 0),
    };
    mad[RMPP + 2] = flags;
    mad[RMPP + 4..][..4].copy_from_slice(&(number as u32 + 1).to_be_bytes());
    mad[RMPP + 8..][..4].copy_from_slice(&payload.to_be_bytes());
}

/// Writes the RMPP header of a response that may be longer than a MAD, as in its first segment.
fn long_message(answer: &mut [u8]) {
    let segments = (answer.len() - at::ADMIN_DATA).div_ceil(MAD - at::ADMIN_DATA).max(1);
    let flags = ACTIVE | FIRST | if segments == 1 { LAST } else { 0 };
    // The payload length counts the SA header repeated in each segment.
    let payload = answer.len() - at::ADMIN_DATA + segments * (at::ADMIN_DATA - RMPP - 12);
    answer[RMPP..][..4].copy_from_slice(&[VERSION, DATA_SEGMENT, flags, 0]);
    answer[RMPP + 4..][..4].copy_from_slice(&1u32.to_be_bytes());
    answer[RMPP + 8..][..4].copy_from_slice(&(payload as u32).to_be_bytes());
}

/// Returns the records that match a query, or a status. All have the same size, a multiple of eight bytes.
fn records(subnet: &Subnet, attribute: u16, mad: &[u8; MAD]) -> Result<Vec<Vec<u8>>, u16> {
    const LID: Component = (0, 0, 2);
    let (all, components): (Vec<Vec<u8>>, &[Component]) = match attribute {
        admin_attribute::CLASS_PORT_INFO => (vec![class_port_info()], &[]),
        admin_attribute::NODE => (nodes(subnet).map(|node| node_record(subnet, node)).collect(), &[LID]),
        admin_attribute::PORT_INFO => (port_records(subnet), &[LID, (1, 2, 1), PORT_CAPABILITIES]),
        admin_attribute::SWITCH_INFO => {
            let info = attribute_of(subnet, Node::Switch, subnet_attribute::SWITCH_INFO, 0);
            (vec![[&lid(SM_LID)[..], &info[..20]].concat()], &[LID])
        }
        admin_attribute::FORWARDING => (forwarding_records(subnet), &[LID, (1, 2, 2)]),
        admin_attribute::SM_INFO => {
            let info = attribute_of(subnet, Node::Switch, subnet_attribute::SM_INFO, 0);
            (vec![[&lid(SM_LID)[..], &info[..28]].concat()], &[LID])
        }
        admin_attribute::LINK => (link_records(subnet), &[LID, (1, 2, 1), (2, 3, 1), (3, 4, 2)]),
        admin_attribute::GUID_INFO => {
            let record = |node| {
                let guids = attribute_of(subnet, node, subnet_attribute::GUID_INFO, 0);
                [&lid(lid_of(subnet, node))[..], &[0; 4], &guids].concat()
            };
            (nodes(subnet).map(record).collect(), &[LID, (1, 2, 1)])
        }
        admin_attribute::PKEY_TABLE => (key_records(subnet), &[LID, (1, 2, 2), (2, 4, 1)]),
        admin_attribute::PATH => {
            (path_records(subnet), &[(2, 8, 16), (3, 24, 16), (4, 40, 2), (5, 42, 2), (13, 50, 2)])
        }
        // There are no registered services or trap subscriptions, and no list of group members.
        admin_attribute::MULTICAST_FORWARDING
        | admin_attribute::SERVICE
        | admin_attribute::MULTICAST_MEMBER
        | admin_attribute::INFORM_INFO => (vec![], &[]),
        _ => return Err(status::UNSUPPORTED_ATTRIBUTE),
    };
    let mask = component_mask(mad);
    let wanted = &mad[at::ADMIN_DATA..];
    let matches = |record: &Vec<u8>| {
        components.iter().filter(|(bit, ..)| mask & 1 << bit != 0).all(|component| {
            let (_, start, len) = *component;
            let [wanted, found] = [&wanted[start..start + len], &record[start..start + len]];
            if *component == PORT_CAPABILITIES && mad[at::MODIFIER] & 0x80 != 0 {
                return wanted.iter().zip(found).all(|(wanted, found)| found & wanted == *wanted);
            }
            wanted == found
        })
    };
    Ok(all.into_iter().filter(matches).collect())
}

/// Returns the nodes with a LID.
fn nodes(subnet: &Subnet) -> impl Iterator<Item = Node> {
    let adapters = (0..subnet.adapters.len()).filter(|index| subnet.adapters[*index].lid != 0);
    std::iter::once(Node::Switch).chain(adapters.map(Node::Adapter))
}

fn lid_of(subnet: &Subnet, node: Node) -> u16 {
    match node {
        Node::Switch => SM_LID,
        Node::Adapter(index) => subnet.adapters[index].lid,
    }
}

/// Encodes a LID and two bytes that are reserved in most records.
fn lid(lid: u16) -> [u8; 4] {
    let [high, low] = lid.to_be_bytes();
    [high, low, 0, 0]
}

/// Returns an attribute from the node's subnet management agent.
fn attribute_of(subnet: &Subnet, node: Node, attribute: u16, modifier: u32) -> [u8; 64] {
    let entry = if node == Node::Switch { 0 } else { 1 };
    agent::attribute(subnet, &Query { node, entry, directed: false }, attribute, modifier).unwrap_or([0; 64])
}

fn class_port_info() -> Vec<u8> {
    let mut info = vec![0; 72];
    info[..2].copy_from_slice(&[1, 2]);
    info[2..4].copy_from_slice(&CAPABILITIES.to_be_bytes());
    info[7] = RESPONSE_TIME;
    info
}

fn node_record(subnet: &Subnet, node: Node) -> Vec<u8> {
    let info = attribute_of(subnet, node, subnet_attribute::NODE_INFO, 0);
    let description = attribute_of(subnet, node, subnet_attribute::NODE_DESCRIPTION, 0);
    [&lid(lid_of(subnet, node))[..], &info[..40], &description, &[0; 4]].concat()
}

fn port_records(subnet: &Subnet) -> Vec<Vec<u8>> {
    let record = |node, port: u8| {
        let info = attribute_of(subnet, node, subnet_attribute::PORT_INFO, port.into());
        let [high, low] = lid_of(subnet, node).to_be_bytes();
        [&[high, low, port, 0][..], &info, &[0; 4]].concat()
    };
    let ports = |node| match node {
        Node::Switch => 0..=subnet.adapters.len() as u8,
        Node::Adapter(_) => 1..=1,
    };
    nodes(subnet).flat_map(|node| ports(node).map(move |port| record(node, port))).collect()
}

fn forwarding_records(subnet: &Subnet) -> Vec<Vec<u8>> {
    let exit = |lid: usize| match nodes(subnet).find(|node| usize::from(lid_of(subnet, *node)) == lid) {
        Some(Node::Switch) => 0,
        Some(Node::Adapter(index)) => index as u8 + 1,
        None => NO_PORT,
    };
    let last = nodes(subnet).map(|node| lid_of(subnet, node)).max().unwrap_or(0);
    let record = |block: usize| {
        let [high, low] = SM_LID.to_be_bytes();
        let mut record = vec![high, low, (block >> 8) as u8, block as u8, 0, 0, 0, 0];
        record.extend((block * BLOCK..(block + 1) * BLOCK).map(exit));
        record
    };
    (0..=usize::from(last) / BLOCK).map(record).collect()
}

fn link_records(subnet: &Subnet) -> Vec<Vec<u8>> {
    let record = |from: u16, from_port: u8, to_port: u8, to: u16| {
        let [[a, b], [c, d]] = [from.to_be_bytes(), to.to_be_bytes()];
        vec![a, b, from_port, to_port, c, d, 0, 0]
    };
    let links = |node| match node {
        Node::Switch => vec![],
        Node::Adapter(index) => {
            let (own, port) = (lid_of(subnet, node), index as u8 + 1);
            vec![record(SM_LID, port, 1, own), record(own, 1, port, SM_LID)]
        }
    };
    nodes(subnet).flat_map(links).collect()
}

fn key_records(subnet: &Subnet) -> Vec<Vec<u8>> {
    let record = |node| {
        let [high, low] = lid_of(subnet, node).to_be_bytes();
        let port = if node == Node::Switch { 0 } else { 1 };
        let keys = attribute_of(subnet, node, subnet_attribute::PKEY_TABLE, 0);
        [&[high, low, 0, 0, port, 0, 0, 0][..], &keys].concat()
    };
    nodes(subnet).map(record).collect()
}

/// Returns the paths between all pairs of nodes, including a node and itself.
fn path_records(subnet: &Subnet) -> Vec<Vec<u8>> {
    let gid = |node| [SUBNET_PREFIX, agent::guid(subnet, node)].concat();
    let record = |from, to| {
        let [from_lid, to_lid] = [from, to].map(|node| lid_of(subnet, node).to_be_bytes());
        [
            &[0; 8][..],
            &gid(to),
            &gid(from),
            &to_lid,
            &from_lid,
            // GRH fields and traffic class.
            &[0; 5],
            &[REVERSIBLE],
            &DEFAULT_PKEY.to_be_bytes(),
            &[0, 0, MTU, RATE, LIFETIME],
            &[0; 7],
        ]
        .concat()
    };
    nodes(subnet).flat_map(|from| nodes(subnet).map(move |to| record(from, to))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::management::mad::class;
    use crate::management::subnet::{answer, tests::subnet};

    /// Queries records by a component's value. Returns the status and the records.
    fn ask(method: u8, attribute: u16, component: Option<Component>, value: &[u8]) -> (u16, Vec<Vec<u8>>) {
        let mut mad = [0; MAD];
        (mad[at::CLASS], mad[at::METHOD]) = (class::ADMINISTRATION, method);
        mad[at::ATTRIBUTE..][..2].copy_from_slice(&attribute.to_be_bytes());
        if let Some((bit, start, len)) = component {
            mad[at::ADMIN_MASK..][..8].copy_from_slice(&(1u64 << bit).to_be_bytes());
            mad[at::ADMIN_DATA + start..][..len].copy_from_slice(value);
        }
        let subnet = subnet(true);
        assert_eq!(answer(&subnet, 0, 0x0102, &mad), None, "a device has no administration");
        let answer = super::super::answer(&subnet, 0, SM_LID, &mad).unwrap();
        assert_eq!(answer[at::METHOD], method::response(method));
        let word = |at: usize| u16::from_be_bytes([answer[at], answer[at + 1]]);
        let size = 8 * usize::from(word(RECORD_SIZE));
        let records = if size == 0 {
            vec![]
        } else {
            answer[at::ADMIN_DATA..].chunks(size).map(<[u8]>::to_vec).collect()
        };
        (word(at::STATUS), records)
    }

    #[test]
    fn queries_compare_components() {
        const GID: Component = (2, 8, 16);
        let table = |attribute, component, value: &[u8]| {
            let (status, records) = ask(method::GET_TABLE, attribute, component, value);
            assert_eq!(status, 0);
            records
        };
        let lids = |records: Vec<Vec<u8>>| -> Vec<u16> {
            records.iter().map(|record| u16::from_be_bytes([record[0], record[1]])).collect()
        };
        assert_eq!(lids(table(admin_attribute::NODE, None, &[])), [1, 0x0102, 0x0103]);
        assert_eq!(lids(table(admin_attribute::NODE, Some((0, 0, 2)), &[1, 3])), [0x0103]);
        assert_eq!(lids(table(admin_attribute::NODE, Some((0, 0, 2)), &[9, 9])), []);
        assert_eq!(lids(table(admin_attribute::PORT_INFO, Some((1, 2, 1)), &[2])), [1]);
        let gid = [SUBNET_PREFIX, subnet(true).adapters[1].guid.to_be_bytes()].concat();
        let paths = table(admin_attribute::PATH, Some(GID), &gid);
        assert_eq!(paths.len(), 3, "from each node");
        assert!(paths.iter().all(|path| path[40..42] == [1, 3]));
        // Block 4 has the LIDs from 256 on.
        let block = &table(admin_attribute::FORWARDING, Some((1, 2, 2)), &[0, 4])[0];
        assert_eq!(block[8..13], [NO_PORT, NO_PORT, 1, 2, NO_PORT]);
    }

    #[test]
    fn a_single_record_must_be_the_only_one() {
        let get = |component, value: &[u8]| ask(method::GET, admin_attribute::NODE, component, value).0;
        assert_eq!(get(None, &[]), status::TOO_MANY_RECORDS);
        assert_eq!(get(Some((0, 0, 2)), &[1, 2]), 0);
        assert_eq!(get(Some((0, 0, 2)), &[9, 9]), status::NO_RECORDS);
        assert_eq!(ask(method::SET, admin_attribute::NODE, None, &[]).0, status::UNSUPPORTED_METHOD);
        assert_eq!(ask(method::GET, 0x36, None, &[]).0, status::UNSUPPORTED_ATTRIBUTE);
    }

    #[test]
    fn a_long_answer_starts_like_its_first_segment() {
        let mut answer = vec![0; at::ADMIN_DATA + 3 * 112];
        long_message(&mut answer);
        // Two segments of 200 bytes, each with 20 more for the SA header.
        assert_eq!(answer[RMPP..][..12], [1, 1, 3, 0, 0, 0, 0, 1, 0, 0, 1, 120]);
        let mut answer = vec![0; at::ADMIN_DATA];
        long_message(&mut answer);
        assert_eq!(answer[RMPP..][..12], [1, 1, 7, 0, 0, 0, 0, 1, 0, 0, 0, 20]);
    }
}
