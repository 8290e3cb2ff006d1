//! The initialization segment at the start of BAR 0: versions, command queue, health and clock.

use crate::command::{LOG_ENTRIES, LOG_STRIDE};
use rushmem_softnic::Health;

/// Length of the segment, in bytes. The first doorbell page follows later.
pub(crate) const BYTES: u64 = 0x4000;

/// Revision of the command interface.
const INTERFACE: u16 = 5;

/// State of the command interface in which the driver may not use it.
const DISABLED: u32 = 1;

/// Syndrome of the health buffer: the firmware has an internal error.
const INTERNAL_ERROR: u32 = 1;

/// Offsets of the registers.
mod at {
    pub(super) const FW_REV: u64 = 0x0;
    pub(super) const CMDIF_REV: u64 = 0x4;
    pub(super) const QUEUE_HIGH: u64 = 0x10;
    pub(super) const QUEUE_LOW: u64 = 0x14;
    pub(super) const DOORBELL: u64 = 0x18;
    pub(super) const HEALTH_VERSION: u64 = 0x230;
    pub(super) const HEALTH_SYNDROME: u64 = 0x23c;
    pub(super) const TIMER_HIGH: u64 = 0x1000;
    pub(super) const TIMER_LOW: u64 = 0x1004;
    pub(super) const HEALTH_COUNTER: u64 = 0x1010;
}

/// The registers of the segment that the driver writes.
#[derive(Default)]
pub(crate) struct Segment {
    queue_high: u32,
    queue_low: u32,
    /// State of the command interface, as requested by the driver. 0 is full operation.
    state: u32,
}

/// What the registers show of the adapter.
#[derive(Clone, Copy)]
pub(crate) struct Shown {
    pub(crate) health: Health,
    /// Clock of the adapter, in nanoseconds.
    pub(crate) clock: u64,
    /// Version of the firmware: major, minor, subminor.
    pub(crate) firmware: [u16; 3],
}

/// What a write to a register requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    Nothing,
    /// The commands in the queue at this bus address whose bits are set.
    Commands {
        queue: u64,
        entries: u32,
    },
}

impl Segment {
    /// Reads the 4-byte register at `offset`.
    pub(crate) fn read(&self, offset: u64, shown: Shown) -> u32 {
        let [major, minor, sub] = shown.firmware.map(u32::from);
        match offset {
            at::FW_REV => minor << 16 | major,
            at::CMDIF_REV => u32::from(INTERFACE) << 16 | sub,
            at::QUEUE_HIGH => self.queue_high,
            at::QUEUE_LOW => {
                self.queue_low | self.state << 8 | u32::from(LOG_ENTRIES) << 4 | u32::from(LOG_STRIDE)
            }
            at::HEALTH_VERSION => major << 24 | minor << 16 | sub,
            at::HEALTH_SYNDROME if shown.health.has_failed => INTERNAL_ERROR << 16,
            at::TIMER_HIGH => (shown.clock >> 32) as u32,
            at::TIMER_LOW => shown.clock as u32,
            // The driver checks that it changes within some seconds; it stops with the firmware.
            at::HEALTH_COUNTER if !shown.health.has_failed => (shown.clock / 10_000_000) as u32 & 0xff_ffff,
            _ => 0,
        }
    }

    /// Writes the 4-byte register at `offset`. Most are read-only.
    pub(crate) fn write(&mut self, offset: u64, value: u32) -> Written {
        match offset {
            at::QUEUE_HIGH => self.queue_high = value,
            at::QUEUE_LOW => {
                self.queue_low = value & !0xfff;
                self.state = value >> 8 & 7;
            }
            at::DOORBELL if self.state != DISABLED => {
                let queue = u64::from(self.queue_high) << 32 | u64::from(self.queue_low);
                return Written::Commands { queue, entries: value };
            }
            _ => {}
        }
        Written::Nothing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(has_failed: bool, clock: u64) -> Shown {
        Shown { health: Health { has_failed, ..Health::default() }, clock, firmware: [28, 43, 1014] }
    }

    #[test]
    fn a_driver_sets_up_the_queue() {
        let mut segment = Segment::default();
        assert_eq!(segment.read(0x4, shown(false, 0)) >> 16, 5);
        // 32 entries of 64 bytes, in full operation.
        assert_eq!(segment.read(0x14, shown(false, 0)), 0x56);
        assert_eq!(segment.write(0x10, 0x12), Written::Nothing);
        assert_eq!(segment.write(0x14, 0x3456_7000), Written::Nothing);
        assert_eq!(segment.read(0x14, shown(false, 0)), 0x3456_7056);
        let commands = Written::Commands { queue: 0x12_3456_7000, entries: 5 };
        assert_eq!(segment.write(0x18, 5), commands);
        segment.write(0x14, 1 << 8);
        assert_eq!(segment.write(0x18, 5), Written::Nothing);
    }

    #[test]
    fn health_and_clock_are_visible() {
        let segment = Segment::default();
        assert_eq!(segment.read(0x1000, shown(false, 0x12_3456_789a)), 0x12);
        assert_eq!(segment.read(0x1004, shown(false, 0x12_3456_789a)), 0x3456_789a);
        assert_eq!(segment.read(0x230, shown(false, 0)), 28 << 24 | 43 << 16 | 1014);
        let count = |clock| segment.read(0x1010, shown(false, clock));
        assert_ne!(count(0), count(1_000_000_000));
        assert_eq!(
            (segment.read(0x23c, shown(false, 9)), segment.read(0x23c, shown(true, 9))),
            (0, 0x1_0000)
        );
    }
}
