//! Where the memory keys of a send entry are.

use crate::ctrl::{CtrlSeg, Opcode};
use crate::seg::{DataSeg, InlineHdr, RaddrSeg, SEGMENT_BYTES, Segment};
use core::mem::offset_of;

/// Byte offsets of the big-endian memory keys in a send entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyOffsets {
    /// Offset of the rkey.
    pub remote: Option<usize>,
    /// Offset of the lkey.
    pub local: Option<usize>,
}

impl KeyOffsets {
    /// Returns the offsets for an entry on a reliable connection with the control segment `ctrl` and the third segment
    /// `third`, which has at most one data segment.
    ///
    /// ```
    /// use rushmem_mlx5::wqe::KeyOffsets;
    /// use rushmem_mlx5::{CtrlSeg, Flags, Wqe};
    ///
    /// let put = Wqe::Write { raddr: 0x1000, rkey: 0x181e00, laddr: 0x2000, lkey: 0x200f00, len: 16384 };
    /// let entry = put.emit(0x12, 0x1a7, Flags::SIGNALED);
    /// let [control, _, third, ..] = entry.segments() else { panic!() };
    /// let keys = KeyOffsets::of(CtrlSeg::from_segment(*control), *third);
    /// assert_eq!((keys.remote, keys.local), (Some(24), Some(36)));
    /// ```
    #[inline(always)]
    pub const fn of(ctrl: CtrlSeg, third: Segment) -> Self {
        let ds = ctrl.ds() as usize;
        let has_remote = matches!(
            ctrl.opcode(),
            Opcode::RDMA_WRITE
                | Opcode::RDMA_WRITE_IMM
                | Opcode::RDMA_READ
                | Opcode::ATOMIC_CS
                | Opcode::ATOMIC_FA
                | Opcode::ATOMIC_MASKED_CS
                | Opcode::ATOMIC_MASKED_FA
        );
        let [a, b, c, d, ..] = third.to_bytes();
        let is_write = matches!(ctrl.opcode(), Opcode::RDMA_WRITE | Opcode::RDMA_WRITE_IMM);
        let is_inline = is_write && u32::from_be_bytes([a, b, c, d]) & InlineHdr::INLINE != 0;
        // The data segment is the last one, after the operands of an atomic.
        let has_local = has_remote && ds > 2 && !is_inline;
        Self {
            remote: if has_remote { Some(SEGMENT_BYTES + offset_of!(RaddrSeg, rkey)) } else { None },
            local: if has_local { Some((ds - 1) * SEGMENT_BYTES + offset_of!(DataSeg, lkey)) } else { None },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Flags, Inline, Wqe};

    #[test]
    fn keys_are_where_entries_have_them() {
        let (raddr, rkey, laddr, lkey) = (1, 0x1234_5678, 2, 0x9abc_def0);
        let swap = Wqe::MaskedCompareSwap64 {
            raddr,
            rkey,
            laddr,
            lkey,
            compare: 1,
            swap: u64::MAX,
            compare_mask: 0,
            swap_mask: u64::MAX,
        };
        let inline = Wqe::WriteInline { raddr, rkey, data: Inline::from_u64(u64::MAX) };
        for (wqe, remote, local) in [
            (Wqe::Nop, false, false),
            (Wqe::Write { raddr, rkey, laddr, lkey, len: 8 }, true, true),
            (Wqe::Write { raddr, rkey, laddr, lkey, len: 0 }, true, false),
            (Wqe::Read { raddr, rkey, laddr, lkey, len: 1 }, true, true),
            (inline, true, false),
            (Wqe::FetchAdd { raddr, rkey, laddr, lkey, add: 5 }, true, true),
            (Wqe::CompareSwap { raddr, rkey, laddr, lkey, compare: 5, swap: 6 }, true, true),
            (Wqe::MaskedFetchAdd32 { raddr, rkey, laddr, lkey, add: 5, boundary: 0 }, true, true),
            (swap, true, true),
        ] {
            let entry = wqe.emit(3, 4, Flags::NONE);
            let [first, second] = entry.blocks;
            let bytes = [first.to_bytes(), second.to_bytes()].concat();
            let [ctrl, _, third, _] = first.0;
            let keys = KeyOffsets::of(CtrlSeg::from_segment(ctrl), third);
            let at = |offset: usize| u32::from_be_bytes(bytes[offset..][..4].try_into().unwrap());
            assert_eq!(keys.remote.map(at), remote.then_some(rkey), "{wqe:?}");
            assert_eq!(keys.local.map(at), local.then_some(lkey), "{wqe:?}");
        }
    }
}
