//! Doorbell pages.

use crate::window::Window;
use rushmem_mlx5::doorbell::uar as layout;

/// Registers where a send doorbell may arrive: both halves of the two BlueFlame registers, which on an uncached page
/// are its four doorbell registers, and the register for QPs without a doorbell record.
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
    pub(crate) page: Window,
    /// QPs whose doorbells are rung here.
    pub(crate) qps: Vec<u32>,
    /// Objects that name the page: QPs and CQs.
    pub(crate) users: u32,
}

impl UarPage {
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
