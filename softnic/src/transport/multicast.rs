//! The members of multicast groups: queue pairs of datagrams.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

/// Number of the queue pair to which datagrams for a group are sent.
pub(crate) const QPN: u32 = 0xff_ffff;

#[derive(Default)]
pub(crate) struct Members(BTreeMap<Ipv4Addr, Vec<u32>>);

impl Members {
    pub(crate) fn of(&self, group: Ipv4Addr) -> &[u32] {
        self.0.get(&group).map_or(&[], Vec::as_slice)
    }

    /// Adds a member. It is in the group once, however often it is added.
    pub(crate) fn add(&mut self, group: Ipv4Addr, qpn: u32) {
        let members = self.0.entry(group).or_default();
        if !members.contains(&qpn) {
            members.push(qpn);
        }
    }

    /// Removes a member. Returns whether it was one.
    pub(crate) fn remove(&mut self, group: Ipv4Addr, qpn: u32) -> bool {
        let Some(members) = self.0.get_mut(&group) else { return false };
        let before = members.len();
        members.retain(|member| *member != qpn);
        before != members.len()
    }

    /// Removes a queue pair from all groups.
    pub(crate) fn remove_from_all(&mut self, qpn: u32) {
        self.0.values_mut().for_each(|members| members.retain(|member| *member != qpn));
    }

    /// Takes out the groups without members.
    pub(crate) fn take_empty(&mut self) -> Vec<Ipv4Addr> {
        let empty: Vec<Ipv4Addr> =
            self.0.iter().filter(|(_, members)| members.is_empty()).map(|(group, _)| *group).collect();
        for group in &empty {
            self.0.remove(group);
        }
        empty
    }
}
