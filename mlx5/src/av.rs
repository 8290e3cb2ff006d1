//! The address vector of a send entry: the destination of a message from a datagram QP or DC initiator. It follows the
//! control segment.

use crate::{
    be::{Be16, Be32},
    seg::Segment,
};
use bytemuck::{Pod, Zeroable, must_cast};
use core::mem::{offset_of, size_of};

/// An address vector of 48 bytes. For an InfiniBand destination in the same subnet, the first 16 bytes suffice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct AvSeg {
    /// The queue key that the receiver checks. For DC, the upper half of the access key ([`AvSeg::dc_key`]).
    pub qkey: Be32,
    /// Reserved, zero. For DC, the lower half of the access key.
    pub reserved0: Be32,
    /// Bit 31: all 48 bytes are present ([`AvSeg::EXTENDED`]). Bits 23:0: QPN of the receiver, or DCTN of the DC
    /// target.
    pub dqpn: Be32,
    /// Static rate 7:4, service level 3:0 (on RoCE, the priority times two).
    pub stat_rate_sl: u8,
    /// Source path bits, 6:0: the low bits of the sender's LID. InfiniBand only.
    pub fl_mlid: u8,
    /// LID of the receiver; on RoCE v2, the UDP source port.
    pub rlid: Be16,
    /// Reserved, zero.
    pub reserved1: [u8; 4],
    /// Ethernet address of the receiver (RoCE only).
    pub rmac: [u8; 6],
    /// Traffic class of the global route header or IP header.
    pub tclass: u8,
    /// Hop limit of the global route header or IP header.
    pub hop_limit: u8,
    /// Bit 30: the destination is global ([`AvSeg::GRH`]). Bits 27:20: index of the local GID. Bits 19:0: flow label.
    pub grh_gid_fl: Be32,
    /// GID of the receiver. On RoCE, an IPv6 or IPv4-mapped address.
    pub rgid: [u8; 16],
}

impl AvSeg {
    /// Flag in [`AvSeg::dqpn`]: the vector has all 48 bytes, not only the first 16.
    pub const EXTENDED: u32 = 1 << 31;
    /// Flag in [`AvSeg::grh_gid_fl`]: the destination is global, so packets carry a global route header.
    pub const GRH: u32 = 1 << 30;
    /// Number of 16-byte segments of a full address vector.
    pub const SEGMENTS: usize = 3;

    /// Returns a 48-byte vector to DC target `dctn` with access key `dc_key`, on the same adapter that `self`
    /// addresses.
    #[inline(always)]
    #[must_use]
    pub const fn to_dct(self, dctn: u32, dc_key: u64) -> Self {
        Self {
            qkey: Be32::new((dc_key >> 32) as u32),
            reserved0: Be32::new(dc_key as u32),
            dqpn: Be32::new(Self::EXTENDED | dctn & 0xff_ffff),
            ..self
        }
    }

    /// Returns the 64-bit access key of the DC target that this vector addresses.
    #[inline(always)]
    pub const fn dc_key(&self) -> u64 {
        (self.qkey.get() as u64) << 32 | self.reserved0.get() as u64
    }

    /// Returns the QPN of the receiver, or the DCTN of the DC target.
    #[inline(always)]
    pub const fn qpn(&self) -> u32 {
        self.dqpn.get() & 0xff_ffff
    }

    /// Returns whether the vector has 48 bytes rather than 16.
    #[inline(always)]
    pub const fn is_extended(&self) -> bool {
        self.dqpn.get() & Self::EXTENDED != 0
    }

    /// Returns the vector as three 16-byte segments. Unless it is extended, only the first is meaningful.
    #[inline(always)]
    pub const fn to_segments(self) -> [Segment; Self::SEGMENTS] {
        must_cast(self)
    }

    /// Creates a vector from its three 16-byte segments.
    #[inline(always)]
    pub const fn from_segments(segments: [Segment; Self::SEGMENTS]) -> Self {
        must_cast(segments)
    }
}

const _: () = {
    assert!(size_of::<AvSeg>() == 16 * AvSeg::SEGMENTS);
    assert!(offset_of!(AvSeg, dqpn) == 0x08 && offset_of!(AvSeg, rlid) == 0x0e);
    assert!(offset_of!(AvSeg, rmac) == 0x14 && offset_of!(AvSeg, grh_gid_fl) == 0x1c);
    assert!(offset_of!(AvSeg, rgid) == 0x20);
};
