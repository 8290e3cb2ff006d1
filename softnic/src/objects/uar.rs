//! UAR pages, which contain the registers for doorbells and CQ arm requests.

use crate::memory::Memory;
use crate::queue_memory::{BadQueueMemory, QueueMemory};
use rushmem_mlx5::doorbell::uar as layout;
use std::sync::Arc;

/// Offsets of the registers in a UAR page: the one that arms CQs, then those for send doorbells.
///
/// Those are the register for QPs without a doorbell record, and both halves of the two BlueFlame registers. The
/// adapter fetches WQEs from the queue, so it ignores the rest of a BlueFlame register.
const REGISTERS: [usize; 6] = [
    layout::CQ_ARM,
    layout::NO_DBR,
    layout::DB,
    layout::DB + layout::NC_REG_STRIDE,
    layout::DB + 2 * layout::NC_REG_STRIDE,
    layout::DB + 3 * layout::NC_REG_STRIDE,
];

/// A doorbell read from a register of a UAR page.
#[derive(Clone, Copy)]
pub(crate) struct Rung {
    pub(crate) value: u64,
    /// Whether the doorbell was rung through a register for QPs with a doorbell record.
    pub(crate) has_record: bool,
}

pub(crate) struct UarPage {
    pub(crate) owner: u32,
    pub(crate) page: QueueMemory,
    pub(crate) qps: Vec<u32>,
    pub(crate) cqs: Vec<u32>,
    /// Number of QPs and CQs that use the UAR page.
    pub(crate) users: u32,
    /// Whether the page is removed with its last user.
    pub(crate) is_released: bool,
}

impl UarPage {
    /// Creates a UAR page from the 4096 bytes of `memory` at `offset`.
    pub(crate) fn new(owner: u32, memory: &Arc<dyn Memory>, offset: u64) -> Result<UarPage, BadQueueMemory> {
        let page = QueueMemory::new(memory, offset, layout::PAGE_BYTES, layout::PAGE_BYTES)?;
        Ok(UarPage { owner, page, qps: Vec::new(), cqs: Vec::new(), users: 0, is_released: false })
    }

    /// Whether a doorbell on this page can be overlooked, in which case only the doorbell record shows it.
    ///
    /// The last doorbell on a shared page may overwrite others. In GPU memory, a repeated doorbell is indistinguishable
    /// from the previous one.
    pub(crate) fn loses_doorbells(&self) -> bool {
        self.qps.len() > 1 || self.page.is_remote()
    }

    /// Reads the doorbell registers into `rung`, and returns the request to arm a CQ, if any. A register is reset to 0,
    /// which makes a repeated value visible, except in GPU memory.
    #[inline]
    pub(crate) fn take(&self, rung: &mut Vec<Rung>) -> Option<u64> {
        let mut arm = None;
        self.page.take_words(&REGISTERS, |register, value| match register {
            layout::CQ_ARM => arm = Some(value),
            _ => rung.push(Rung { value, has_record: register != layout::NO_DBR }),
        });
        arm
    }
}
