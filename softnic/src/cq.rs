//! Completion queues.

use crate::queue_memory::QueueMemory;
use rushmem_mlx5::be::Be32;
use rushmem_mlx5::cqe::{CQE_BYTES, Cqe, owner_bit};
use rushmem_mlx5::doorbell::{ArmWord, CqRecord};

/// A completion queue.
pub(crate) struct Cq {
    pub(crate) owner: u32,
    pub(crate) ring: QueueMemory,
    pub(crate) record: QueueMemory,
    /// Bytes of one slot, of which the last 64 are the entry.
    pub(crate) entry: usize,
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
    pub(crate) arm_state: ArmState,
    /// QPs that complete here, once per queue.
    pub(crate) users: u32,
    /// The umems of ring and record.
    pub(crate) umems: [u32; 2],
}

/// What a CQ is armed for, and what it has told. Counters are the CQ's, modulo 2^32.
#[derive(Debug, Default)]
pub(crate) struct ArmState {
    armed: Option<ArmWord>,
    /// The last request that was taken.
    seen: Option<ArmWord>,
    /// One past the last entry that was solicited, or an error.
    pub(crate) solicited: u32,
    /// One past the entry that raised the last event.
    pub(crate) last: u32,
}

/// The CQ was full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Overrun;

impl Cq {
    /// Writes the next entry, which `make` builds for its owner bit. Returns whether it raises the CQ's event.
    #[inline]
    pub(crate) fn push(&mut self, make: impl FnOnce(bool) -> Cqe) -> Result<bool, Overrun> {
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
        self.ring.store_cqe((slot as usize + 1) * self.entry - CQE_BYTES, &cqe);
        self.produced += 1;
        let kind = cqe.op_own();
        if kind.is_solicited() || kind.opcode().is_error() {
            self.arm_state.solicited = self.produced as u32;
        }
        Ok(self.arm_state.armed.is_some() && self.raise())
    }

    /// The consumer counter that the driver last wrote, 24 bits.
    pub(crate) fn consumed(&self) -> u32 {
        u32::from_be(self.record.load_u32(CqRecord::SET_CI_OFFSET)) & 0xff_ffff
    }

    /// The request in the record, if it has not been taken yet. Before the first request a record of zeroes looks like
    /// one, and is taken for one: an event too many does no harm, one too few would.
    pub(crate) fn unseen_request(&self) -> Option<ArmWord> {
        let request = ArmWord(Be32::from_raw(self.record.load_u32(CqRecord::ARM_OFFSET)));
        (self.arm_state.seen != Some(request)).then_some(request)
    }

    /// Asks for an event at the next entry, or the next solicited one, beyond the consumer counter in `request` and beyond
    /// what an event has told of. Returns whether that entry is there already. (Programs arm when they have heard of an
    /// entry, before they take it: that entry is no news.)
    pub(crate) fn arm(&mut self, request: ArmWord) -> bool {
        (self.arm_state.armed, self.arm_state.seen) = (Some(request), Some(request));
        self.raise()
    }

    /// Disarms the CQ if what it waits for is there.
    fn raise(&mut self) -> bool {
        let Some(request) = self.arm_state.armed else { return false };
        let there = if request.solicited_only() { self.arm_state.solicited } else { self.produced as u32 };
        // 24 bits of the consumer counter travel; an older solicited entry is behind it.
        let ahead = (there.wrapping_sub(request.consumer()) << 8) as i32;
        let beyond = if request.solicited_only() { ahead > 0 } else { ahead != 0 };
        let raised = beyond && there.wrapping_sub(self.arm_state.last) as i32 > 0;
        if raised {
            (self.arm_state.armed, self.arm_state.last) = (None, self.produced as u32);
        }
        raised
    }
}
