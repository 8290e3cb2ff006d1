//! Re-encoding of parsed send entries ([`View::emit`]), for entries that [`Wqe`](super::Wqe) cannot express.

use super::{Atomic, Data, OPMOD_MASKED_4, OPMOD_MASKED_8, View};
use crate::{
    be::{Be32, Be64},
    ctrl::{CtrlSeg, Opcode},
    seg::{
        AtomicSeg, DataSeg, InlineHdr, MaskedCompareSwap32Seg, MaskedCompareSwap64Seg, MaskedFetchAdd32Seg,
        MaskedFetchAdd64Seg, RaddrSeg, SEGMENT_BYTES, Segment, WaitSeg, XrcSeg,
    },
};

struct Out<'a> {
    segments: &'a mut [Segment],
    used: usize,
}

impl Out<'_> {
    fn put(&mut self, segment: Segment) -> Option<()> {
        *self.segments.get_mut(self.used)? = segment;
        self.used += 1;
        Some(())
    }

    fn put_all(&mut self, segments: &[Segment]) -> Option<()> {
        segments.iter().try_for_each(|segment| self.put(*segment))
    }

    fn put_inline(&mut self, payload: &[u8]) -> Option<()> {
        let header = InlineHdr::new(payload.len() as u32);
        let mut bytes = bytemuck::bytes_of(&header.0).iter().chain(payload);
        for _ in 0..InlineHdr::segments_for(payload.len() as u32) {
            let mut padded = [0; SEGMENT_BYTES];
            for (to, from) in padded.iter_mut().zip(&mut bytes) {
                *to = *from;
            }
            self.put(Segment::from_bytes(padded))?;
        }
        Some(())
    }
}

impl View<'_> {
    /// Encodes the entry again, field by field. Returns its `ds`, or `None` if `out` is too short.
    ///
    /// The result equals the original bytes, except that bytes ignored by NICs become zero: the immediate of opcodes
    /// without one, the compare operand of fetch and add, reserved words, and the padding of inline data.
    pub fn emit(&self, out: &mut [Segment]) -> Option<u8> {
        let mut out = Out { segments: out, used: 1 };
        if let Some(av) = self.av() {
            let reserved0 = if self.is_dc() { av.reserved0 } else { Be32::new(0) };
            let segments = crate::av::AvSeg { reserved0, reserved1: [0; 4], ..av }.to_segments();
            out.put_all(if av.is_extended() { &segments } else { segments.get(..1)? })?;
        }
        if let Some(srqn) = self.xrc_srqn() {
            out.put(XrcSeg::new(srqn).to_segment())?;
        }
        if let Some(at) = self.remote() {
            out.put(RaddrSeg::new(at.addr.get(), at.rkey.get()).to_segment())?;
        }
        if let Some(wait) = self.wait() {
            out.put(WaitSeg::new(wait.index.get(), wait.cqn.get()).to_segment())?;
        }
        let opmod = match self.atomic() {
            Some(atomic) => put_operands(&mut out, atomic)?,
            None => 0,
        };
        out.put_all(self.umr_segments())?;
        for data in self.data() {
            match data {
                Data::Pointer(at) => {
                    out.put(DataSeg::new(at.addr.get(), at.lkey.get(), at.len.get()).to_segment())?;
                }
                Data::Inline(payload) => out.put_inline(payload)?,
            }
        }
        if self.opcode() == Opcode::NOP {
            // The NIC ignores the size, but it is preserved.
            while out.used < self.ctrl().ds() as usize {
                out.put(Segment::ZERO)?;
            }
        }
        let ds = u8::try_from(out.used).ok()?;
        let ctrl = self.ctrl();
        let imm = self.imm().unwrap_or(0);
        let stream = if self.is_dc() { ctrl.dci_stream() } else { 0 };
        let ctrl = CtrlSeg::new(opmod, ctrl.opcode(), ctrl.index(), ctrl.qpn(), ds, ctrl.flags(), imm);
        let ctrl = ctrl.with_dci_stream(stream);
        *out.segments.first_mut()? = ctrl.to_segment();
        Some(ds)
    }
}

/// Writes the operands of an atomic. Returns the opmod that the control segment must carry.
fn put_operands(out: &mut Out<'_>, atomic: Atomic) -> Option<u8> {
    let (opmod, segment) = match atomic {
        Atomic::FetchAdd { add } => {
            (0, AtomicSeg { swap_add: Be64::new(add), compare: Be64::new(0) }.to_segment())
        }
        Atomic::CompareSwap { compare, swap } => {
            (0, AtomicSeg { swap_add: Be64::new(swap), compare: Be64::new(compare) }.to_segment())
        }
        Atomic::MaskedFetchAdd32 { add, boundary } => {
            let (add, boundary) = (Be32::new(add), Be32::new(boundary));
            let operands = MaskedFetchAdd32Seg { add, boundary, reserved: Be64::new(0) };
            (OPMOD_MASKED_4, operands.to_segment())
        }
        Atomic::MaskedFetchAdd64 { add, boundary } => {
            let (add, boundary) = (Be64::new(add), Be64::new(boundary));
            (OPMOD_MASKED_8, MaskedFetchAdd64Seg { add, boundary }.to_segment())
        }
        Atomic::MaskedCompareSwap32 { compare, swap, compare_mask, swap_mask } => {
            let operands = MaskedCompareSwap32Seg {
                swap: Be32::new(swap),
                compare: Be32::new(compare),
                swap_mask: Be32::new(swap_mask),
                compare_mask: Be32::new(compare_mask),
            };
            (OPMOD_MASKED_4, operands.to_segment())
        }
        Atomic::MaskedCompareSwap64 { compare, swap, compare_mask, swap_mask } => {
            let operands = MaskedCompareSwap64Seg {
                swap: Be64::new(swap),
                compare: Be64::new(compare),
                swap_mask: Be64::new(swap_mask),
                compare_mask: Be64::new(compare_mask),
            };
            let [values, masks] = operands.to_segments();
            out.put(values)?;
            (OPMOD_MASKED_8, masks)
        }
    };
    out.put(segment)?;
    Some(opmod)
}
