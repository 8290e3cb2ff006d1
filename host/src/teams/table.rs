//! The table of teams in memory that kernels read, and the words of each team in the symmetric heap.

use std::mem::offset_of;

use bytemuck::Zeroable;
use rushmem_device::abi::{CtxParts, DevAddr, TeamDesc, team_words};

use crate::Result;
use crate::machine::{Machine, Region};
use crate::queues::Shape;

/// The table of a PE.
pub(crate) struct Table {
    region: Region,
    heap: Region,
    shape: Shape,
}

impl Table {
    /// A table without teams.
    ///
    /// # Errors
    /// If there is no memory for it.
    pub(crate) fn new(machine: &dyn Machine, heap: &Region, shape: Shape) -> Result<Self> {
        let lists = 2 * u64::from(shape.teams) * Self::list_bytes(shape);
        let region = machine.local(Self::desc_at(shape.teams) + lists)?;
        Ok(Self { region, heap: heap.clone(), shape })
    }

    const fn desc_at(slot: u32) -> u64 {
        slot as u64 * size_of::<TeamDesc>() as u64
    }

    /// Bytes of a list with a word for each PE.
    fn list_bytes(shape: Shape) -> u64 {
        (u64::from(shape.n_pes) * 4).next_multiple_of(128)
    }

    /// Where the lists of a slot begin: the members' PEs, then the PEs' numbers.
    fn lists_at(&self, slot: u32) -> u64 {
        Self::desc_at(self.shape.teams) + 2 * u64::from(slot) * Self::list_bytes(self.shape)
    }

    /// Says in the PE's context where it is.
    pub(crate) fn describe(&self, parts: &mut CtxParts) {
        parts.teams = self.region.addr;
        parts.team_words = self.shape.team_words();
        parts.team_bytes = self.shape.team_bytes();
        parts.team_slots = self.shape.teams;
    }

    /// Puts a team of `pes` in `slot`, with all its words and slots zero. This PE is one of them.
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

    /// Takes the team in `slot` out.
    pub(super) fn clear(&self, slot: u32) -> Result<()> {
        let at = Self::desc_at(slot) + offset_of!(TeamDesc, generation) as u64;
        self.region.write(at, bytemuck::bytes_of(&0u32))
    }
}

/// From each of them to the next one, wrapping; 0 if the steps differ. One alone is as good as many.
fn stride(pes: &[u32]) -> u32 {
    let mut steps = pes.windows(2).map(|two| two[1].wrapping_sub(two[0]));
    let first = steps.next().unwrap_or(1);
    if steps.all(|step| step == first) { first } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::stride;

    #[test]
    fn teams_with_equal_steps() {
        assert_eq!(stride(&[4]), 1);
        assert_eq!(stride(&[4, 7]), 3);
        assert_eq!(stride(&[4, 3, 2]), u32::MAX);
        assert_eq!(stride(&[1, 3, 5]), 2);
        assert_eq!(stride(&[1, 3, 4]), 0);
        assert_eq!(stride(&[1, 0, 2]), 0);
    }
}
