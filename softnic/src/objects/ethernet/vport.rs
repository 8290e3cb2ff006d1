//! The virtual port, by which a function is connected to the network.

use crate::address::{Mac, is_group};
use rushmem_mlx5::prm::caps::RoceAddr;
use rushmem_mlx5::prm::registers::PortStatus;
use rushmem_mlx5::prm::vport::QueryVportCounterOut;
use std::collections::BTreeMap;

const BROADCAST: Mac = [0xff; 6];

/// Settings and counters of the virtual port.
#[derive(Default)]
pub(crate) struct Vport {
    /// The context whose driver has set up the port.
    pub(crate) owner: Option<u32>,
    /// MAC address that the driver has set instead of the port's own.
    pub(crate) address: Option<Mac>,
    /// Maximum length of a frame that the driver has set.
    pub(crate) mtu: Option<u16>,
    /// Maximum length of a frame of the physical port that the driver has set.
    pub(crate) port_mtu: Option<u16>,
    /// State of the physical port that the driver has asked for. Other functions share the port, so it has no effect.
    pub(crate) port_status: Option<PortStatus>,
    pub(crate) roce: bool,
    /// Unicast and multicast addresses of received frames.
    pub(crate) unicast: Vec<Mac>,
    pub(crate) multicast: Vec<Mac>,
    /// VLANs of received frames, which do not restrict anything: flow tables do.
    pub(crate) vlans: Vec<u16>,
    pub(crate) all_unicast: bool,
    pub(crate) all_multicast: bool,
    pub(crate) promiscuous: bool,
    pub(crate) node_guid: Option<u64>,
    /// RoCE addresses by their index.
    pub(crate) addresses: BTreeMap<u16, RoceAddr>,
    pub(crate) counters: QueryVportCounterOut,
}

impl Vport {
    /// Whether frames to this address reach the function, whose own address is `own`.
    pub(crate) fn accepts(&self, to: Mac, own: Mac) -> bool {
        let listed = match is_group(to) {
            true => to == BROADCAST || self.all_multicast || self.multicast.contains(&to),
            false => to == own || self.all_unicast || self.unicast.contains(&to),
        };
        listed || self.promiscuous
    }

    /// Counts a received or sent frame.
    pub(crate) fn count(&mut self, is_received: bool, to: Mac, bytes: usize) {
        let counters = &mut self.counters;
        let counter = match (is_received, to == BROADCAST, is_group(to)) {
            (true, true, _) => &mut counters.received_eth_broadcast,
            (true, _, true) => &mut counters.received_eth_multicast,
            (true, ..) => &mut counters.received_eth_unicast,
            (false, true, _) => &mut counters.transmitted_eth_broadcast,
            (false, _, true) => &mut counters.transmitted_eth_multicast,
            (false, ..) => &mut counters.transmitted_eth_unicast,
        };
        counter.packets += 1;
        counter.octets += bytes as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_requested_frames_are_accepted() {
        let (own, other, group) = ([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2], [1, 0, 0x5e, 0, 0, 1]);
        let mut vport = Vport::default();
        let accepted = |vport: &Vport| [own, other, group, BROADCAST].map(|to| vport.accepts(to, own));
        assert_eq!(accepted(&vport), [true, false, false, true]);
        vport.multicast.push(group);
        vport.unicast.push(other);
        assert_eq!(accepted(&vport), [true; 4]);
        assert!(!vport.accepts([2, 0, 0, 0, 0, 3], own));
        vport.promiscuous = true;
        assert!(vport.accepts([2, 0, 0, 0, 0, 3], own));
    }
}
