//! A model of the InfiniBand subnet that the devices of this process are in: a switch, with the subnet manager, has a port for each
//! device. Adapters of other processes are not in it. On Ethernet a device has only itself.

use super::abi::{Agent, MAD, at, class};
use super::admin;
use super::agent::{self, Query};
use crate::abi::QueryPort;
use crate::device::{Device, PortAddress, SM_LID};
use crate::errno::Errno;
use crate::settings::LinkLayer;
use std::sync::Arc;

/// A device, and the state of its port.
pub(super) struct Adapter {
    pub(super) device: Arc<Device>,
    pub(super) port: QueryPort,
}

/// A node of the subnet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Node {
    Switch,
    /// A device, by its index.
    Adapter(usize),
}

/// The subnet at one moment.
pub(super) struct Subnet {
    pub(super) adapters: Vec<Adapter>,
    has_switch: bool,
}

impl Subnet {
    /// Returns the subnet of these devices.
    pub(super) fn of(devices: &[Arc<Device>]) -> Result<Subnet, Errno> {
        let adapter = |device: &Arc<Device>| -> Result<Adapter, Errno> {
            let place: PortAddress = device.place()?;
            Ok(Adapter { port: device.port(place), device: Arc::clone(device) })
        };
        let adapters = devices.iter().map(adapter).collect::<Result<_, _>>()?;
        let has_switch = devices.iter().all(|device| device.settings.link == LinkLayer::InfiniBand);
        Ok(Subnet { adapters, has_switch })
    }

    /// Returns the answer to a datagram that a device sends to a LID, or `None` if none comes.
    pub(super) fn answer(&self, from: u32, agent: Agent, lid: u16, mad: &[u8; MAD]) -> Option<Vec<u8>> {
        if mad[at::CLASS] != agent.class {
            return None;
        }
        let own = Node::Adapter(from as usize);
        let (node, entry) = match agent.class {
            class::SUBNET_DIRECTED => {
                let hops = usize::from(mad[at::HOP_COUNT]);
                let path = mad[at::INITIAL_PATH..].get(1..=hops).unwrap_or_default();
                path.iter().try_fold((own, 1), |(node, _), exit| self.neighbor(node, *exit))?
            }
            class::ADMINISTRATION => {
                let is_administrator = self.has_switch && self.with_lid(lid, own) == Some(Node::Switch);
                return is_administrator.then(|| admin::answer(self, mad)).flatten();
            }
            _ => (self.with_lid(lid, own)?, 1),
        };
        let directed = agent.class == class::SUBNET_DIRECTED;
        agent::answer(self, &Query { node, entry, directed }, mad).map(|answer| answer.to_vec())
    }

    /// Returns the node at the other end of a link, and the port by which a datagram enters it.
    fn neighbor(&self, node: Node, exit: u8) -> Option<(Node, u8)> {
        if !self.has_switch {
            return None;
        }
        match node {
            Node::Adapter(index) if exit == 1 && self.is_up(index) => Some((Node::Switch, index as u8 + 1)),
            Node::Switch => {
                let index = usize::from(exit).checked_sub(1)?;
                self.is_up(index).then_some((Node::Adapter(index), 1))
            }
            Node::Adapter(_) => None,
        }
    }

    /// Returns whether the link of a device is up.
    pub(super) fn is_up(&self, index: usize) -> bool {
        let up = crate::abi::port_state::ACTIVE;
        self.adapters.get(index).is_some_and(|adapter| adapter.port.state == up)
    }

    /// Returns the node with a LID. On Ethernet there are none, and each device has only itself.
    fn with_lid(&self, lid: u16, own: Node) -> Option<Node> {
        if !self.has_switch {
            return Some(own);
        }
        let adapter = self.adapters.iter().position(|adapter| adapter.port.lid == lid && lid != 0);
        adapter.map(Node::Adapter).or((lid == SM_LID).then_some(Node::Switch))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::settings::Settings;
    use crate::umad::abi::{method, subnet_attribute};

    const OWN: u32 = 0;

    pub(in crate::umad) fn subnet(link: LinkLayer) -> Subnet {
        let addresses = vec![[127, 64, 1, 2].into(), [127, 64, 1, 3].into()];
        let settings = Arc::new(Settings { devices: 2, link, addresses, ..Settings::default() });
        let devices: Vec<_> = (0..2).map(|i| Arc::new(Device::new(i, Arc::clone(&settings)))).collect();
        Subnet::of(&devices).unwrap()
    }

    fn query(class: u8, attribute: u16) -> [u8; MAD] {
        let mut mad = [0; MAD];
        (mad[at::CLASS], mad[at::METHOD]) = (class, method::GET);
        mad[at::ATTRIBUTE..][..2].copy_from_slice(&attribute.to_be_bytes());
        mad
    }

    /// Returns the type of the node at the end of a path, and the port by which the datagram entered it.
    fn at_end(subnet: &Subnet, path: &[u8]) -> Option<(u8, u8)> {
        let mut mad = query(class::SUBNET_DIRECTED, subnet_attribute::NODE_INFO);
        mad[at::HOP_COUNT] = path.len() as u8;
        mad[at::INITIAL_PATH + 1..][..path.len()].copy_from_slice(path);
        let agent = Agent { qpn: 0, class: class::SUBNET_DIRECTED };
        let answer = subnet.answer(OWN, agent, 0xffff, &mad)?;
        assert_eq!(answer[at::METHOD], method::GET_RESPONSE);
        assert_eq!(answer[at::STATUS..][..2], [0x80, 0], "a directed answer");
        assert_eq!(answer[at::INITIAL_PATH..][..64], mad[at::INITIAL_PATH..][..64], "the path stays");
        Some((answer[at::DATA + 2], answer[at::DATA + 36]))
    }

    #[test]
    fn directed_datagrams_follow_their_path() {
        let subnet = subnet(LinkLayer::InfiniBand);
        let (adapter, switch) = (1, 2);
        assert_eq!(at_end(&subnet, &[]), Some((adapter, 1)));
        assert_eq!(at_end(&subnet, &[1]), Some((switch, 1)));
        assert_eq!(at_end(&subnet, &[1, 2]), Some((adapter, 1)));
        assert_eq!(at_end(&subnet, &[1, 2, 1]), Some((switch, 2)));
        for path in [&[2][..], &[1, 3], &[1, 0], &[1, 2, 2]] {
            assert_eq!(at_end(&subnet, path), None, "{path:?}");
        }
    }

    #[test]
    fn other_datagrams_reach_their_lid() {
        let subnet = subnet(LinkLayer::InfiniBand);
        let agent = Agent { qpn: 0, class: class::SUBNET };
        let sm_info = query(class::SUBNET, subnet_attribute::SM_INFO);
        let status = |lid| subnet.answer(OWN, agent, lid, &sm_info).map(|answer| answer[at::STATUS + 1]);
        assert_eq!(status(SM_LID), Some(0));
        assert_eq!(status(0x0103), Some(0x0c), "a device is no subnet manager");
        assert_eq!(status(0x0104), None);
        let other = Agent { qpn: 1, class: class::PERFORMANCE };
        assert_eq!(subnet.answer(OWN, other, SM_LID, &sm_info), None, "an agent sends its own class");
        let mut change = sm_info;
        change[at::METHOD] = 2;
        let refused = subnet.answer(OWN, agent, SM_LID, &change).unwrap();
        assert_eq!(refused[at::STATUS + 1], 0x08);
    }

    #[test]
    fn an_ethernet_port_reaches_only_itself() {
        let subnet = subnet(LinkLayer::Ethernet);
        let agent = Agent { qpn: 1, class: class::PERFORMANCE };
        let mut counters = query(class::PERFORMANCE, 0x12);
        counters[at::DATA + 1] = 1;
        let answer = subnet.answer(OWN, agent, 0, &counters).unwrap();
        assert_eq!(answer[at::STATUS..][..2], [0, 0]);
        assert_eq!(at_end(&subnet, &[1]), None);
    }
}
