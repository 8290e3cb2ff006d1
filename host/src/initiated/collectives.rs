//! Collective calls of the host.

use bytemuck::Pod;
use rushmem_device::{Element, Reduce, Scan, SymSlice, Team};
use rushmem_runtime_kernels::code::Collective;

use crate::{Pe, Result};

/// Collective calls of a team: all members make them, in the same order, from hosts, kernels or streams. One of a team is in
/// progress on a PE at a time. What makes a source and a destination legal is told with the call of the same name of
/// [`Ctx`](rushmem_device::Ctx).
impl Pe {
    /// Waits until all members of the team have come to it, and completes nothing. OpenSHMEM 1.6 section 9.9,
    /// `shmem_team_sync`.
    ///
    /// # Errors
    /// As [`Pe::barrier_all`].
    pub fn team_sync(&self, team: Team) -> Result<()> {
        self.initiate(self.op_meeting("team_sync", Collective::Sync, team))
    }

    /// [`Pe::quiet`], and then [`Pe::team_sync`]: after it, everything that any member issued before it is complete.
    /// OpenSHMEM 1.6 section 9.9, `shmem_barrier`.
    ///
    /// # Errors
    /// As [`Pe::barrier_all`].
    pub fn team_barrier(&self, team: Team) -> Result<()> {
        self.initiate(self.op_meeting("team_barrier", Collective::Barrier, team))
    }

    /// Copies `src` of the member `root` to `dst` of every member, its own included. OpenSHMEM 1.6 section 9.9,
    /// `shmem_broadcast`.
    ///
    /// # Errors
    /// As [`Pe::barrier_all`].
    pub fn broadcast<T: Pod>(&self, team: Team, dst: SymSlice<T>, src: SymSlice<T>, root: u32) -> Result<()> {
        let name = "broadcast";
        self.initiate(self.op_collective(name, Collective::Broadcast, team, dst, src, root)?)
    }

    /// Copies every member's `src` to every member's `dst`, one after another in the order of the team. OpenSHMEM 1.6
    /// section 9.9, `shmem_fcollect`.
    ///
    /// # Errors
    /// As [`Pe::barrier_all`].
    pub fn fcollect<T: Pod>(&self, team: Team, dst: SymSlice<T>, src: SymSlice<T>) -> Result<()> {
        self.initiate(self.op_collective("fcollect", Collective::Fcollect, team, dst, src, 0)?)
    }

    /// As [`Pe::fcollect`], of sources with different lengths, which may be 0. OpenSHMEM 1.6 section 9.9,
    /// `shmem_collect`.
    ///
    /// # Errors
    /// As [`Pe::barrier_all`].
    pub fn collect<T: Pod>(&self, team: Team, dst: SymSlice<T>, src: SymSlice<T>) -> Result<()> {
        self.initiate(self.op_collective("collect", Collective::Collect, team, dst, src, 0)?)
    }

    /// Copies the `j`-th part of every member's `src` to member `j`, which has that of member `i` as the `i`-th part of
    /// its `dst`. OpenSHMEM 1.6 section 9.9, `shmem_alltoall`.
    ///
    /// # Errors
    /// As [`Pe::barrier_all`].
    pub fn alltoall<T: Pod>(&self, team: Team, dst: SymSlice<T>, src: SymSlice<T>) -> Result<()> {
        self.initiate(self.op_collective("alltoall", Collective::Alltoall, team, dst, src, 0)?)
    }

    /// Combines the elements of every member's `src`, each with those at its place, into every member's `dst`. OpenSHMEM
    /// 1.6 section 9.9, `shmem_sum_reduce` and its kin.
    ///
    /// # Errors
    /// As [`Pe::barrier_all`].
    pub fn reduce<T: Element>(
        &self,
        team: Team,
        op: Reduce,
        dst: SymSlice<T>,
        src: SymSlice<T>,
    ) -> Result<()> {
        self.initiate(self.op_reduction("reduce", Collective::Reduce, team, op as u32, dst, src)?)
    }

    /// As [`Pe::reduce`], but member `i` gets only the `i`-th part of the result. NVSHMEM's
    /// `nvshmem_sum_reducescatter` and its kin.
    ///
    /// # Errors
    /// As [`Pe::barrier_all`].
    pub fn reduce_scatter<T: Element>(
        &self,
        team: Team,
        op: Reduce,
        dst: SymSlice<T>,
        src: SymSlice<T>,
    ) -> Result<()> {
        let name = "reduce_scatter";
        self.initiate(self.op_reduction(name, Collective::ReduceScatter, team, op as u32, dst, src)?)
    }

    /// Sums of the elements of the members up to each, or of those before it, into its `dst`. OpenSHMEM 1.6 section 9.9,
    /// `shmem_sum_inscan`, `shmem_sum_exscan`.
    ///
    /// # Errors
    /// As [`Pe::barrier_all`].
    pub fn sum_scan<T: Element>(
        &self,
        team: Team,
        which: Scan,
        dst: SymSlice<T>,
        src: SymSlice<T>,
    ) -> Result<()> {
        self.initiate(self.op_reduction("sum_scan", Collective::Scan, team, which as u32, dst, src)?)
    }
}
