//! Writes the team table, from which kernels learn about teams, and each team's words in the symmetric heap.

#![allow(unsafe_code, reason = "vouches for the channels of a team")]

use bytemuck::Zeroable;
use rushmem_device::ChannelWords;
use rushmem_device::abi::{CtxParts, DevAddr, TeamDesc, team_flags, team_words};
use rushmem_fabric::queues::Shape;
use rushmem_machine::{Machine, Region};

use crate::Result;

/// The channels of a team: how many blocks can take part in a collective call, and where their words are.
#[derive(Clone, Copy)]
pub(crate) struct Channels {
    pub(crate) count: u32,
    /// The words of all channels but the first one.
    pub(crate) more: ChannelWords,
}

/// Number of descriptors per team in the table: one per channel.
const DESCS: usize = team_words::MAX_CHANNELS as usize;

pub(crate) struct TeamTable {
    region: Region,
    heap: Region,
    shape: Shape,
}

impl TeamTable {
    /// Allocates an empty team table.
    ///
    /// # Errors
    /// - The machine's error, if it has no memory left.
    pub(crate) fn new(machine: &dyn Machine, heap: &Region, shape: Shape) -> Result<Self> {
        let lists = lists::COUNT * u64::from(shape.teams) * Self::list_bytes(shape);
        let region = machine.local(Self::descs_at(shape.teams) + lists)?;
        Ok(Self { region, heap: heap.clone(), shape })
    }

    /// Returns the offset in the table of the descriptors of team slot `slot`.
    const fn descs_at(slot: u32) -> u64 {
        slot as u64 * (DESCS * size_of::<TeamDesc>()) as u64
    }

    /// Returns the size of a list in the table, in bytes. A list has one word for each PE of the job, and one more.
    fn list_bytes(shape: Shape) -> u64 {
        ((u64::from(shape.n_pes) + 1) * 4).next_multiple_of(128)
    }

    /// Returns the offset in the table of a list of team slot `slot`. `list` is one of [`lists`].
    fn list_at(&self, slot: u32, list: u64) -> u64 {
        let before = lists::COUNT * u64::from(slot) + list;
        Self::descs_at(self.shape.teams) + before * Self::list_bytes(self.shape)
    }

    /// Stores the location of the team table in the PE's kernel context.
    pub(crate) fn describe(&self, parts: &mut CtxParts) {
        parts.teams = self.region.addr;
        parts.team_words = self.shape.team_words();
        parts.team_bytes = self.shape.team_bytes();
        parts.team_slots = self.shape.teams;
    }

    /// Writes a team of `pes`, which include this PE, to `slot`. Clears the team's words and LL slots in the heap.
    /// `nodes` contains the node of each PE. Returns the team's channels.
    ///
    /// The memory of the additional channels is already zero: it is either new, or has been cleared by
    /// [`TeamTable::clear`].
    pub(super) fn put(
        &self,
        slot: u32,
        generation: u32,
        me: u32,
        pes: &[u32],
        nodes: &[u32],
    ) -> Result<Channels> {
        let mut members = vec![u32::MAX; self.shape.n_pes as usize];
        for (number, &pe) in (0..).zip(pes) {
            members[pe as usize] = number;
        }
        let my_pe = members[me as usize];
        let nodes = TeamNodes::new(pes, nodes);
        let put = |list: u64, words: &[u32]| -> Result<DevAddr> {
            let at = self.list_at(slot, list);
            self.region.write(at, bytemuck::cast_slice(words))?;
            Ok(self.region.addr.add(at))
        };
        let desc = TeamDesc {
            generation,
            slot,
            my_pe,
            n_pes: pes.len() as u32,
            start: pes[0],
            stride: stride(pes),
            flags: if nodes.starts.len() == 2 { team_flags::P2P } else { 0 },
            pes: put(lists::PES, pes)?,
            members: put(lists::MEMBERS, &members)?,
            by_node: put(lists::BY_NODE, &nodes.by_node)?,
            node_starts: put(lists::NODE_STARTS, &nodes.starts)?,
            nodes: put(lists::NODES, &nodes.of)?,
            n_nodes: nodes.starts.len() as u32 - 1,
            node: nodes.of[my_pe as usize],
            node_rank: nodes.rank(my_pe),
            ..Zeroable::zeroed()
        };
        let is_p2p = desc.flags & team_flags::P2P != 0;
        let (begin, all) = self.shape.team_channels(slot);
        let (more, each) = team_words::channels(all, desc.n_pes, is_p2p);
        let (bytes, channels) = (self.shape.team_bytes(), more + 1);
        let words = self.shape.team_words() + u64::from(slot) * bytes;
        let scratch = team_words::scratch(desc.n_pes);
        let used = scratch + 2 * team_words::slots(bytes - scratch, desc.n_pes);
        // The words first: once the descriptor has the generation, kernels may use them.
        self.heap.write(words, &vec![0; used as usize])?;
        let mut descs = [TeamDesc::zeroed(); DESCS];
        descs[0] = TeamDesc { channels, words, bytes, ..desc };
        for (at, channel) in (begin..).step_by(each.max(1) as usize).zip(&mut descs[1..channels as usize]) {
            *channel = TeamDesc { channels, words: at, bytes: each, ..desc };
        }
        self.region.write(Self::descs_at(slot), bytemuck::cast_slice(&descs))?;
        // SAFETY: these are the channels of this team, and `count` includes all of them.
        Ok(Channels { count: channels, more: unsafe { ChannelWords::from_raw(begin, each) } })
    }

    /// Removes the team in slot `slot` from the table, and clears the memory of its additional channels.
    pub(super) fn clear(&self, slot: u32) -> Result<()> {
        let (begin, bytes) = self.shape.team_channels(slot);
        self.heap.write(begin, &vec![0; bytes as usize])?;
        let descs = [TeamDesc::zeroed(); DESCS];
        self.region.write(Self::descs_at(slot), bytemuck::cast_slice(&descs))
    }
}

/// Indices of the lists that the table has for each team slot.
mod lists {
    pub(super) const PES: u64 = 0;
    pub(super) const MEMBERS: u64 = 1;
    pub(super) const BY_NODE: u64 = 2;
    pub(super) const NODE_STARTS: u64 = 3;
    pub(super) const NODES: u64 = 4;
    pub(super) const COUNT: u64 = 5;
}

/// The division of a team into nodes, as kernels read it from [`TeamDesc`].
struct TeamNodes {
    by_node: Vec<u32>,
    starts: Vec<u32>,
    of: Vec<u32>,
}

impl TeamNodes {
    /// Divides the members `pes` into nodes, given the node of each PE. Nodes are in the order of their first members.
    fn new(pes: &[u32], nodes: &[u32]) -> Self {
        let mut numbers: Vec<u32> = Vec::new();
        let mut number = |pe: &u32| {
            let node = nodes[*pe as usize];
            numbers.iter().position(|known| *known == node).unwrap_or_else(|| {
                numbers.push(node);
                numbers.len() - 1
            }) as u32
        };
        let of: Vec<u32> = pes.iter().map(&mut number).collect();
        let mut by_node: Vec<u32> = (0..pes.len() as u32).collect();
        by_node.sort_by_key(|member| of[*member as usize]);
        let start = |node: u32| by_node.partition_point(|member| of[*member as usize] < node) as u32;
        let starts = (0..=numbers.len() as u32).map(start).collect();
        Self { by_node, starts, of }
    }

    /// Returns a member's rank among the members of its node.
    fn rank(&self, member: u32) -> u32 {
        let before = |other: &&u32| **other < member && self.of[**other as usize] == self.of[member as usize];
        self.by_node.iter().filter(before).count() as u32
    }
}

/// Returns the step from each PE in `pes` to the next (wrapping), or 0 if the steps differ. Returns 1 for a single PE.
fn stride(pes: &[u32]) -> u32 {
    let mut steps = pes.windows(2).map(|two| two[1].wrapping_sub(two[0]));
    let first = steps.next().unwrap_or(1);
    if steps.all(|step| step == first) { first } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::{TeamNodes, stride};

    #[test]
    fn divides_a_team_into_nodes() {
        // PEs 0, 1 and 2, 3 and 4, 6 share nodes.
        let nodes = TeamNodes::new(&[3, 6, 0, 2, 4, 5], &[0, 0, 2, 2, 4, 5, 4]);
        assert_eq!(nodes.of, [0, 1, 2, 0, 1, 3]);
        assert_eq!(nodes.by_node, [0, 3, 1, 4, 2, 5]);
        assert_eq!(nodes.starts, [0, 2, 4, 5, 6]);
        assert_eq!([0, 3, 4, 5].map(|member| nodes.rank(member)), [0, 1, 1, 0]);
    }

    #[test]
    fn finds_the_stride_of_a_team() {
        assert_eq!(stride(&[4]), 1);
        assert_eq!(stride(&[4, 7]), 3);
        assert_eq!(stride(&[4, 3, 2]), u32::MAX);
        assert_eq!(stride(&[1, 3, 5]), 2);
        assert_eq!(stride(&[1, 3, 4]), 0);
        assert_eq!(stride(&[1, 0, 2]), 0);
    }
}
