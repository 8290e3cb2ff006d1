//! Completion queues: writing CQEs, detecting overruns, and raising completion events.

use crate::queue_memory::QueueMemory;
use rushmem_mlx5::be::Be32;
use rushmem_mlx5::cqe::{CQE_BYTES, Cqe, owner_bit};
use rushmem_mlx5::doorbell::{ArmWord, CqRecord};
use rushmem_mlx5::prm::cq::CqContext;

pub(crate) struct Cq {
    pub(crate) owner: u32,
    pub(crate) ring: QueueMemory,
    pub(crate) record: QueueMemory,
    /// Size of a CQ slot, in bytes. The CQE occupies the last 64.
    pub(crate) entry: usize,
    pub(crate) log_size: u8,
    /// Whether the CQ is collapsed: every CQE is written to slot 0.
    pub(crate) collapsed: bool,
    /// Whether the consumer counter is ignored, so the CQ never overruns.
    pub(crate) ignore_overrun: bool,
    pub(crate) uar: u32,
    pub(crate) eqn: u8,
    pub(crate) moderation: Moderation,
    /// Set after an overrun, when no more CQEs are written.
    pub(crate) overrun: bool,
    pub(crate) produced: u64,
    pub(crate) arm_state: ArmState,
    /// Number of send and receive queues that complete to this CQ.
    pub(crate) users: u32,
    /// IDs of the umems that contain the CQ's ring and its doorbell record.
    pub(crate) umems: [u32; 2],
}

/// Whether the driver has requested an event from a CQ, and which CQEs have raised one. CQEs are counted modulo 2^32.
#[derive(Debug, Default)]
pub(crate) struct ArmState {
    armed: Option<ArmWord>,
    /// The last arm request, as read from the doorbell record or the UAR.
    seen: Option<ArmWord>,
    /// Number of CQEs up to and including the last one that was solicited or an error.
    pub(crate) solicited: u32,
    /// Number of CQEs written when the last event was raised.
    pub(crate) last: u32,
}

/// How long, and for how many CQEs, an event may be delayed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Moderation {
    /// In microseconds.
    pub(crate) period: u16,
    pub(crate) count: u16,
    pub(crate) mode: u8,
}

/// Error: a CQE could not be written because the CQ is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Overrun;

impl Cq {
    /// Creates an empty CQ with the attributes of CREATE_CQ.
    pub(crate) fn new(owner: u32, context: &CqContext, ring: QueueMemory, record: QueueMemory) -> Cq {
        Cq {
            owner,
            ring,
            record,
            entry: CQE_BYTES << context.cqe_sz,
            log_size: context.log_cq_size,
            collapsed: context.cc,
            ignore_overrun: context.oi,
            uar: context.uar_page,
            eqn: context.c_eqn,
            moderation: Moderation {
                period: context.cq_period,
                count: context.cq_max_count,
                mode: context.cq_period_mode,
            },
            overrun: false,
            produced: 0,
            arm_state: ArmState::default(),
            users: 0,
            umems: [0; 2],
        }
    }

    /// Writes the next CQE, which `make` builds for its owner bit. Returns whether it raises the CQ's event.
    ///
    /// Hardware relies on the driver to invalidate all CQEs first. This adapter invalidates the next CQE before it
    /// writes one during the first pass, so a driver that polls in order needs to initialize only the first CQE.
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
        if !self.collapsed && self.produced + 1 < u64::from(entries) {
            self.ring.invalidate((slot as usize + 2) * self.entry - CQE_BYTES);
        }
        self.ring.store_cqe((slot as usize + 1) * self.entry - CQE_BYTES, &cqe);
        self.produced += 1;
        let kind = cqe.op_own();
        if kind.is_solicited() || kind.opcode().is_error() {
            self.arm_state.solicited = self.produced as u32;
        }
        Ok(self.arm_state.armed.is_some() && self.raise())
    }

    /// Writes the last CQE of the current ring, and continues in `ring`.
    ///
    /// Fails if either ring has no free slot besides the CQEs that the driver has not polled. The slot is required
    /// because the consumer counter lags.
    pub(crate) fn resize(&mut self, ring: QueueMemory, log_size: u8) -> Result<(), Overrun> {
        let (index, entries) = (self.produced as u32, 1u32 << self.log_size);
        let unpolled = index.wrapping_sub(self.consumed()) & 0xff_ffff;
        if self.overrun || unpolled >= entries.min(1 << log_size) {
            return Err(Overrun);
        }
        let slot = (index & (entries - 1)) as usize;
        self.ring.store_cqe((slot + 1) * self.entry - CQE_BYTES, &Cqe::resized(owner_bit(index, entries)));
        self.produced += 1;
        (self.ring, self.log_size) = (ring, log_size);
        Ok(())
    }

    /// Returns the consumer counter that the driver last wrote, 24 bits.
    pub(crate) fn consumed(&self) -> u32 {
        u32::from_be(self.record.load_u32(CqRecord::SET_CI_OFFSET)) & 0xff_ffff
    }

    /// Returns the arm request in the doorbell record, unless it has been processed.
    ///
    /// Before the first request, a zeroed record counts as one. A spurious event is harmless, a missing one is not.
    pub(crate) fn unseen_request(&self) -> Option<ArmWord> {
        let request = ArmWord(Be32::from_raw(self.record.load_u32(CqRecord::ARM_OFFSET)));
        (self.arm_state.seen != Some(request)).then_some(request)
    }

    /// Requests an event at the next CQE, or the next solicited one. Returns whether that CQE already exists.
    ///
    /// The CQE must be past both the consumer counter of `request` and the last event. Programs arm after the event of
    /// a CQE and before they poll it. Such a CQE must not raise another event.
    pub(crate) fn arm(&mut self, request: ArmWord) -> bool {
        (self.arm_state.armed, self.arm_state.seen) = (Some(request), Some(request));
        self.raise()
    }

    /// Disarms the CQ if the requested CQE has been written. Returns whether it has.
    fn raise(&mut self) -> bool {
        let Some(request) = self.arm_state.armed else { return false };
        let there = if request.solicited_only() { self.arm_state.solicited } else { self.produced as u32 };
        // The consumer counter has 24 bits, so shift the sign bit into place. An older solicited CQE gives a negative
        // value.
        let ahead = (there.wrapping_sub(request.consumer()) << 8) as i32;
        let beyond = if request.solicited_only() { ahead > 0 } else { ahead != 0 };
        let raised = beyond && there.wrapping_sub(self.arm_state.last) as i32 > 0;
        if raised {
            (self.arm_state.armed, self.arm_state.last) = (None, self.produced as u32);
        }
        raised
    }
}
