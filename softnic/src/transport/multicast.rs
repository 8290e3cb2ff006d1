//! Tracks which datagram QPs are members of which multicast groups.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

/// Destination QPN of multicast datagrams.
pub(crate) const QPN: u32 = 0xff_ffff;

#[derive(Default)]
pub(crate) struct Members(BTreeMap<Ipv4Addr, Vec<u32>>);

impl Members {
    pub(crate) fn of(&self, group: Ipv4Addr) -> &[u32] {
        self.0.get(&group).map_or(&[], Vec::as_slice)
    }

    /// Adds a QP to a multicast group. Adding it again has no effect.
    pub(crate) fn add(&mut self, group: Ipv4Addr, qpn: u32) {
        let members = self.0.entry(group).or_default();
        if !members.contains(&qpn) {
            members.push(qpn);
        }
    }

    /// Removes a QP from a multicast group. Returns whether it was a member.
    pub(crate) fn remove(&mut self, group: Ipv4Addr, qpn: u32) -> bool {
        let Some(members) = self.0.get_mut(&group) else { return false };
        let before = members.len();
        members.retain(|member| *member != qpn);
        before != members.len()
    }

    /// Removes a QP from all multicast groups.
    pub(crate) fn remove_from_all(&mut self, qpn: u32) {
        self.0.values_mut().for_each(|members| members.retain(|member| *member != qpn));
    }

    /// Removes the multicast groups without members and returns them.
    pub(crate) fn take_empty(&mut self) -> Vec<Ipv4Addr> {
        let empty: Vec<Ipv4Addr> =
            self.0.iter().filter(|(_, members)| members.is_empty()).map(|(group, _)| *group).collect();
        for group in &empty {
            self.0.remove(group);
        }
        empty
    }
}
