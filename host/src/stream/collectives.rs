//! Collective calls on a stream.

use bytemuck::Pod;
use rushmem_device::{Element, Reduce, Scan, SymSlice, Team};
use rushmem_runtime_kernels::code::Collective;

use super::Stream;
use crate::Result;

/// Collective calls of a team: all members make them, in the same order, from streams, hosts or kernels. One of a team is in
/// progress on a PE at a time: two streams may have collective calls of different teams in any order, those of one team
/// belong on one stream. What makes a source and a destination legal is told with the call of the same name of
/// [`Ctx`](rushmem_device::Ctx).
impl Stream<'_> {
    /// Waits until all members of the team have come to it, and completes nothing. OpenSHMEM 1.6 section 9.9,
    /// `shmem_team_sync`. NVSHMEM's `nvshmemx_team_sync_on_stream`.
    ///
    /// # Errors
    /// As all operations of a stream.
    pub fn team_sync(&self, team: Team) -> Result<()> {
        self.enqueue(self.pe().op_meeting("team_sync on a stream", Collective::Sync, team))
    }

    /// [`Stream::quiet`], and then [`Stream::team_sync`]: after it, everything that any member issued before it is complete.
    /// OpenSHMEM 1.6 section 9.9, `shmem_barrier`. NVSHMEM's `nvshmemx_barrier_on_stream`.
    ///
    /// # Errors
    /// As all operations of a stream.
    pub fn team_barrier(&self, team: Team) -> Result<()> {
        self.enqueue(self.pe().op_meeting("team_barrier on a stream", Collective::Barrier, team))
    }

    /// Copies `src` of the member `root` to `dst` of every member, its own included. OpenSHMEM 1.6 section 9.9,
    /// `shmem_broadcast`. NVSHMEM's `nvshmemx_broadcast_on_stream`.
    ///
    /// # Errors
    /// As all operations of a stream.
    pub fn broadcast<T: Pod>(&self, team: Team, dst: SymSlice<T>, src: SymSlice<T>, root: u32) -> Result<()> {
        let name = "broadcast on a stream";
        self.enqueue(self.pe().op_collective(name, Collective::Broadcast, team, dst, src, root)?)
    }

    /// Copies every member's `src` to every member's `dst`, one after another in the order of the team. OpenSHMEM 1.6
    /// section 9.9, `shmem_fcollect`. NVSHMEM's `nvshmemx_fcollect_on_stream`.
    ///
    /// # Errors
    /// As all operations of a stream.
    pub fn fcollect<T: Pod>(&self, team: Team, dst: SymSlice<T>, src: SymSlice<T>) -> Result<()> {
        self.enqueue(self.pe().op_collective(
            "fcollect on a stream",
            Collective::Fcollect,
            team,
            dst,
            src,
            0,
        )?)
    }

    /// As [`Stream::fcollect`], of sources with different lengths, which may be 0. OpenSHMEM 1.6 section 9.9,
    /// `shmem_collect`.
    ///
    /// # Errors
    /// As all operations of a stream.
    pub fn collect<T: Pod>(&self, team: Team, dst: SymSlice<T>, src: SymSlice<T>) -> Result<()> {
        self.enqueue(self.pe().op_collective(
            "collect on a stream",
            Collective::Collect,
            team,
            dst,
            src,
            0,
        )?)
    }

    /// Copies the `j`-th part of every member's `src` to member `j`, which has that of member `i` as the `i`-th part of
    /// its `dst`. OpenSHMEM 1.6 section 9.9, `shmem_alltoall`. NVSHMEM's `nvshmemx_alltoall_on_stream`.
    ///
    /// # Errors
    /// As all operations of a stream.
    pub fn alltoall<T: Pod>(&self, team: Team, dst: SymSlice<T>, src: SymSlice<T>) -> Result<()> {
        self.enqueue(self.pe().op_collective(
            "alltoall on a stream",
            Collective::Alltoall,
            team,
            dst,
            src,
            0,
        )?)
    }

    /// Combines the elements of every member's `src`, each with those at its place, into every member's `dst`. OpenSHMEM
    /// 1.6 section 9.9, `shmem_sum_reduce` and its kin. NVSHMEM's `nvshmemx_sum_reduce_on_stream`.
    ///
    /// # Errors
    /// As all operations of a stream.
    pub fn reduce<T: Element>(
        &self,
        team: Team,
        op: Reduce,
        dst: SymSlice<T>,
        src: SymSlice<T>,
    ) -> Result<()> {
        self.enqueue(self.pe().op_reduction(
            "reduce on a stream",
            Collective::Reduce,
            team,
            op as u32,
            dst,
            src,
        )?)
    }

    /// As [`Stream::reduce`], but member `i` gets only the `i`-th part of the result. NVSHMEM's
    /// `nvshmemx_sum_reducescatter_on_stream` and its kin.
    ///
    /// # Errors
    /// As all operations of a stream.
    pub fn reduce_scatter<T: Element>(
        &self,
        team: Team,
        op: Reduce,
        dst: SymSlice<T>,
        src: SymSlice<T>,
    ) -> Result<()> {
        let name = "reduce_scatter on a stream";
        self.enqueue(self.pe().op_reduction(name, Collective::ReduceScatter, team, op as u32, dst, src)?)
    }

    /// Sums of the elements of the members up to each, or of those before it, into its `dst`. OpenSHMEM 1.6 section 9.9,
    /// `shmem_sum_inscan`, `shmem_sum_exscan`.
    ///
    /// # Errors
    /// As all operations of a stream.
    pub fn sum_scan<T: Element>(
        &self,
        team: Team,
        which: Scan,
        dst: SymSlice<T>,
        src: SymSlice<T>,
    ) -> Result<()> {
        self.enqueue(self.pe().op_reduction(
            "sum_scan on a stream",
            Collective::Scan,
            team,
            which as u32,
            dst,
            src,
        )?)
    }
}
