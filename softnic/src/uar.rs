//! UAR pages.

use crate::memory::Memory;
use crate::queue_memory::{BadQueueMemory, QueueMemory};
use rushmem_mlx5::doorbell::uar as layout;
use std::sync::Arc;

/// Offsets of the registers for send doorbells.
///
/// These are both halves of the two BlueFlame registers, and the register for QPs without a doorbell record. The
/// adapter fetches WQEs from the queue, so it ignores the rest of a BlueFlame register.
const REGISTERS: [usize; 5] = [
    layout::DB,
    layout::DB + layout::NC_REG_STRIDE,
    layout::DB + 2 * layout::NC_REG_STRIDE,
    layout::DB + 3 * layout::NC_REG_STRIDE,
    layout::NO_DBR,
];

/// A UAR page and its users.
pub(crate) struct UarPage {
    pub(crate) owner: u32,
    pub(crate) page: QueueMemory,
    /// QPs with this UAR page.
    pub(crate) qps: Vec<u32>,
    /// CQs with this UAR page.
    pub(crate) cqs: Vec<u32>,
    /// Number of QPs and CQs that use the page.
    pub(crate) users: u32,
}

impl UarPage {
    /// Creates an unused page of 4096 bytes of `memory` from `offset`.
    pub(crate) fn new(owner: u32, memory: &Arc<dyn Memory>, offset: u64) -> Result<UarPage, BadQueueMemory> {
        let page = QueueMemory::new(memory, offset, layout::PAGE_BYTES, layout::PAGE_BYTES)?;
        Ok(UarPage { owner, page, qps: Vec::new(), cqs: Vec::new(), users: 0 })
    }

    /// Takes the request in the CQ arm register.
    #[inline]
    pub(crate) fn take_arm(&self) -> Option<u64> {
        self.page.take_u64(layout::CQ_ARM)
    }

    /// Takes the doorbells in the registers. A register reads 0 until it is rung, so that a repeated value is noticed.
    #[inline]
    pub(crate) fn take(&self, rung: &mut Vec<u64>) {
        for register in REGISTERS {
            if let Some(value) = self.page.take_u64(register) {
                rung.push(value);
            }
        }
    }
}
