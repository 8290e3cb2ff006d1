//! Datagrams to the subnet itself: to the subnet manager, and along directed routes. No adapter has their address, so
//! each adapter answers its own, as the switch at its port would.
//!
//! The switch of this model has a single port, since no adapter knows all others. LIDs and GUIDs follow from addresses,
//! so it describes paths to adapters that it does not list.

use super::datapath::Datapath;
use crate::address::{PERMISSIVE_LID, ip_of_guid, ip_of_lid, lid_of, port_guid};
use crate::management::MAD;
use crate::management::mad::{admin_attribute, at, class, component_mask};
use crate::management::subnet::{self, Adapter, SM_LID, SUBNET_PREFIX, Subnet};
use crate::report::Stats;
use std::net::{Ipv4Addr, SocketAddrV4};

/// Number of entries of the tables of GUIDs and P_Keys, encoded as 0 in the capabilities.
pub(crate) const GUIDS: u8 = 8;
pub(crate) const PKEYS: u16 = 128;

/// Whether a management datagram to this LID is for the switch.
pub(super) fn is_for_switch(lid: u16) -> bool {
    lid == SM_LID || lid == PERMISSIVE_LID
}

/// Returns the adapter as the function of a context sees it.
pub(crate) fn own(path: &Datapath, context: u32) -> Adapter {
    let health = path.failures.health;
    let has_lid = !health.port_is_down && !health.address_is_lost;
    let ip = *path.address.ip();
    Adapter {
        description: path.config.name.clone(),
        guid: port_guid(ip),
        lid: lid_of(ip).filter(|_| has_lid).unwrap_or(0),
        is_up: !health.port_is_down,
        capabilities: path.objects.buses.get(&context).map_or(0, |bus| bus.capabilities),
        stats: path.report.stats,
    }
}

/// Returns the subnet as the function of a context sees it, with the adapter as its only node besides the switch.
pub(crate) fn of(path: &Datapath, context: u32) -> Subnet {
    Subnet {
        adapters: vec![own(path, context)],
        has_switch: true,
        model: path.config.model,
        pkeys: path.config.pkeys.clone(),
        pkey_entries: PKEYS,
        guid_entries: GUIDS,
    }
}

/// Returns the datagrams with which the switch answers one that QP 0 or 1, here `qpn`, has sent to `lid`.
pub(super) fn answer(path: &Datapath, qpn: u32, lid: u16, mad: &[u8; MAD]) -> Vec<[u8; MAD]> {
    let Some(qp) = path.objects.qps.get(qpn) else { return Vec::new() };
    let mut subnet = of(path, qp.owner);
    subnet.adapters.extend(destination(mad).filter(|other| other.guid != subnet.adapters[0].guid));
    subnet::answer(&subnet, 0, lid, mad).map_or(Vec::new(), |answer| segments(&answer))
}

/// Returns the address of the subnet manager.
pub(super) fn manager(own: SocketAddrV4) -> SocketAddrV4 {
    SocketAddrV4::new(ip_of_lid(SM_LID).unwrap_or(Ipv4Addr::UNSPECIFIED), own.port())
}

/// Returns the destination of the path that a query asks for.
fn destination(mad: &[u8; MAD]) -> Option<Adapter> {
    const DGID: (u64, usize) = (1 << 2, 64);
    const DLID: (u64, usize) = (1 << 4, 96);
    let attribute = u16::from_be_bytes([mad[at::ATTRIBUTE], mad[at::ATTRIBUTE + 1]]);
    if (mad[at::CLASS], attribute) != (class::ADMINISTRATION, admin_attribute::PATH) {
        return None;
    }
    let mask = component_mask(mad);
    let ip = if mask & DGID.0 != 0 {
        let (prefix, guid) = mad[DGID.1..].first_chunk::<16>()?.split_at(8);
        let guid = u64::from_be_bytes(*guid.first_chunk()?);
        ip_of_guid(guid).filter(|_| prefix == SUBNET_PREFIX)
    } else if mask & DLID.0 != 0 {
        ip_of_lid(u16::from_be_bytes(*mad[DLID.1..].first_chunk()?))
    } else {
        None
    };
    ip.filter(|ip| lid_of(*ip) != Some(SM_LID)).map(|ip| Adapter {
        description: String::new(),
        guid: port_guid(ip),
        lid: lid_of(ip).unwrap_or(0),
        is_up: true,
        capabilities: 0,
        stats: Stats::default(),
    })
}

/// Divides an answer of subnet administration into the MADs that carry it.
fn segments(answer: &[u8]) -> Vec<[u8; MAD]> {
    let (header, data) = answer.split_at(answer.len().min(at::ADMIN_DATA));
    let room = MAD - at::ADMIN_DATA;
    let count = data.len().div_ceil(room).max(1);
    let segment = |number: usize| {
        let part = &data[data.len().min(number * room)..data.len().min((number + 1) * room)];
        let mut mad = [0; MAD];
        mad[..header.len()].copy_from_slice(header);
        mad[header.len()..][..part.len()].copy_from_slice(part);
        if count > 1 {
            subnet::set_segment(&mut mad, number, count, part.len());
        }
        mad
    };
    (0..count).map(segment).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::management::subnet::RMPP;

    #[test]
    fn a_long_answer_takes_several_datagrams() {
        let answer: Vec<u8> = (0..at::ADMIN_DATA + 450).map(|i| i as u8).collect();
        let mads = segments(&answer);
        assert_eq!(mads.len(), 3);
        let data: Vec<u8> = mads.iter().flat_map(|mad| mad[at::ADMIN_DATA..].to_vec()).collect();
        assert_eq!(data[..450], answer[at::ADMIN_DATA..]);
        let rmpp = |mad: &[u8; MAD]| (mad[RMPP + 2] & 7, mad[RMPP + 7], mad[RMPP + 11]);
        assert_eq!([rmpp(&mads[1]), rmpp(&mads[2])], [(1, 2, 0), (5, 3, 70)]);
        assert_eq!(segments(&[1; MAD]), [[1; MAD]]);
    }

    #[test]
    fn a_path_leads_to_an_adapter_that_is_not_listed() {
        let mut mad = [0; MAD];
        mad[at::CLASS] = class::ADMINISTRATION;
        mad[at::ATTRIBUTE + 1] = admin_attribute::PATH as u8;
        mad[55] = 1 << 2;
        mad[64..72].copy_from_slice(&SUBNET_PREFIX);
        mad[72..80].copy_from_slice(&port_guid([127, 64, 3, 4].into()).to_be_bytes());
        assert_eq!(destination(&mad).map(|adapter| adapter.lid), Some(0x0304));
        mad[72] ^= 1;
        assert!(destination(&mad).is_none(), "the GUID of something else");
        mad[55] = 1 << 4;
        mad[96..98].copy_from_slice(&[3, 5]);
        assert_eq!(destination(&mad).map(|adapter| adapter.lid), Some(0x0305));
        mad[at::CLASS] = class::SUBNET;
        assert!(destination(&mad).is_none());
    }
}
