//! Ordering, completion and barriers of the host.

use rushmem_runtime_kernels::code::Order;

use crate::{Pe, Result};

impl Pe {
    /// Orders: what was issued on the PE's default context before, by the host and by kernels that have ended, is
    /// delivered to each PE before what is issued to it afterwards. Completes nothing. OpenSHMEM 1.6 section 9.11,
    /// `shmem_fence`.
    ///
    /// # Errors
    /// As [`Pe::put`].
    pub fn fence(&self) -> Result<()> {
        self.initiate(self.op_order("fence", Order::Fence))
    }

    /// Completes: what was issued on the PE's default context before, by the host and by kernels that have ended, is
    /// delivered and visible, and gets are here. OpenSHMEM 1.6 section 9.11, `shmem_quiet`.
    ///
    /// # Errors
    /// As [`Pe::put`].
    pub fn quiet(&self) -> Result<()> {
        self.initiate(self.op_order("quiet", Order::Quiet))
    }

    /// As [`Pe::quiet`], for what was issued to these PEs only. OpenSHMEM 1.6 section 9.11, `shmem_pe_quiet`.
    ///
    /// # Errors
    /// As [`Pe::put`].
    pub fn quiet_pes(&self, pes: &[u32]) -> Result<()> {
        pes.iter().try_for_each(|&pe| self.initiate(self.op_quiet_pe("quiet_pes", pe)?))
    }

    /// [`Pe::quiet`], and then waits until all PEs have come to it. Collective, and matched with the barriers of the
    /// others' kernels and streams: hosts, streams and kernels of a PE call it one at a time. OpenSHMEM 1.6 section 9.9,
    /// `shmem_barrier_all`.
    ///
    /// [`Pe::host_sync`] only synchronizes the hosts and does not complete communication.
    ///
    /// # Errors
    /// As [`Pe::put`]; after the deadline if a PE does not come.
    pub fn barrier_all(&self) -> Result<()> {
        self.initiate(self.op_order("barrier_all", Order::BarrierAll))
    }

    /// Waits until all PEs have come to it, and completes nothing; otherwise as [`Pe::barrier_all`]. OpenSHMEM 1.6 section
    /// 9.9, `shmem_sync_all`.
    ///
    /// # Errors
    /// As [`Pe::barrier_all`].
    pub fn sync_all(&self) -> Result<()> {
        self.initiate(self.op_order("sync_all", Order::SyncAll))
    }
}
