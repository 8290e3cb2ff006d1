//! The multicast groups of an adapter, with the datagram QPs that are attached to each.

use crate::address::{Gid, ip_of_group};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

/// Destination QPN of multicast datagrams.
pub(crate) const QPN: u32 = 0xff_ffff;

/// log2 of the maximum number of groups.
pub(crate) const LOG_MAX_GROUPS: u8 = 8;
/// Maximum number of QPs of a group.
pub(crate) const MAX_MEMBERS: usize = 256;

#[derive(Default)]
pub(crate) struct Groups(BTreeMap<Gid, Vec<u32>>);

impl Groups {
    pub(crate) fn members(&self, group: &Gid) -> &[u32] {
        self.0.get(group).map_or(&[], Vec::as_slice)
    }

    /// Returns the groups whose packets go to an IPv4 address.
    pub(crate) fn at(&self, ip: Ipv4Addr) -> impl Iterator<Item = &Gid> {
        self.0.keys().filter(move |group| ip_of_group(**group) == Some(ip))
    }

    /// Whether there is room for another member of a group.
    pub(crate) fn has_room(&self, group: &Gid) -> bool {
        match self.0.get(group) {
            Some(members) => members.len() < MAX_MEMBERS,
            None => self.0.len() < 1 << LOG_MAX_GROUPS,
        }
    }

    /// Adds a QP to a group. Adding it again has no effect.
    pub(crate) fn add(&mut self, group: Gid, qpn: u32) {
        let members = self.0.entry(group).or_default();
        if !members.contains(&qpn) {
            members.push(qpn);
        }
    }

    /// Removes a QP from a group. Returns whether it was a member.
    pub(crate) fn remove(&mut self, group: &Gid, qpn: u32) -> bool {
        let Some(members) = self.0.get_mut(group) else { return false };
        let before = members.len();
        members.retain(|member| *member != qpn);
        before != members.len()
    }

    /// Removes a QP from all groups.
    pub(super) fn remove_from_all(&mut self, qpn: u32) {
        self.0.values_mut().for_each(|members| members.retain(|member| *member != qpn));
    }

    /// Removes the groups without members. Returns the IPv4 addresses to which no packets of groups go any longer.
    pub(crate) fn take_empty(&mut self) -> Vec<Ipv4Addr> {
        let mut gone = Vec::new();
        self.0.retain(|group, members| {
            gone.extend(members.is_empty().then_some(*group));
            !members.is_empty()
        });
        let unused = |ip: &Ipv4Addr| self.at(*ip).next().is_none();
        gone.into_iter().filter_map(ip_of_group).filter(unused).collect()
    }
}
