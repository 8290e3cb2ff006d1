//! Routing of a MAD through the modelled subnet: to a node by LID or directed route, or to subnet administration.

use super::agent::{self, Query};
use super::{Node, Subnet, admin};
use crate::management::MAD;
use crate::management::mad::{at, class};

/// Returns the response to a MAD that adapter `from` sends to a LID, if any. It is longer than a MAD if it is a list of
/// records.
#[must_use]
pub fn answer(subnet: &Subnet, from: usize, lid: u16, mad: &[u8; MAD]) -> Option<Vec<u8>> {
    let own = Node::Adapter(from);
    let (node, entry) = match mad[at::CLASS] {
        class::SUBNET_DIRECTED => {
            let hops = usize::from(mad[at::HOP_COUNT]);
            let path = mad[at::INITIAL_PATH..].get(1..=hops).unwrap_or_default();
            path.iter().try_fold((own, 1), |(node, _), exit| subnet.neighbor(node, *exit))?
        }
        class::ADMINISTRATION => {
            let is_administrator = subnet.has_switch && subnet.with_lid(lid, own) == Some(Node::Switch);
            return is_administrator.then(|| admin::answer(subnet, mad)).flatten();
        }
        _ => (subnet.with_lid(lid, own)?, 1),
    };
    let directed = mad[at::CLASS] == class::SUBNET_DIRECTED;
    agent::answer(subnet, &Query { node, entry, directed }, mad).map(|answer| answer.to_vec())
}

/// Returns the response of the agents of adapter `index` to a MAD, if they know its class.
pub(crate) fn answer_of_adapter(subnet: &Subnet, index: usize, mad: &[u8; MAD]) -> Option<[u8; MAD]> {
    let directed = mad[at::CLASS] == class::SUBNET_DIRECTED;
    agent::answer(subnet, &Query { node: Node::Adapter(index), entry: 1, directed }, mad)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::management::mad::{method, subnet_attribute};
    use crate::management::subnet::{SM_LID, tests::subnet};

    const OWN: usize = 0;

    fn query(class: u8, attribute: u16) -> [u8; MAD] {
        let mut mad = [0; MAD];
        (mad[at::CLASS], mad[at::METHOD]) = (class, method::GET);
        mad[at::ATTRIBUTE..][..2].copy_from_slice(&attribute.to_be_bytes());
        mad
    }

    /// Returns the node type at the last hop of a path, and the ingress port.
    fn at_end(subnet: &Subnet, path: &[u8]) -> Option<(u8, u8)> {
        let mut mad = query(class::SUBNET_DIRECTED, subnet_attribute::NODE_INFO);
        mad[at::HOP_COUNT] = path.len() as u8;
        mad[at::INITIAL_PATH + 1..][..path.len()].copy_from_slice(path);
        let answer = answer(subnet, OWN, 0xffff, &mad)?;
        assert_eq!(answer[at::METHOD], method::GET_RESPONSE);
        assert_eq!(answer[at::STATUS..][..2], [0x80, 0], "a directed answer");
        assert_eq!(answer[at::INITIAL_PATH..][..64], mad[at::INITIAL_PATH..][..64], "the path stays");
        Some((answer[at::DATA + 2], answer[at::DATA + 36]))
    }

    #[test]
    fn directed_datagrams_follow_their_path() {
        let subnet = subnet(true);
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
        let subnet = subnet(true);
        let sm_info = query(class::SUBNET, subnet_attribute::SM_INFO);
        let status = |lid| answer(&subnet, OWN, lid, &sm_info).map(|answer| answer[at::STATUS + 1]);
        assert_eq!(status(SM_LID), Some(0));
        assert_eq!(status(0x0103), Some(0x0c), "a device is no subnet manager");
        assert_eq!(status(0x0104), None);
        let mut change = sm_info;
        change[at::METHOD] = 2;
        let refused = answer(&subnet, OWN, SM_LID, &change).unwrap();
        assert_eq!(refused[at::STATUS + 1], 0x08);
    }

    #[test]
    fn an_ethernet_port_reaches_only_itself() {
        let subnet = subnet(false);
        let mut counters = query(class::PERFORMANCE, 0x12);
        counters[at::DATA + 1] = 1;
        let answer = answer(&subnet, OWN, 0, &counters).unwrap();
        assert_eq!(answer[at::STATUS..][..2], [0, 0]);
        assert_eq!(at_end(&subnet, &[1]), None);
    }
}
