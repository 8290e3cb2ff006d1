//! Notifying the NIC of posted work: doorbell records in host memory, and doorbell registers on the UAR page.
//!
//! A producer first makes its entries visible, then writes the record, then the register with a single 8-byte store.
//!
//! ```
//! use rushmem_mlx5::doorbell::{Doorbell, record_word};
//!
//! // QP 0x1a7, everything below WQEBB 0x13 is posted.
//! assert_eq!(record_word(0x13).to_le_bytes(), [0, 0, 0, 0x13]);
//! assert_eq!(Doorbell::producer(0x1a7, 0x13).raw().to_le_bytes(), [0, 0, 0x13, 0, 0, 1, 0xa7, 0]);
//! ```

use crate::{
    be::{Be32, Be64},
    ctrl::{CtrlSeg, Opcode},
    seg::blocks_for,
};
use bytemuck::{Pod, Zeroable, must_cast};
use core::mem::{offset_of, size_of};

/// Offsets and sizes within a 4 KiB UAR page, in bytes. Registers are write-only.
pub mod uar {
    /// Size of a UAR page, in bytes.
    pub const PAGE_BYTES: usize = 4096;
    /// Offset of the 8-byte register that arms a completion queue.
    pub const CQ_ARM: usize = 0x20;
    /// Offset of the event-queue doorbell register.
    pub const EQ: usize = 0x40;
    /// Offset of the 8-byte send doorbell for QPs that have no doorbell record.
    pub const NO_DBR: usize = 0x600;
    /// Offset of the send doorbell, the first of [`BF_REGS`] BlueFlame registers. It takes 8 bytes, or a complete entry
    /// on a write-combining page.
    pub const DB: usize = 0x800;
    /// Number of BlueFlame registers per UAR page.
    pub const BF_REGS: usize = 4;
    /// Distance in bytes between doorbell registers on an uncached page, where BlueFlame does not work.
    pub const NC_REG_STRIDE: usize = 0x100;
    /// Work-queue entries written by BlueFlame are padded to a multiple of this many bytes.
    pub const BF_CHUNK: usize = 64;

    /// Returns the offset of BlueFlame register `k` (modulo [`BF_REGS`]) on a write-combining page, given the
    /// capability `log_bf_reg_size`.
    pub const fn bf_reg(k: usize, log_bf_reg_size: u8) -> usize {
        DB + ((k % BF_REGS) << (log_bf_reg_size & 0xf))
    }

    /// Returns the size of each half of a BlueFlame register, in bytes. Writes alternate between the halves, and an
    /// entry must fit into one.
    pub const fn bf_half_bytes(log_bf_reg_size: u8) -> usize {
        (1 << (log_bf_reg_size & 0xf)) / 2
    }
}

/// The doorbell record of a QP: two producer counters in host memory, whose address is in the QP context.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C, align(8))]
pub struct Record {
    /// Producer counter of the receive queue: the number of receive entries posted, modulo 2^16.
    pub rcv: Be32,
    /// Producer counter of the send queue: the index of the next free WQEBB.
    pub snd: Be32,
}

impl Record {
    /// Offset of the receive counter in the record, in bytes.
    pub const RCV_OFFSET: usize = 0;
    /// Offset of the send counter in the record, in bytes.
    pub const SND_OFFSET: usize = 4;
}

/// Encodes a producer counter as a word of a doorbell record, ready for a plain store.
#[inline(always)]
pub const fn record_word(counter: u16) -> u32 {
    Be32::new(counter as u32).raw()
}

/// Decodes the producer counter from a word of a doorbell record, as a plain load returns it.
#[inline(always)]
pub const fn record_counter(raw: u32) -> u16 {
    Be32::from_raw(raw).get() as u16
}

/// The 8-byte value of a send doorbell, as written by one little-endian store and read by one load.
///
/// There are two conventions, and [`Doorbell::producer_index`] understands both: the first half of the last entry's
/// control segment ([`Doorbell::last_wqe`], as in rdma-core), or the producer counter with opcode and ds zero
/// ([`Doorbell::producer`], as in NVSHMEM and DOCA).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Doorbell(u64);

impl Doorbell {
    /// Creates the value from the control segment of the last posted entry, as rdma-core does.
    #[inline(always)]
    pub const fn last_wqe(ctrl: CtrlSeg) -> Self {
        let bytes: [u8; 16] = must_cast(ctrl);
        let [a, b, c, d, e, f, g, h, ..] = bytes;
        Self(u64::from_le_bytes([a, b, c, d, e, f, g, h]))
    }

    /// Creates the value from `index`, the next free WQEBB of QP `qpn`, as NVSHMEM and DOCA do.
    #[inline(always)]
    pub const fn producer(qpn: u32, index: u16) -> Self {
        let low = ((index as u32) << 8).swap_bytes();
        let high = (qpn << 8).swap_bytes();
        Self((high as u64) << 32 | low as u64)
    }

    /// Creates the value from the 8 bytes that a doorbell store wrote, read as a little-endian integer.
    #[inline(always)]
    pub const fn from_raw(raw: u64) -> Self {
        Self(raw)
    }

    /// Returns the value as an integer, ready for an 8-byte little-endian store to the register.
    #[inline(always)]
    pub const fn raw(self) -> u64 {
        self.0
    }

    /// Returns the QPN of the send queue that has new entries.
    #[inline(always)]
    pub const fn qpn(self) -> u32 {
        self.qpn_ds() >> 8
    }

    /// Returns the index of the next free WQEBB, under either convention. Ignores bits 31:24 of the first word.
    #[inline(always)]
    pub const fn producer_index(self) -> u16 {
        self.index().wrapping_add(blocks_for(self.ds()) as u16)
    }

    /// Returns the index field: the first WQEBB of the last entry, or the next free WQEBB, depending on the convention.
    #[inline(always)]
    pub const fn index(self) -> u16 {
        ((self.0 as u32).swap_bytes() >> 8) as u16
    }

    /// Returns the opcode of the last entry, or zero if the value holds a producer counter.
    #[inline(always)]
    pub const fn opcode(self) -> Opcode {
        Opcode((self.0 as u32).swap_bytes() as u8)
    }

    /// Returns the size of the last entry in 16-byte segments, or zero if the value holds a producer counter.
    #[inline(always)]
    pub const fn ds(self) -> u8 {
        (self.qpn_ds() & 0x3f) as u8
    }

    #[inline(always)]
    const fn qpn_ds(self) -> u32 {
        ((self.0 >> 32) as u32).swap_bytes()
    }
}

/// The doorbell record of a completion queue: 8 bytes in host memory, whose address is in the CQ context.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C, align(8))]
pub struct CqRecord {
    /// Number of completion-queue entries consumed, modulo 2^24.
    pub set_ci: Be32,
    /// The most recent request for a completion event.
    pub arm: ArmWord,
}

impl CqRecord {
    /// Offset of the consumer counter, in bytes.
    pub const SET_CI_OFFSET: usize = 0;
    /// Offset of the arm request, in bytes.
    pub const ARM_OFFSET: usize = 4;
}

/// Encodes the low 24 bits of the count of consumed entries as a word of the record, ready for a plain store.
#[inline(always)]
pub const fn set_ci_word(consumer: u32) -> u32 {
    Be32::new(consumer & 0xff_ffff).raw()
}

/// A request to raise an event for the next completion-queue entry ("arming" the CQ).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(transparent)]
pub struct ArmWord(pub Be32);

impl ArmWord {
    const SOLICITED_ONLY: u32 = 1 << 24;

    /// Creates an arm request. `sequence` counts the events of the CQ so far (the low 2 bits are used), `consumer` the
    /// entries consumed (24 bits).
    #[inline(always)]
    pub const fn new(sequence: u8, solicited_only: bool, consumer: u32) -> Self {
        let cmd = if solicited_only { Self::SOLICITED_ONLY } else { 0 };
        Self(Be32::new(((sequence & 3) as u32) << 28 | cmd | consumer & 0xff_ffff))
    }

    /// Returns the number of events that the CQ has raised so far, modulo 4.
    pub const fn sequence(self) -> u8 {
        (self.0.get() >> 28 & 3) as u8
    }

    /// Returns whether only a solicited or error CQE raises the event.
    pub const fn solicited_only(self) -> bool {
        self.0.get() & Self::SOLICITED_ONLY != 0
    }

    /// Returns the number of entries consumed so far, modulo 2^24.
    pub const fn consumer(self) -> u32 {
        self.0.get() & 0xff_ffff
    }
}

/// The 8-byte value that arms a completion queue when written to the UAR register [`uar::CQ_ARM`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(transparent)]
pub struct CqArm(pub Be64);

impl CqArm {
    /// Creates the register value for CQ `cqn` (24 bits). `arm` must equal the request in the doorbell record.
    #[inline(always)]
    pub const fn new(arm: ArmWord, cqn: u32) -> Self {
        Self(Be64::new((arm.0.get() as u64) << 32 | (cqn & 0xff_ffff) as u64))
    }

    /// Returns the arm request, in the encoding of the doorbell record.
    pub const fn arm(self) -> ArmWord {
        ArmWord(Be32::new((self.0.get() >> 32) as u32))
    }

    /// Returns the CQN of the CQ to arm, 24 bits.
    pub const fn cqn(self) -> u32 {
        self.0.get() as u32 & 0xff_ffff
    }
}

const _: () = {
    assert!(size_of::<Record>() == 8 && offset_of!(Record, snd) == Record::SND_OFFSET);
    assert!(size_of::<CqRecord>() == 8 && offset_of!(CqRecord, arm) == CqRecord::ARM_OFFSET);
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Flags, Wqe};

    /// Examples for QP 0x1a7: the last entry's control segment, the doorbell value in either convention, and the
    /// record.
    const EXAMPLES: [(CtrlSeg, u64, u64, [u8; 4]); 3] = [
        (
            CtrlSeg::new(0, Opcode::RDMA_WRITE, 0x12, 0x1a7, 3, Flags::SIGNALED, 0),
            0x03a7_0100_0812_0000,
            0x00a7_0100_0013_0000,
            [0, 0, 0, 0x13],
        ),
        (
            CtrlSeg::new(9, Opcode::ATOMIC_MASKED_CS, 0x19, 0x1a7, 5, Flags::NONE, 0),
            0x05a7_0100_1419_0009,
            0x00a7_0100_001b_0000,
            [0, 0, 0, 0x1b],
        ),
        (
            CtrlSeg::new(9, Opcode::ATOMIC_MASKED_FA, 0xffff, 0x1a7, 4, Flags::SIGNALED, 0),
            0x04a7_0100_15ff_ff09,
            0x00a7_0100_0000_0000,
            [0, 0, 0, 0],
        ),
    ];

    #[test]
    fn worked_examples_in_both_styles() {
        for (ctrl, last, producer, record) in EXAMPLES {
            let next = record_counter(u32::from_le_bytes(record));
            assert_eq!(record_word(next).to_le_bytes(), record);
            assert_eq!(Doorbell::last_wqe(ctrl).raw(), last);
            assert_eq!(Doorbell::producer(0x1a7, next).raw(), producer);
            for raw in [last, producer] {
                let rung = Doorbell::from_raw(raw);
                assert_eq!((rung.qpn(), rung.producer_index()), (0x1a7, next));
            }
        }
    }

    #[test]
    fn upper_index_bits_of_a_wide_counter_are_ignored() {
        let wide = 0x0001_0013_u32;
        let raw = Doorbell::producer(0x1a7, 0).raw() | (wide << 8).swap_bytes() as u64;
        assert_eq!(Doorbell::from_raw(raw).producer_index(), 0x13);
    }

    #[test]
    fn last_wqe_is_the_first_eight_bytes_of_the_entry() {
        let entry = Wqe::Nop.emit(0xabcd, 0x12_3456, Flags::SIGNALED);
        let bytes = entry.blocks[0].to_bytes();
        let ctrl = CtrlSeg::from_segment(entry.blocks[0].0[0]);
        assert_eq!(Doorbell::last_wqe(ctrl).raw().to_le_bytes(), bytes[..8]);
    }

    #[test]
    fn arm_requests_match_in_record_and_register() {
        let arm = ArmWord::new(6, true, 0x0123_4567);
        assert_eq!(bytemuck::bytes_of(&arm), [0x21, 0x23, 0x45, 0x67]);
        assert_eq!((arm.sequence(), arm.solicited_only(), arm.consumer()), (2, true, 0x23_4567));
        let rung = CqArm::new(arm, 0x403);
        assert_eq!(bytemuck::bytes_of(&rung), [0x21, 0x23, 0x45, 0x67, 0, 0, 0x04, 0x03]);
        assert_eq!((rung.arm(), rung.cqn()), (arm, 0x403));
        assert_eq!(set_ci_word(0x0123_4567).to_le_bytes(), [0, 0x23, 0x45, 0x67]);
    }

    #[test]
    fn blueflame_registers_of_512_bytes() {
        assert_eq!([0, 1, 3, 4].map(|k| uar::bf_reg(k, 9)), [0x800, 0xa00, 0xe00, 0x800]);
        assert_eq!(uar::bf_half_bytes(9), 256);
    }
}
