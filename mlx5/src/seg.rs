//! The 16-byte segments that follow the control segment of a work-queue entry, and the 64-byte blocks they form.
//!
//! On a reliable connection, an entry consists of control, remote address, atomic operands and data, in this order.
//! Every segment type in this module is plain data made of big-endian words; `to_segment` and `from_segment` only
//! reinterpret the bytes.

use crate::be::{Be32, Be64};
use bytemuck::{Pod, Zeroable, must_cast, must_cast_ref, must_cast_slice};
use core::mem::{align_of, offset_of, size_of};

/// Size of a segment, in bytes; the unit of the `ds` field.
pub const SEGMENT_BYTES: usize = 16;
/// Size of a work-queue basic block (WQEBB), in bytes; the unit of queue indices.
pub const WQEBB_BYTES: usize = 64;
/// Number of 16-byte segments in a work-queue basic block (WQEBB).
pub const SEGMENTS_PER_WQEBB: usize = 4;

/// A 16-byte unit of work-queue entries. Each `u32` holds four bytes in memory order, not a number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C, align(16))]
pub struct Segment(pub [u32; 4]);

impl Segment {
    /// A segment of zero bytes.
    pub const ZERO: Self = Self([0; 4]);

    /// Creates a segment from its 16 bytes in memory order.
    #[inline(always)]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        must_cast(bytes)
    }

    /// Returns the segment's 16 bytes in memory order.
    #[inline(always)]
    pub const fn to_bytes(self) -> [u8; 16] {
        must_cast(self)
    }

    /// Views consecutive segments as bytes in memory order.
    pub fn bytes_of(segments: &[Self]) -> &[u8] {
        must_cast_slice(segments)
    }
}

/// A work-queue basic block of 64 bytes, the unit of queue indices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C, align(64))]
pub struct Wqebb(pub [Segment; SEGMENTS_PER_WQEBB]);

impl Wqebb {
    /// A block of zero bytes.
    pub const ZERO: Self = Self([Segment::ZERO; SEGMENTS_PER_WQEBB]);

    /// Creates a block from its 64 bytes in memory order.
    #[inline(always)]
    pub const fn from_bytes(bytes: [u8; WQEBB_BYTES]) -> Self {
        must_cast(bytes)
    }

    /// Returns the block's 64 bytes in memory order.
    #[inline(always)]
    pub const fn to_bytes(self) -> [u8; WQEBB_BYTES] {
        must_cast(self)
    }

    /// Views consecutive blocks as four times as many segments.
    pub fn segments_of(blocks: &[Self]) -> &[Segment] {
        must_cast_slice(blocks)
    }
}

/// Returns the number of 64-byte blocks (WQEBBs) that a work-queue entry with `ds` segments occupies.
#[inline(always)]
pub const fn blocks_for(ds: u8) -> u8 {
    ds.div_ceil(SEGMENTS_PER_WQEBB as u8)
}

macro_rules! one_segment {
    ($($name:ident),*) => {$(
        impl $name {
            /// Returns the structure as 16 raw bytes.
            #[inline(always)]
            pub const fn to_segment(self) -> Segment {
                must_cast(self)
            }

            /// Creates the structure from 16 raw bytes.
            #[inline(always)]
            pub const fn from_segment(segment: Segment) -> Self {
                must_cast(segment)
            }
        }
    )*};
}

one_segment!(RaddrSeg, DataSeg, AtomicSeg, MaskedFetchAdd32Seg, MaskedFetchAdd64Seg, MaskedCompareSwap32Seg);
one_segment!(WaitSeg, XrcSeg, SrqNextSeg);

/// The remote-address segment of a send entry: where a READ, WRITE or atomic accesses the peer's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct RaddrSeg {
    /// Address within the peer's memory region.
    pub addr: Be64,
    /// The rkey of the peer's memory region.
    pub rkey: Be32,
    /// Reserved, zero.
    pub reserved: Be32,
}

impl RaddrSeg {
    /// Creates the segment from host-order values.
    #[inline(always)]
    pub const fn new(addr: u64, rkey: u32) -> Self {
        Self { addr: Be64::new(addr), rkey: Be32::new(rkey), reserved: Be32::new(0) }
    }
}

/// A data segment: points to local memory, to gather from or scatter to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct DataSeg {
    /// Length in bytes. Bit 31 is zero; if set, this is an [`InlineHdr`].
    pub len: Be32,
    /// The lkey of the local memory region.
    pub lkey: Be32,
    /// Address within the local memory region.
    pub addr: Be64,
}

impl DataSeg {
    /// Value of `lkey` that terminates the scatter list of a receive entry early.
    pub const LIST_END_LKEY: u32 = 0x100;

    /// Creates the data segment from host-order values. `len` is in bytes and is truncated to 31 bits.
    #[inline(always)]
    pub const fn new(addr: u64, lkey: u32, len: u32) -> Self {
        Self { len: Be32::new(len & !InlineHdr::INLINE), lkey: Be32::new(lkey), addr: Be64::new(addr) }
    }
}

/// The header word of inline data. The payload follows immediately; together they are padded to whole segments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(transparent)]
pub struct InlineHdr(pub Be32);

impl InlineHdr {
    /// Bit 31, which distinguishes inline data from a [`DataSeg`].
    pub const INLINE: u32 = 1 << 31;
    /// Mask of the payload length, in bytes.
    pub const LEN_MASK: u32 = 0x3ff;

    /// Creates the header for `len` bytes of payload, truncated to 10 bits.
    #[inline(always)]
    pub const fn new(len: u32) -> Self {
        Self(Be32::new(Self::INLINE | len & Self::LEN_MASK))
    }

    /// Returns whether the word marks inline data, rather than starting a [`DataSeg`].
    #[inline(always)]
    pub const fn is_inline(self) -> bool {
        self.0.get() & Self::INLINE != 0
    }

    /// Returns the length of the payload, in bytes.
    #[inline(always)]
    pub const fn len(self) -> u32 {
        self.0.get() & Self::LEN_MASK
    }

    /// Returns whether the payload is empty.
    #[inline(always)]
    pub const fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// Returns the bits that must be zero, in place.
    #[inline(always)]
    pub const fn reserved(self) -> u32 {
        self.0.get() & !(Self::INLINE | Self::LEN_MASK)
    }

    /// Returns the number of 16-byte segments for a header and `len` bytes of payload.
    #[inline(always)]
    pub const fn segments_for(len: u32) -> u32 {
        (4 + len).div_ceil(SEGMENT_BYTES as u32)
    }
}

/// The operands of a 64-bit compare and swap, or of a fetch and add.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct AtomicSeg {
    /// The value to swap in or to add.
    pub swap_add: Be64,
    /// The value to compare with. Ignored by fetch and add.
    pub compare: Be64,
}

/// The operands of a 32-bit fetch and add on independent bit fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct MaskedFetchAdd32Seg {
    /// The addend, one value per field.
    pub add: Be32,
    /// Mask with the most significant bit of each field. Carries stop there.
    pub boundary: Be32,
    /// Reserved, zero.
    pub reserved: Be64,
}

/// The operands of a 64-bit fetch and add on independent bit fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct MaskedFetchAdd64Seg {
    /// The addend, one value per field.
    pub add: Be64,
    /// Mask with the most significant bit of each field. Carries stop there.
    pub boundary: Be64,
}

/// Operands of the 32-bit masked compare and swap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct MaskedCompareSwap32Seg {
    /// The value to swap in.
    pub swap: Be32,
    /// The value to compare with.
    pub compare: Be32,
    /// Mask of the bits that a successful swap replaces.
    pub swap_mask: Be32,
    /// Mask of the bits that are compared.
    pub compare_mask: Be32,
}

/// Operands of the 64-bit masked compare and swap, in two segments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct MaskedCompareSwap64Seg {
    /// The value to swap in.
    pub swap: Be64,
    /// The value to compare with.
    pub compare: Be64,
    /// Mask of the bits that a successful swap replaces.
    pub swap_mask: Be64,
    /// Mask of the bits that are compared.
    pub compare_mask: Be64,
}

impl MaskedCompareSwap64Seg {
    /// Returns the operands as two raw 16-byte segments.
    #[inline(always)]
    pub const fn to_segments(self) -> [Segment; 2] {
        must_cast(self)
    }

    /// Creates the operands from two raw 16-byte segments.
    #[inline(always)]
    pub const fn from_segments(segments: [Segment; 2]) -> Self {
        must_cast(segments)
    }
}

/// The condition of a WAIT entry: which completion queue must reach which index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct WaitSeg {
    /// Reserved, zero.
    pub reserved: Be64,
    /// Index of the completion to wait for.
    pub index: Be32,
    /// CQN of the completion queue to watch.
    pub cqn: Be32,
}

impl WaitSeg {
    /// Creates the condition from host-order values.
    #[inline(always)]
    pub const fn new(index: u32, cqn: u32) -> Self {
        Self { reserved: Be64::new(0), index: Be32::new(index), cqn: Be32::new(cqn) }
    }
}

/// The destination of a send entry on an XRC initiator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct XrcSeg {
    /// Bits 23:0: shared receive queue number (SRQN) at the peer.
    pub srqn: Be32,
    /// Reserved, zero.
    pub reserved: [u8; 12],
}

impl XrcSeg {
    /// Creates the segment for the shared receive queue `srqn`, truncated to 24 bits.
    #[inline(always)]
    pub const fn new(srqn: u32) -> Self {
        Self { srqn: Be32::new(srqn & 0xff_ffff), reserved: [0; 12] }
    }
}

/// The first segment of an entry in a linked shared receive queue. It links the free entries; data segments follow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct SrqNextSeg {
    /// Reserved, zero.
    pub reserved0: [u8; 2],
    /// Index of the next free entry.
    pub next: crate::be::Be16,
    /// XOR signature of the entry; zero unless enabled.
    pub signature: u8,
    /// Reserved, zero.
    pub reserved1: [u8; 11],
}

#[inline(always)]
pub(crate) const fn two_blocks(blocks: &[Wqebb; 2]) -> &[Segment; 8] {
    must_cast_ref(blocks)
}

const _: () = {
    assert!(size_of::<Segment>() == SEGMENT_BYTES && align_of::<Segment>() == 16);
    assert!(size_of::<Wqebb>() == WQEBB_BYTES && align_of::<Wqebb>() == 64);
    assert!(offset_of!(RaddrSeg, rkey) == 8);
    assert!(offset_of!(DataSeg, lkey) == 4 && offset_of!(DataSeg, addr) == 8);
    assert!(offset_of!(AtomicSeg, compare) == 8);
    assert!(offset_of!(MaskedCompareSwap32Seg, compare_mask) == 12);
    assert!(size_of::<MaskedCompareSwap64Seg>() == 32);
    assert!(offset_of!(WaitSeg, index) == 8 && offset_of!(WaitSeg, cqn) == 12);
};
