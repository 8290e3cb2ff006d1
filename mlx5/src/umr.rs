//! The segments of a UMR entry, which changes a memory key: what to change, and the new values.

use crate::be::{Be16, Be32, Be64};
use crate::prm::mkey::MkeyContext;
use crate::seg::Segment;
use bytemuck::{Pod, Zeroable, cast};

/// The UMR control segment, of 48 bytes. It follows the control segment, whose immediate is the key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct UmrSeg {
    /// Union of [`UmrSeg::OFFSET`] and the other flags.
    pub flags: u8,
    /// Reserved, zero.
    pub reserved0: [u8; 3],
    /// Length of the translations, in units of 16 bytes.
    pub octowords: Be16,
    /// Bits 15:0 of the first translation's place in the key, in units of 16 bytes.
    pub offset_low: Be16,
    /// Which fields of the key change: union of the constants in [`mask`].
    pub mask: Be64,
    /// Bits 47:16 of the first translation's place in the key.
    pub offset_high: Be32,
    /// Reserved, zero.
    pub reserved1: [u8; 28],
}

impl UmrSeg {
    /// Flag: the translations start at an offset.
    pub const OFFSET: u8 = 1 << 4;
    /// Flag: fails unless the key is free.
    pub const CHECK_NOT_FREE: u8 = 1 << 5;
    /// Flag: fails if the key is free.
    pub const CHECK_FREE: u8 = 2 << 5;
    /// Flag: the translations are in the entry, and not in memory.
    pub const INLINE: u8 = 1 << 7;
    /// Number of 16-byte segments.
    pub const SEGMENTS: usize = 3;

    /// Returns the place of the first translation, in units of 16 bytes.
    pub const fn offset(&self) -> u64 {
        (self.offset_high.get() as u64) << 16 | self.offset_low.get() as u64
    }

    /// Encodes the segment.
    pub fn to_segments(self) -> [Segment; Self::SEGMENTS] {
        cast(self)
    }
}

/// Bits of [`UmrSeg::mask`].
pub mod mask {
    /// [`len`](crate::prm::mkey::MkeyContext::len).
    pub const LEN: u64 = 1 << 0;
    /// [`log_page_size`](crate::prm::mkey::MkeyContext::log_page_size).
    pub const PAGE_SIZE: u64 = 1 << 1;
    /// [`start_addr`](crate::prm::mkey::MkeyContext::start_addr).
    pub const START_ADDR: u64 = 1 << 6;
    /// [`pd`](crate::prm::mkey::MkeyContext::pd).
    pub const PD: u64 = 1 << 7;
    /// [`en_rinval`](crate::prm::mkey::MkeyContext::en_rinval).
    pub const EN_RINVAL: u64 = 1 << 8;
    /// [`mkey_7_0`](crate::prm::mkey::MkeyContext::mkey_7_0).
    pub const KEY: u64 = 1 << 13;
    /// [`qpn`](crate::prm::mkey::MkeyContext::qpn).
    pub const QPN: u64 = 1 << 14;
    /// [`lr`](crate::prm::mkey::MkeyContext::lr).
    pub const LR: u64 = 1 << 17;
    /// [`lw`](crate::prm::mkey::MkeyContext::lw).
    pub const LW: u64 = 1 << 18;
    /// [`rr`](crate::prm::mkey::MkeyContext::rr).
    pub const RR: u64 = 1 << 19;
    /// [`rw`](crate::prm::mkey::MkeyContext::rw).
    pub const RW: u64 = 1 << 20;
    /// [`a`](crate::prm::mkey::MkeyContext::a).
    pub const A: u64 = 1 << 21;
    /// [`small_fence_on_rdma_read_response`](crate::prm::mkey::MkeyContext::small_fence_on_rdma_read_response).
    pub const SMALL_FENCE: u64 = 1 << 23;
    /// [`relaxed_ordering_write`](crate::prm::mkey::MkeyContext::relaxed_ordering_write).
    pub const RELAXED_WRITE: u64 = 1 << 25;
    /// [`free`](crate::prm::mkey::MkeyContext::free).
    pub const FREE: u64 = 1 << 29;
    /// [`relaxed_ordering_read`](crate::prm::mkey::MkeyContext::relaxed_ordering_read).
    pub const RELAXED_READ: u64 = 1 << 47;
}

/// The contents of a UMR entry; see [`View::umr`](crate::View::umr).
#[derive(Clone, Copy, Debug)]
pub struct Umr<'a> {
    /// The key to change.
    pub key: u32,
    /// What changes.
    pub control: UmrSeg,
    /// The new values of the fields that change.
    pub context: MkeyContext,
    /// The translations, if they are in the entry, with padding.
    pub inline: Option<&'a [u8]>,
}

impl<'a> Umr<'a> {
    /// Number of segments of the UMR control segment and the context.
    pub(crate) const SEGMENTS: usize = UmrSeg::SEGMENTS + MkeyContext::LEN / 16;

    /// Returns how many of the segments after the control segment precede the data.
    pub(crate) fn segments(rest: &[Segment]) -> usize {
        match Umr::read(0, rest) {
            Some(Umr { inline: Some(_), .. }) => rest.len(),
            _ => Self::SEGMENTS,
        }
    }

    /// Decodes the segments after the control segment.
    pub(crate) fn read(key: u32, segments: &'a [Segment]) -> Option<Self> {
        let (head, rest) = segments.split_at_checked(Self::SEGMENTS)?;
        let (control, context) = head.split_first_chunk::<{ UmrSeg::SEGMENTS }>()?;
        let control: UmrSeg = cast(*control);
        let context = MkeyContext::read(Segment::bytes_of(context).first_chunk()?);
        let inline = (control.flags & UmrSeg::INLINE != 0).then(|| Segment::bytes_of(rest));
        Some(Self { key, control, context, inline })
    }
}
