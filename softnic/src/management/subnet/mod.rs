//! A model of an InfiniBand subnet as an adapter sees it: a switch, which includes the subnet manager and subnet
//! administration, with a port for each adapter. On Ethernet, an adapter has only itself.
//!
//! | file | does |
//! |---|---|
//! | `agent` | answers of a node |
//! | `admin` | answers of subnet administration |
//! | `group` | answers about membership of multicast groups |
//! | `route` | which of them a datagram reaches |

mod admin;
mod agent;
mod group;
mod route;

use crate::model::Model;
use crate::report::Stats;
#[cfg(test)]
pub(crate) use admin::RMPP;
pub(crate) use admin::set_segment;
pub use route::answer;
pub(crate) use route::answer_of_adapter;

/// LID of the subnet manager, which no adapter has.
pub const SM_LID: u16 = 1;

/// First bytes of a GID with the default subnet prefix.
pub const SUBNET_PREFIX: [u8; 8] = [0xfe, 0x80, 0, 0, 0, 0, 0, 0];

/// An adapter as a node of the subnet, with the state of its port.
#[derive(Clone, Debug)]
pub struct Adapter {
    /// Description of the node. Its first 63 bytes are used.
    pub description: String,
    /// GUID of the node and of the port.
    pub guid: u64,
    /// LID of the port, or 0.
    pub lid: u16,
    /// Whether the port is active.
    pub is_up: bool,
    /// Capability mask of PortInfo.
    pub capabilities: u32,
    /// Counters of the port.
    pub stats: Stats,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Node {
    Switch,
    /// An adapter, by index.
    Adapter(usize),
}

/// Snapshot of a subnet.
#[derive(Clone, Debug)]
pub struct Subnet {
    /// The adapters that the switch lists.
    pub adapters: Vec<Adapter>,
    /// Whether the ports are InfiniBand.
    pub has_switch: bool,
    /// Model of the adapters.
    pub model: Model,
    /// Partition keys of each node.
    pub pkeys: Vec<u16>,
    /// Number of entries of the P_Key tables.
    pub pkey_entries: u16,
    /// Number of entries of the adapters' GUID tables.
    pub guid_entries: u8,
}

impl Subnet {
    /// Returns the node at the other end of the link at port `exit`, and its port at that end.
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

    /// Whether the link of an adapter is up.
    fn is_up(&self, index: usize) -> bool {
        self.adapters.get(index).is_some_and(|adapter| adapter.is_up)
    }

    /// Returns the node with a LID. Ethernet has no LIDs, so an adapter reaches only itself.
    fn with_lid(&self, lid: u16, own: Node) -> Option<Node> {
        if !self.has_switch {
            return Some(own);
        }
        let adapter = self.adapters.iter().position(|adapter| adapter.lid == lid && lid != 0);
        adapter.map(Node::Adapter).or((lid == SM_LID).then_some(Node::Switch))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::management::mad::HAS_EXTENDED_SPEEDS;

    /// Returns the subnet of two adapters.
    pub(in crate::management) fn subnet(has_switch: bool) -> Subnet {
        let adapter = |index: u16| Adapter {
            description: format!("adapter {index}"),
            guid: u64::from(index) + 1,
            lid: if has_switch { 0x0102 + index } else { 0 },
            is_up: true,
            capabilities: HAS_EXTENDED_SPEEDS,
            stats: Stats::default(),
        };
        Subnet {
            adapters: (0..2).map(adapter).collect(),
            has_switch,
            model: Model::default(),
            pkeys: vec![0xffff],
            pkey_entries: 1,
            guid_entries: 1,
        }
    }
}
