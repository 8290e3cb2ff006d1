//! Teams: PEs that synchronise, and work together on data, among themselves.
//!
//! The host makes a team and gets a [`Team`], which a kernel takes as an argument. Members are numbered from 0 in the
//! order that the call which made the team says. What kernels know of a team lies in a table of the PE.
#![allow(unsafe_code, reason = "reads the team table of the launch")]

use crate::abi::TeamDesc;
use crate::arch;
use crate::ctx::Ctx;
use crate::kernel::KernelArg;

/// A team, as this PE knows it: a handle that each member has of its own. OpenSHMEM 1.6 section 9.4, `shmem_team_t`.
///
/// Only the runtime makes one. The handle of a team that has been destroyed, and that of a PE outside of the team
/// ([`Team::INVALID`]), are no teams: collective calls return [`Error::BadTeam`](crate::Error::BadTeam).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Team {
    slot: u32,
    generation: u32,
}

impl Team {
    /// All PEs of the job. `SHMEM_TEAM_WORLD`.
    pub const WORLD: Self = Self { slot: 0, generation: 1 };
    /// The PEs that reach each other's heaps by loads and stores, this one included. `SHMEM_TEAM_SHARED`.
    pub const SHARED: Self = Self { slot: 1, generation: 1 };
    /// The PEs of this PE's node. `NVSHMEMX_TEAM_NODE`.
    pub const NODE: Self = Self { slot: 2, generation: 1 };
    /// The PEs that have this PE's number on their nodes. `NVSHMEMX_TEAM_SAME_MYPE_NODE`.
    pub const RAIL: Self = Self { slot: 3, generation: 1 };
    /// No team: what a PE gets for a team that it is not in. `SHMEM_TEAM_INVALID`.
    pub const INVALID: Self = Self { slot: u32::MAX, generation: 0 };

    /// Teams that are always there.
    pub const PREDEFINED: u32 = 4;

    /// The handle of what is in `slot` of the table since `generation`.
    ///
    /// # Safety
    /// The runtime has put it there for the PE that uses the handle.
    pub const unsafe fn from_raw(slot: u32, generation: u32) -> Self {
        Self { slot, generation }
    }

    /// Its place in the table.
    #[inline(always)]
    pub const fn slot(self) -> u32 {
        self.slot
    }

    /// What tells it from other teams that had the same place.
    #[inline(always)]
    pub const fn generation(self) -> u32 {
        self.generation
    }

    /// False for [`Team::INVALID`] only: one that was destroyed still looks like a team.
    #[inline(always)]
    pub const fn is_valid(self) -> bool {
        self.slot != u32::MAX
    }
}

// SAFETY: `repr(C)`, two words without padding; device code checks them against its table before it believes them.
unsafe impl KernelArg for Team {}

impl<S> Ctx<S> {
    /// This PE's number in the team; none if that is no team. OpenSHMEM 1.6 section 9.4, `shmem_team_my_pe`.
    #[inline(always)]
    pub fn team_my_pe(&self, team: Team) -> Option<u32> {
        let desc = self.team_desc(team)?;
        // SAFETY: the host keeps the table; a team's entry does not change while it is one.
        Some(unsafe { (*desc).my_pe })
    }

    /// Members of the team; none if that is no team. OpenSHMEM 1.6 section 9.4, `shmem_team_n_pes`.
    #[inline(always)]
    pub fn team_n_pes(&self, team: Team) -> Option<u32> {
        let desc = self.team_desc(team)?;
        // SAFETY: as above.
        Some(unsafe { (*desc).n_pes })
    }

    /// The number in team `to` of what is member `index` of `from`; none if it is not in `to`, if there is no such
    /// member, or if one is no team. OpenSHMEM 1.6 section 9.4, `shmem_team_translate_pe`.
    ///
    /// `ctx.translate_pe(team, 2, Team::WORLD)` is what calls that take a PE want.
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
        if number == u32::MAX { None } else { Some(number) }
    }

    /// The entry of a team in the table; none if the handle is that of no team, or no more.
    #[inline(always)]
    pub(crate) fn team_desc(&self, team: Team) -> Option<*mut TeamDesc> {
        let desc = self.team_entry(team)?;
        // SAFETY: the host made it.
        let generation = unsafe { arch::read(&raw const (*desc).generation) };
        if generation != 0 && generation == team.generation { Some(desc) } else { None }
    }

    /// The entry of the table that the handle names, whichever team it is of.
    #[inline(always)]
    pub(crate) fn team_entry(&self, team: Team) -> Option<*mut TeamDesc> {
        let p = self.parts_ref();
        // The host made the table, with that many entries.
        if team.slot >= p.team_slots {
            None
        } else {
            Some(p.teams.ptr::<TeamDesc>().wrapping_add(team.slot as usize))
        }
    }
}
