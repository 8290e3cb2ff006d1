//! Doorbell pages.

use crate::memory::Memory;
use crate::queue_memory::{BadQueueMemory, QueueMemory};
use rushmem_mlx5::doorbell::uar as layout;
use std::sync::Arc;

/// Registers where a send doorbell may arrive: both halves of the two BlueFlame registers, which on an uncached page
/// are its four doorbell registers, and the register for QPs without a doorbell record. What a whole entry leaves in the
/// rest of a BlueFlame register is never looked at: the adapter fetches the entry from the queue.
const REGISTERS: [usize; 5] = [
    layout::DB,
    layout::DB + layout::NC_REG_STRIDE,
    layout::DB + 2 * layout::NC_REG_STRIDE,
    layout::DB + 3 * layout::NC_REG_STRIDE,
    layout::NO_DBR,
];

/// A doorbell page, and who uses it.
pub(crate) struct UarPage {
    pub(crate) owner: u32,
    pub(crate) page: QueueMemory,
    /// QPs whose doorbells are rung here.
    pub(crate) qps: Vec<u32>,
    /// CQs that are armed here.
    pub(crate) cqs: Vec<u32>,
    /// Objects that name the page: QPs and CQs.
    pub(crate) users: u32,
}

impl UarPage {
    /// A page that nobody uses yet: 4096 bytes of `memory` from `offset`.
    pub(crate) fn new(owner: u32, memory: &Arc<dyn Memory>, offset: u64) -> Result<UarPage, BadQueueMemory> {
        let page = QueueMemory::new(memory, offset, layout::PAGE_BYTES, layout::PAGE_BYTES)?;
        Ok(UarPage { owner, page, qps: Vec::new(), cqs: Vec::new(), users: 0 })
    }

    /// Takes the request that is in the CQ arm register.
    #[inline]
    pub(crate) fn take_arm(&self) -> Option<u64> {
        self.page.take_u64(layout::CQ_ARM)
    }

    /// Takes the doorbells that are in the registers. A register reads 0 until it is rung, so that even a doorbell
    /// with the same value as the last is noticed.
    #[inline]
    pub(crate) fn take(&self, rung: &mut Vec<u64>) {
        for register in REGISTERS {
            if let Some(value) = self.page.take_u64(register) {
                rung.push(value);
            }
        }
    }
}
