//! Completion queues.

use crate::window::Window;
use rushmem_mlx5::{Cqe, cqe::owner_bit, doorbell::CqRecord};

/// A completion queue.
pub(crate) struct Cq {
    pub(crate) owner: u32,
    pub(crate) ring: Window,
    pub(crate) record: Window,
    pub(crate) log_size: u8,
    /// Collapsed: every entry is written to slot 0.
    pub(crate) collapsed: bool,
    /// The consumer counter is never looked at.
    pub(crate) ignore_overrun: bool,
    pub(crate) uar: u32,
    pub(crate) eqn: u8,
    /// An entry found no room: nothing is written any more.
    pub(crate) overrun: bool,
    /// Entries written, ever.
    pub(crate) produced: u64,
    /// QPs that complete here, once per queue.
    pub(crate) users: u32,
    /// The umems of ring and record.
    pub(crate) umems: [u32; 2],
}

/// The CQ was full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Overrun;

impl Cq {
    /// Writes the next entry, which `make` builds for its owner bit.
    #[inline]
    pub(crate) fn push(&mut self, make: impl FnOnce(bool) -> Cqe) -> Result<(), Overrun> {
        if self.overrun {
            return Err(Overrun);
        }
        let entries = 1u32 << self.log_size;
        let index = self.produced as u32;
        if !self.ignore_overrun {
            let used = index.wrapping_sub(self.consumed()) & 0xff_ffff;
            if used >= entries {
                self.overrun = true;
                return Err(Overrun);
            }
        }
        let slot = if self.collapsed { 0 } else { index & (entries - 1) };
        let cqe = make(owner_bit(index, entries));
        tracing::trace!(slot, %cqe, "completion");
        self.ring.store_cqe(slot as usize, &cqe);
        self.produced += 1;
        Ok(())
    }

    /// The consumer counter that the driver last wrote, 24 bits.
    pub(crate) fn consumed(&self) -> u32 {
        u32::from_be(self.record.load_u32(CqRecord::SET_CI_OFFSET)) & 0xff_ffff
    }
}
