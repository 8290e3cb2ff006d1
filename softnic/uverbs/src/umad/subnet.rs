//! A model of the InfiniBand subnet of this process's devices: a switch, which includes the subnet manager, with a port
//! for each device. Adapters of other processes are not part of it. On Ethernet, a device has only itself.

use crate::abi::QueryPort;
use crate::device::{Device, PortAddress, SM_LID};
use crate::errno::Errno;
use crate::settings::LinkLayer;
use rushmem_softnic::Model;
use std::sync::Arc;

/// A device as a node of the subnet, with the state of its port.
pub(super) struct Adapter {
    pub(super) device: Arc<Device>,
    pub(super) port: QueryPort,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Node {
    Switch,
    /// A device, by index.
    Adapter(usize),
}

/// Snapshot of the modelled subnet.
pub(super) struct Subnet {
    pub(super) adapters: Vec<Adapter>,
    pub(super) has_switch: bool,
    /// Model of the devices.
    pub(super) model: Model,
}

impl Subnet {
    pub(super) fn of(devices: &[Arc<Device>]) -> Result<Subnet, Errno> {
        let adapter = |device: &Arc<Device>| -> Result<Adapter, Errno> {
            let place: PortAddress = device.place()?;
            Ok(Adapter { port: device.port(place), device: Arc::clone(device) })
        };
        let adapters = devices.iter().map(adapter).collect::<Result<_, _>>()?;
        let has_switch = devices.iter().all(|device| device.settings.link == LinkLayer::InfiniBand);
        let model = devices.first().map(|device| device.settings.model).unwrap_or_default();
        Ok(Subnet { adapters, has_switch, model })
    }

    /// Returns the node at the other end of the link at port `exit`, and its port at that end.
    pub(super) fn neighbor(&self, node: Node, exit: u8) -> Option<(Node, u8)> {
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

    /// Whether the link of a device is up.
    pub(super) fn is_up(&self, index: usize) -> bool {
        let up = crate::abi::port_state::ACTIVE;
        self.adapters.get(index).is_some_and(|adapter| adapter.port.state == up)
    }

    /// Returns the node with a LID. Ethernet has no LIDs, so a device reaches only itself.
    pub(super) fn with_lid(&self, lid: u16, own: Node) -> Option<Node> {
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

    pub(in crate::umad) fn subnet(link: LinkLayer) -> Subnet {
        let addresses = vec![[127, 64, 1, 2].into(), [127, 64, 1, 3].into()];
        let settings = Arc::new(Settings { devices: 2, link, addresses, ..Settings::default() });
        let devices: Vec<_> = (0..2).map(|i| Arc::new(Device::new(i, Arc::clone(&settings)))).collect();
        Subnet::of(&devices).unwrap()
    }
}
