//! Send work-queue entries. [`Wqe`] is the contents of an entry, and [`Wqe::emit`] turns it into bytes. [`View`] parses
//! the bytes of any entry, including those of other drivers, and [`View::emit`] writes them again.
//!
//! ```
//! use rushmem_mlx5::{Flags, View, Wqe};
//!
//! let put = Wqe::Write { raddr: 0x1000, rkey: 0x181e00, laddr: 0x2000, lkey: 0x200f00, len: 16384 };
//! let entry = put.emit(0x12, 0x1a7, Flags::SIGNALED);
//! assert_eq!((entry.ds, entry.n_blocks()), (3, 1));
//! assert_eq!(View::parse(entry.segments()).unwrap().to_wqe(), Some(put));
//! ```

mod emit;
mod frame;
mod inline;
mod keys;
mod malformed;
mod recv;
mod view;

pub use frame::{Frame, FrameView};
pub use inline::{Inline, emit_write_inline};
pub use keys::KeyOffsets;
pub use malformed::Malformed;
pub use recv::{Scatter, scatter};
pub use view::{Atomic, Data, DataIter, View};

use crate::{
    av::AvSeg,
    be::{Be32, Be64},
    ctrl::{CtrlSeg, Flags, Opcode},
    seg::{
        AtomicSeg, DataSeg, InlineHdr, MaskedCompareSwap32Seg, MaskedCompareSwap64Seg, MaskedFetchAdd32Seg,
        MaskedFetchAdd64Seg, RaddrSeg, Segment, WaitSeg, Wqebb, blocks_for, two_blocks,
    },
};

/// The opmod of a masked atomic on 4-byte operands: the “extended” bit, and log2 of the size minus 2.
pub const OPMOD_MASKED_4: u8 = 0x08;
/// The opmod of a masked atomic on 8-byte operands; see [`OPMOD_MASKED_4`] for the encoding.
pub const OPMOD_MASKED_8: u8 = 0x09;

/// The contents of a send work-queue entry on a reliable connection.
///
/// Lengths are in bytes, at most 2^31 - 1 on the wire and at most the QP's `log_msg_max` in practice. With a length of
/// 0, no data segment is emitted, so `laddr` and `lkey` are lost. Fetching atomics write the old value to `laddr`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "field names are the segments' own, described in `seg`")]
pub enum Wqe {
    /// No operation. If signalled, it completes after everything before it.
    Nop,
    /// RDMA WRITE of `len` bytes from `laddr` to `raddr`.
    Write { raddr: u64, rkey: u32, laddr: u64, lkey: u32, len: u32 },
    /// RDMA WRITE of the bytes in the entry itself.
    WriteInline { raddr: u64, rkey: u32, data: Inline },
    /// RDMA WRITE that also consumes a receive at the target and delivers `imm` with it.
    WriteImm { raddr: u64, rkey: u32, laddr: u64, lkey: u32, len: u32, imm: u32 },
    /// RDMA READ of `len` bytes from `raddr` into `laddr`.
    Read { raddr: u64, rkey: u32, laddr: u64, lkey: u32, len: u32 },
    /// SEND of `len` bytes into the peer's next posted receive.
    Send { laddr: u64, lkey: u32, len: u32 },
    /// SEND of the bytes in the entry itself.
    SendInline { data: Inline },
    /// SEND that delivers the immediate `imm` along with the data.
    SendImm { laddr: u64, lkey: u32, len: u32, imm: u32 },
    /// SEND of `len` bytes that also invalidates `inv_rkey` at the receiver.
    SendInval { laddr: u64, lkey: u32, len: u32, inv_rkey: u32 },
    /// 64-bit fetch and add at `raddr`. The old value is written to `laddr`.
    FetchAdd { raddr: u64, rkey: u32, laddr: u64, lkey: u32, add: u64 },
    /// 64-bit compare and swap at `raddr`. The old value is written to `laddr`.
    CompareSwap { raddr: u64, rkey: u32, laddr: u64, lkey: u32, compare: u64, swap: u64 },
    /// 32-bit fetch and add on independent bit fields; a set bit in `boundary` is the top bit of a field. With
    /// `boundary` 0 there is a single field; all ones is XOR.
    MaskedFetchAdd32 { raddr: u64, rkey: u32, laddr: u64, lkey: u32, add: u32, boundary: u32 },
    /// 64-bit fetch and add on independent bit fields; a set bit in `boundary` is the top bit of a field. With
    /// `boundary` 0 there is a single field; all ones is XOR.
    MaskedFetchAdd64 { raddr: u64, rkey: u32, laddr: u64, lkey: u32, add: u64, boundary: u64 },
    /// 32-bit compare (under `compare_mask`) and swap (under `swap_mask`).
    MaskedCompareSwap32 {
        raddr: u64,
        rkey: u32,
        laddr: u64,
        lkey: u32,
        compare: u32,
        swap: u32,
        compare_mask: u32,
        swap_mask: u32,
    },
    /// 64-bit compare (under `compare_mask`) and swap (under `swap_mask`). The only operation that takes two WQEBBs.
    MaskedCompareSwap64 {
        raddr: u64,
        rkey: u32,
        laddr: u64,
        lkey: u32,
        compare: u64,
        swap: u64,
        compare_mask: u64,
        swap_mask: u64,
    },
    /// DUMP: reads `len` bytes of local memory and discards them.
    Dump { laddr: u64, lkey: u32, len: u32 },
    /// Stalls the queue until CQ `cqn` has reached `index`.
    Wait { index: u32, cqn: u32 },
}

/// An encoded send entry: one or two 64-byte blocks, of which the first `ds` segments are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Emitted {
    /// The encoded blocks. As returned by [`Wqe::emit`], the second is zero for every entry but
    /// [`Wqe::MaskedCompareSwap64`].
    pub blocks: [Wqebb; 2],
    /// Size of the entry, in 16-byte segments.
    pub ds: u8,
}

impl Emitted {
    /// Returns the number of WQEBBs in use, 1 or 2, by which the queue's index advances.
    #[inline(always)]
    pub const fn n_blocks(&self) -> u8 {
        blocks_for(self.ds)
    }

    /// Returns the `ds` segments of the entry, without unused ones.
    #[inline(always)]
    pub fn segments(&self) -> &[Segment] {
        let all = two_blocks(&self.blocks);
        all.get(..self.ds as usize).unwrap_or(all)
    }
}

/// Everything of an entry but its control segment, plus the values that the control segment needs.
struct Body {
    opmod: u8,
    opcode: Opcode,
    ds: u8,
    imm: u32,
    rest: [Segment; 3],
    tail: Segment,
}

impl Body {
    #[inline(always)]
    const fn new(opcode: Opcode, ds: u8, rest: [Segment; 3]) -> Self {
        Self { opmod: 0, opcode, ds, imm: 0, rest, tail: Segment::ZERO }
    }

    #[inline(always)]
    const fn opmod(self, opmod: u8) -> Self {
        Self { opmod, ..self }
    }

    #[inline(always)]
    const fn imm(self, imm: u32) -> Self {
        Self { imm, ..self }
    }

    #[inline(always)]
    const fn tail(self, tail: Segment) -> Self {
        Self { tail, ..self }
    }
}

/// Returns the `ds` of an entry, which is `full` or, without data, one less: there is no data segment.
#[inline(always)]
const fn ds_with_data(full: u8, len: u32) -> u8 {
    if len == 0 { full - 1 } else { full }
}

impl Wqe {
    /// Encodes the entry for index `index` (the free-running 16-bit WQEBB index) of QP `qpn`.
    ///
    /// With a known variant, this compiles to plain stores, without a call, loop or panic.
    #[inline(always)]
    pub const fn emit(&self, index: u16, qpn: u32, flags: Flags) -> Emitted {
        let body = self.body();
        let ctrl = CtrlSeg::new(body.opmod, body.opcode, index, qpn, body.ds, flags, body.imm);
        let [a, b, c] = body.rest;
        Emitted {
            blocks: [
                Wqebb([ctrl.to_segment(), a, b, c]),
                Wqebb([body.tail, Segment::ZERO, Segment::ZERO, Segment::ZERO]),
            ],
            ds: body.ds,
        }
    }

    /// Encodes the entry for a DC initiator, addressed to the target in `av` ([`AvSeg::to_dct`]).
    ///
    /// The entry occupies **two blocks**, whatever its operation: write both, and advance the queue's index by two. The
    /// adapter advances by ceil(`ds` / 4), which is 2, because `ds` is between 5 and 8:
    ///
    /// - The control segment and the vector fill the first block. Remote address, operands and data are in the second.
    /// - A SEND without data carries an empty inline segment.
    /// - [`Wqe::Nop`] and [`Wqe::Dump`] have no vector, because nothing leaves the adapter. A NOP has a `ds` of 8. A
    ///   DUMP lists its memory four times.
    ///
    /// Only [`Wqe::Wait`] takes a single block, as with [`Wqe::emit`], because its size is fixed.
    ///
    /// ```
    /// use rushmem_mlx5::{Flags, View, Wqe, av::AvSeg};
    ///
    /// let av = AvSeg::default().to_dct(0x2b8, 0x5623_ceaf);
    /// let put = Wqe::Write { raddr: 0x1000, rkey: 0x181e00, laddr: 0x2000, lkey: 0x200f00, len: 16384 };
    /// let entry = put.emit_to(&av, 0x12, 0x1a7, Flags::SIGNALED);
    /// assert_eq!((entry.ds, entry.n_blocks()), (6, 2));
    /// let view = View::parse_dc(entry.segments()).unwrap();
    /// assert_eq!((view.av(), view.to_wqe()), (Some(av), Some(put)));
    /// ```
    #[inline(always)]
    pub const fn emit_to(&self, av: &AvSeg, index: u16, qpn: u32, flags: Flags) -> Emitted {
        const NONE: Segment = Segment::ZERO;
        let body = self.body();
        let ([a, b, c], [x, y, z]) = (body.rest, av.to_segments());
        let (ds, first, second) = match body.opcode {
            Opcode::WAIT => return self.emit(index, qpn, flags),
            Opcode::NOP => (8, [NONE; 3], [NONE; 4]),
            Opcode::DUMP => (5, [a; 3], [a, NONE, NONE, NONE]),
            _ if body.ds == 1 => (5, [x, y, z], [EMPTY_INLINE, NONE, NONE, NONE]),
            _ => (body.ds + AvSeg::SEGMENTS as u8, [x, y, z], [a, b, c, body.tail]),
        };
        let ctrl = CtrlSeg::new(body.opmod, body.opcode, index, qpn, ds, flags, body.imm);
        let [x, y, z] = first;
        Emitted { blocks: [Wqebb([ctrl.to_segment(), x, y, z]), Wqebb(second)], ds }
    }

    /// Returns the opcode that [`Wqe::emit`] writes for this operation.
    #[inline(always)]
    pub const fn opcode(&self) -> Opcode {
        self.body().opcode
    }

    // One arm per kind of entry: splitting the match would hide missing kinds.
    #[inline(always)]
    const fn body(&self) -> Body {
        const NONE: Segment = Segment::ZERO;
        match *self {
            Self::Nop => Body::new(Opcode::NOP, 1, [NONE; 3]),
            Self::Write { raddr, rkey, laddr, lkey, len } => {
                let rest = [remote(raddr, rkey), local(laddr, lkey, len), NONE];
                Body::new(Opcode::RDMA_WRITE, ds_with_data(3, len), rest)
            }
            Self::WriteInline { raddr, rkey, data } => {
                let [head, more] = data.to_segments();
                Body::new(Opcode::RDMA_WRITE, 2 + data.n_segments(), [remote(raddr, rkey), head, more])
            }
            Self::WriteImm { raddr, rkey, laddr, lkey, len, imm } => {
                let rest = [remote(raddr, rkey), local(laddr, lkey, len), NONE];
                Body::new(Opcode::RDMA_WRITE_IMM, ds_with_data(3, len), rest).imm(imm)
            }
            Self::Read { raddr, rkey, laddr, lkey, len } => {
                let rest = [remote(raddr, rkey), local(laddr, lkey, len), NONE];
                Body::new(Opcode::RDMA_READ, ds_with_data(3, len), rest)
            }
            Self::Send { laddr, lkey, len } => {
                Body::new(Opcode::SEND, ds_with_data(2, len), [local(laddr, lkey, len), NONE, NONE])
            }
            Self::SendInline { data } => {
                let [head, more] = data.to_segments();
                Body::new(Opcode::SEND, 1 + data.n_segments(), [head, more, NONE])
            }
            Self::SendImm { laddr, lkey, len, imm } => {
                let rest = [local(laddr, lkey, len), NONE, NONE];
                Body::new(Opcode::SEND_IMM, ds_with_data(2, len), rest).imm(imm)
            }
            Self::SendInval { laddr, lkey, len, inv_rkey } => {
                let rest = [local(laddr, lkey, len), NONE, NONE];
                Body::new(Opcode::SEND_INVAL, ds_with_data(2, len), rest).imm(inv_rkey)
            }
            Self::FetchAdd { raddr, rkey, laddr, lkey, add } => {
                let operands = AtomicSeg { swap_add: Be64::new(add), compare: Be64::new(0) };
                let rest = [remote(raddr, rkey), operands.to_segment(), local(laddr, lkey, 8)];
                Body::new(Opcode::ATOMIC_FA, 4, rest)
            }
            Self::CompareSwap { raddr, rkey, laddr, lkey, compare, swap } => {
                let operands = AtomicSeg { swap_add: Be64::new(swap), compare: Be64::new(compare) };
                let rest = [remote(raddr, rkey), operands.to_segment(), local(laddr, lkey, 8)];
                Body::new(Opcode::ATOMIC_CS, 4, rest)
            }
            Self::MaskedFetchAdd32 { raddr, rkey, laddr, lkey, add, boundary } => {
                let operands = MaskedFetchAdd32Seg {
                    add: Be32::new(add),
                    boundary: Be32::new(boundary),
                    reserved: Be64::new(0),
                };
                let rest = [remote(raddr, rkey), operands.to_segment(), local(laddr, lkey, 4)];
                Body::new(Opcode::ATOMIC_MASKED_FA, 4, rest).opmod(OPMOD_MASKED_4)
            }
            Self::MaskedFetchAdd64 { raddr, rkey, laddr, lkey, add, boundary } => {
                let operands = MaskedFetchAdd64Seg { add: Be64::new(add), boundary: Be64::new(boundary) };
                let rest = [remote(raddr, rkey), operands.to_segment(), local(laddr, lkey, 8)];
                Body::new(Opcode::ATOMIC_MASKED_FA, 4, rest).opmod(OPMOD_MASKED_8)
            }
            Self::MaskedCompareSwap32 {
                raddr,
                rkey,
                laddr,
                lkey,
                compare,
                swap,
                compare_mask,
                swap_mask,
            } => {
                let operands = MaskedCompareSwap32Seg {
                    swap: Be32::new(swap),
                    compare: Be32::new(compare),
                    swap_mask: Be32::new(swap_mask),
                    compare_mask: Be32::new(compare_mask),
                };
                let rest = [remote(raddr, rkey), operands.to_segment(), local(laddr, lkey, 4)];
                Body::new(Opcode::ATOMIC_MASKED_CS, 4, rest).opmod(OPMOD_MASKED_4)
            }
            Self::MaskedCompareSwap64 {
                raddr,
                rkey,
                laddr,
                lkey,
                compare,
                swap,
                compare_mask,
                swap_mask,
            } => {
                let operands = MaskedCompareSwap64Seg {
                    swap: Be64::new(swap),
                    compare: Be64::new(compare),
                    swap_mask: Be64::new(swap_mask),
                    compare_mask: Be64::new(compare_mask),
                };
                let [values, masks] = operands.to_segments();
                Body::new(Opcode::ATOMIC_MASKED_CS, 5, [remote(raddr, rkey), values, masks])
                    .opmod(OPMOD_MASKED_8)
                    .tail(local(laddr, lkey, 8))
            }
            Self::Dump { laddr, lkey, len } => {
                Body::new(Opcode::DUMP, 2, [local(laddr, lkey, len), NONE, NONE])
            }
            Self::Wait { index, cqn } => {
                Body::new(Opcode::WAIT, 2, [WaitSeg::new(index, cqn).to_segment(), NONE, NONE])
            }
        }
    }
}

const EMPTY_INLINE: Segment = Segment([InlineHdr::new(0).0.raw(), 0, 0, 0]);

#[inline(always)]
const fn remote(addr: u64, rkey: u32) -> Segment {
    RaddrSeg::new(addr, rkey).to_segment()
}

#[inline(always)]
const fn local(addr: u64, lkey: u32, len: u32) -> Segment {
    DataSeg::new(addr, lkey, len).to_segment()
}

#[cfg(test)]
mod tests;
