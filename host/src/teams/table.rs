//! The team table in memory that kernels read, and each team's words in the symmetric heap.

use std::mem::offset_of;

use bytemuck::Zeroable;
use rushmem_device::abi::{CtxParts, DevAddr, TeamDesc, team_words};

use crate::Result;
use crate::machine::{Machine, Region};
use crate::queues::Shape;

/// The team table of a PE.
pub(crate) struct TeamTable {
    region: Region,
    heap: Region,
    shape: Shape,
}

impl TeamTable {
    /// Returns an empty table.
    ///
    /// # Errors
    /// - The machine's error if there is no memory for it.
    pub(crate) fn new(machine: &dyn Machine, heap: &Region, shape: Shape) -> Result<Self> {
        let lists = 2 * u64::from(shape.teams) * Self::list_bytes(shape);
        let region = machine.local(Self::desc_at(shape.teams) + lists)?;
        Ok(Self { region, heap: heap.clone(), shape })
    }

    /// Returns the offset of a slot's descriptor.
    const fn desc_at(slot: u32) -> u64 {
        slot as u64 * size_of::<TeamDesc>() as u64
    }

    /// Returns the bytes of a list with a word for each PE.
    fn list_bytes(shape: Shape) -> u64 {
        (u64::from(shape.n_pes) * 4).next_multiple_of(128)
    }

    /// Returns the offset of a slot's lists: the PE of each member, then the member number of each PE.
    fn lists_at(&self, slot: u32) -> u64 {
        Self::desc_at(self.shape.teams) + 2 * u64::from(slot) * Self::list_bytes(self.shape)
    }

    /// Stores the location of the table in the PE's context.
    pub(crate) fn describe(&self, parts: &mut CtxParts) {
        parts.teams = self.region.addr;
        parts.team_words = self.shape.team_words();
        parts.team_bytes = self.shape.team_bytes();
        parts.team_slots = self.shape.teams;
    }

    /// Puts a team of `pes`, which include this PE, in `slot`. Clears the team's words and scratch slots.
    pub(super) fn put(&self, slot: u32, generation: u32, me: u32, pes: &[u32]) -> Result<()> {
        let bytes = self.shape.team_bytes();
        let words = team_words::scratch(self.shape.n_pes);
        let used = words + 2 * team_words::slots(bytes - words);
        self.heap.write(self.shape.team_words() + u64::from(slot) * bytes, &vec![0; used as usize])?;

        let lists = self.lists_at(slot);
        let mut members = vec![u32::MAX; self.shape.n_pes as usize];
        for (number, &pe) in (0..).zip(pes) {
            members[pe as usize] = number;
        }
        self.region.write(lists, bytemuck::cast_slice(pes))?;
        self.region.write(lists + Self::list_bytes(self.shape), bytemuck::cast_slice(&members))?;
        let addr = |at: u64| -> DevAddr { self.region.addr.add(at) };
        let desc = TeamDesc {
            generation,
            my_pe: members[me as usize],
            n_pes: pes.len() as u32,
            start: pes[0],
            stride: stride(pes),
            pes: addr(lists),
            members: addr(lists + Self::list_bytes(self.shape)),
            ..Zeroable::zeroed()
        };
        self.region.write(Self::desc_at(slot), bytemuck::bytes_of(&desc))
    }

    /// Removes the team in `slot`.
    pub(super) fn clear(&self, slot: u32) -> Result<()> {
        let at = Self::desc_at(slot) + offset_of!(TeamDesc, generation) as u64;
        self.region.write(at, bytemuck::bytes_of(&0u32))
    }
}

/// Returns the wrapping step from each PE to the next, or 0 if the steps differ. The step of a single PE is 1.
fn stride(pes: &[u32]) -> u32 {
    let mut steps = pes.windows(2).map(|two| two[1].wrapping_sub(two[0]));
    let first = steps.next().unwrap_or(1);
    if steps.all(|step| step == first) { first } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::stride;

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
