//! The nodes of a team: sets of members that are P2P peers of each other. The first member of a node is its leader.

#![allow(unsafe_code, reason = "reads the entry and the lists of a team")]

use super::args;
use crate::abi::{DevAddr, TeamDesc};
use crate::arch;

#[inline(always)]
pub(super) fn pe_of(desc: *mut TeamDesc, member: u32) -> u32 {
    // SAFETY: `desc` is the entry of a team with that member.
    args::pe_of(desc, unsafe { ((*desc).start, (*desc).stride) }, member)
}

/// Nodes of a team, as described by this member's table entry.
#[derive(Clone, Copy)]
pub(super) struct Nodes {
    /// Addresses of the tables [`TeamDesc::by_node`], [`TeamDesc::node_starts`] and [`TeamDesc::nodes`].
    by_node: DevAddr,
    starts: DevAddr,
    nodes: DevAddr,
    /// Number of nodes on which the team has members.
    pub(super) n: u32,
    /// Index of this member's node.
    pub(super) mine: u32,
}

impl Nodes {
    #[inline(always)]
    pub(super) fn of(desc: *mut TeamDesc) -> Self {
        // SAFETY: the host made the entry, and these fields do not change while the team exists.
        unsafe {
            let (by_node, starts) = ((*desc).by_node, (*desc).node_starts);
            Self { by_node, starts, nodes: (*desc).nodes, n: (*desc).n_nodes, mine: (*desc).node }
        }
    }

    #[inline(always)]
    pub(super) fn of_member(self, member: u32) -> u32 {
        word(self.nodes, member)
    }

    #[inline(always)]
    pub(super) fn is_local(self, member: u32) -> bool {
        self.of_member(member) == self.mine
    }

    #[inline(always)]
    pub(super) fn size(self, node: u32) -> u32 {
        word(self.starts, node + 1) - word(self.starts, node)
    }

    /// Returns the rank in the team of member `k` of a node; `k` 0 is the leader.
    #[inline(always)]
    pub(super) fn member(self, node: u32, k: u32) -> u32 {
        word(self.by_node, word(self.starts, node) + k)
    }

    /// Returns the node that follows this member's node at distance `k` in the ring of all nodes. `k` is at most their
    /// number.
    #[inline(always)]
    pub(super) fn after(self, k: u32) -> u32 {
        args::wrapped(self.mine + k, self.n)
    }
}

#[inline(always)]
fn word(list: DevAddr, at: u32) -> u32 {
    // SAFETY: the host made the list, and callers stay inside of it.
    unsafe { arch::read(list.ptr::<u32>().add(at as usize)) }
}
