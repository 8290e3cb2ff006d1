//! Teams: sets of PEs that synchronise and exchange data among themselves.
//!
//! The host creates a team and gets a [`Team`], which a kernel takes as an argument. Members are numbered from 0, in
//! the order defined by the call that created the team. Kernels find teams in a table of the PE.
#![allow(unsafe_code, reason = "reads the team table of the launch")]

use bytemuck::Pod;

use crate::abi::TeamDesc;
use crate::abi::team_words::MAX_CHANNELS;
use crate::arch;
use crate::ctx::Ctx;
use crate::error::{Detail, Error};
use crate::heap::SymSlice;
use crate::kernel::KernelArg;
use crate::sharing::Sharing;
use crate::view::RemoteView;

/// Handle of a team on this PE. Each member has its own handle of the same team.
///
/// Only the runtime creates handles. A handle of a destroyed team, or one obtained by a PE outside the team
/// ([`Team::INVALID`]), refers to no team: collective calls return [`Error::BadTeam`](crate::Error::BadTeam).
///
/// OpenSHMEM 1.6 section 9.4, `shmem_team_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Team {
    slot: u32,
    generation: u32,
}

impl Team {
    /// The team of all PEs of the job. `SHMEM_TEAM_WORLD`.
    pub const WORLD: Self = Self { slot: 0, generation: 1 };
    /// The team of PEs that access each other's heaps by loads and stores, including this one. `SHMEM_TEAM_SHARED`.
    pub const SHARED: Self = Self { slot: 1, generation: 1 };
    /// The team of PEs on this PE's node. `NVSHMEMX_TEAM_NODE`.
    pub const NODE: Self = Self { slot: 2, generation: 1 };
    /// The team of PEs that have the same rank on their nodes as this PE. `NVSHMEMX_TEAM_SAME_MYPE_NODE`.
    pub const RAIL: Self = Self { slot: 3, generation: 1 };
    /// The handle that a PE outside a team gets for it. It refers to no team. `SHMEM_TEAM_INVALID`.
    pub const INVALID: Self = Self { slot: u32::MAX, generation: 0 };

    /// Number of predefined teams, which exist for the whole job.
    pub const PREDEFINED: u32 = 4;

    /// Returns the handle of the team in `slot` with this `generation`.
    ///
    /// # Safety
    /// The runtime has put the team into this slot of the PE that uses the handle.
    pub const unsafe fn from_raw(slot: u32, generation: u32) -> Self {
        Self { slot, generation }
    }

    /// Returns the handle as a number, for callers in other languages: the slot in its lower half, the generation in its
    /// upper half.
    #[inline(always)]
    pub const fn to_bits(self) -> u64 {
        (self.generation as u64) << 32 | self.slot as u64
    }

    /// Returns the handle with this number: the inverse of [`Team::to_bits`].
    ///
    /// # Safety
    /// The same as for [`Team::from_raw`].
    #[inline(always)]
    pub const unsafe fn from_bits(bits: u64) -> Self {
        Self { slot: bits as u32, generation: (bits >> 32) as u32 }
    }

    /// Returns the index of the team in the PE's table of teams.
    #[inline(always)]
    pub const fn slot(self) -> u32 {
        self.slot
    }

    /// Returns the generation, which distinguishes the team from earlier ones in the same slot.
    #[inline(always)]
    pub const fn generation(self) -> u32 {
        self.generation
    }

    #[inline(always)]
    pub(crate) const fn key(self) -> (u32, u32) {
        (self.slot, self.generation)
    }

    /// Returns whether the handle is not [`Team::INVALID`]. The handle of a destroyed team still counts as valid.
    #[inline(always)]
    pub const fn is_valid(self) -> bool {
        self.slot != u32::MAX
    }
}

// SAFETY: `repr(C)`, two words without padding; device code checks them against its table before it believes them.
unsafe impl KernelArg for Team {}

/// # Teams
///
/// Translation between members of teams and PE numbers.
impl<S: Sharing> Ctx<'_, S> {
    /// Returns this PE's number in the team, or `None` if the handle refers to no team.
    ///
    /// OpenSHMEM 1.6 section 9.4, `shmem_team_my_pe`.
    #[inline(always)]
    pub fn team_my_pe(&self, team: Team) -> Option<u32> {
        let desc = self.team_desc(team)?;
        // SAFETY: the host keeps the table; a team's entry does not change while it is one.
        Some(unsafe { (*desc).my_pe })
    }

    /// Returns the number of members of the team, or `None` if the handle refers to no team.
    ///
    /// OpenSHMEM 1.6 section 9.4, `shmem_team_n_pes`.
    #[inline(always)]
    pub fn team_n_pes(&self, team: Team) -> Option<u32> {
        let desc = self.team_desc(team)?;
        // SAFETY: as above.
        Some(unsafe { (*desc).n_pes })
    }

    /// Translates member `index` of team `from` to its number in team `to`. Returns `None` if that PE is not in `to`,
    /// if there is no such member, or if a handle refers to no team.
    ///
    /// `ctx.translate_pe(team, 2, Team::WORLD)` returns the PE number of member 2.
    ///
    /// OpenSHMEM 1.6 section 9.4, `shmem_team_translate_pe`.
    #[inline(always)]
    pub fn translate_pe(&self, from: Team, index: u32, to: Team) -> Option<u32> {
        let (from, to) = (self.team_desc(from)?, self.team_desc(to)?);
        // SAFETY: as above; the lists have as many words as there are members and PEs, and name PEs.
        let number = unsafe {
            if index >= (*from).n_pes {
                return None;
            }
            let pe = arch::read((*from).pes.ptr::<u32>().add(index as usize));
            arch::read((*to).members.ptr::<u32>().add(pe as usize))
        };
        // `u32::MAX` marks PEs outside the team.
        if number == u32::MAX { None } else { Some(number) }
    }

    /// Returns the copy of `object` on member `index` of `team`, like [`Ctx::ptr`]. Also returns `None` if there is no
    /// such member or team.
    ///
    /// OpenSHMEM 1.6 section 9.2, `shmem_team_ptr`.
    #[inline(always)]
    pub fn team_ptr<T: Pod>(&self, team: Team, object: SymSlice<T>, index: u32) -> Option<RemoteView<'_, T>> {
        self.ptr(object, self.translate_pe(team, index, Team::WORLD)?)
    }

    /// Returns the team with this [number](Team::to_bits), or `None` if there is none.
    ///
    /// A kernel can read the number from memory, so the host can replace the team while the kernel runs or a graph
    /// contains it.
    #[inline(always)]
    pub fn team_from_bits(&self, bits: u64) -> Option<Team> {
        let team = Team { slot: bits as u32, generation: (bits >> 32) as u32 };
        self.team_desc(team).map(|_| team)
    }

    /// Records that the handle refers to no team, and returns the error.
    #[cold]
    #[inline(always)]
    #[track_caller]
    pub(crate) fn bad_team(&self, team: Team) -> Error {
        let (found, wanted) = (team.slot.into(), team.generation.into());
        self.fail(Error::BadTeam, Detail { found, wanted, ..Detail::NONE })
    }

    /// Returns the table entry of a team, or `None` if the handle refers to no team.
    #[inline(always)]
    pub(crate) fn team_desc(&self, team: Team) -> Option<*mut TeamDesc> {
        let desc = self.team_entry(team)?;
        // SAFETY: the host made it.
        let generation = unsafe { arch::read(&raw const (*desc).generation) };
        if generation != 0 && generation == team.generation { Some(desc) } else { None }
    }

    /// Returns the table entry in the handle's slot, for channel 0, whether or not it is that of the handle's team.
    /// `None` if there is no such slot.
    #[inline(always)]
    pub(crate) fn team_entry(&self, team: Team) -> Option<*mut TeamDesc> {
        let p = self.parts_ref();
        // The host made the table, with that many entries.
        if team.slot >= p.team_slots {
            None
        } else {
            Some(p.teams.ptr::<TeamDesc>().wrapping_add(team.slot as usize * MAX_CHANNELS as usize))
        }
    }
}
