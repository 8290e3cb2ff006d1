//! Inline payloads: data carried in the work-queue entry instead of being fetched by the NIC.

use crate::{
    be::Be32,
    ctrl::{CtrlSeg, Flags, Opcode},
    seg::{InlineHdr, RaddrSeg, SEGMENT_BYTES, Segment},
};
use core::fmt;

/// An inline payload of up to 28 bytes by value, which fits in a WQEBB along with its control and remote address
/// segments.
///
/// The bytes are sent exactly as they are in memory, so an integer arrives in the byte order of the sender.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Inline {
    words: [u32; 7],
    len: u8,
}

impl Inline {
    /// Maximum length of an inline payload, in bytes.
    pub const MAX: usize = 28;

    /// Copies `bytes`. Returns `None` if they are longer than [`Inline::MAX`].
    pub fn new(bytes: &[u8]) -> Option<Self> {
        if bytes.len() > Self::MAX {
            return None;
        }
        let mut words = [0; 7];
        for (word, chunk) in words.iter_mut().zip(bytes.chunks(4)) {
            let mut padded = [0; 4];
            for (to, from) in padded.iter_mut().zip(chunk) {
                *to = *from;
            }
            *word = u32::from_ne_bytes(padded);
        }
        Some(Self { words, len: bytes.len() as u8 })
    }

    /// Creates a payload of one byte.
    #[inline(always)]
    pub const fn from_u8(value: u8) -> Self {
        Self::from_u32_bytes(u32::from_ne_bytes([value, 0, 0, 0]), 1)
    }

    /// Creates a payload of two bytes.
    #[inline(always)]
    pub const fn from_u16(value: u16) -> Self {
        let [a, b] = value.to_ne_bytes();
        Self::from_u32_bytes(u32::from_ne_bytes([a, b, 0, 0]), 2)
    }

    /// Creates a payload of four bytes.
    #[inline(always)]
    pub const fn from_u32(value: u32) -> Self {
        Self::from_u32_bytes(value, 4)
    }

    /// Creates a payload of eight bytes.
    #[inline(always)]
    pub const fn from_u64(value: u64) -> Self {
        let [a, b, c, d, e, f, g, h] = value.to_ne_bytes();
        let low = u32::from_ne_bytes([a, b, c, d]);
        let high = u32::from_ne_bytes([e, f, g, h]);
        Self { words: [low, high, 0, 0, 0, 0, 0], len: 8 }
    }

    #[inline(always)]
    const fn from_u32_bytes(word: u32, len: u8) -> Self {
        Self { words: [word, 0, 0, 0, 0, 0, 0], len }
    }

    /// Returns the length of the payload, in bytes.
    #[inline(always)]
    pub const fn len(&self) -> u8 {
        self.len
    }

    /// Returns whether the payload is empty.
    #[inline(always)]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the payload without its padding.
    pub fn bytes(&self) -> &[u8] {
        let all: &[u8; Self::MAX] = bytemuck::must_cast_ref(&self.words);
        all.get(..self.len as usize).unwrap_or(all)
    }

    #[inline(always)]
    pub(crate) const fn to_segments(self) -> [Segment; 2] {
        let [a, b, c, d, e, f, g] = self.words;
        [Segment([InlineHdr::new(self.len as u32).0.raw(), a, b, c]), Segment([d, e, f, g])]
    }

    #[inline(always)]
    pub(crate) const fn n_segments(&self) -> u8 {
        if self.len <= 12 { 1 } else { 2 }
    }
}

impl fmt::Debug for Inline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        crate::hex::hex(self.bytes(), f)
    }
}

/// Writes an RDMA WRITE that carries `payload` to the segments of consecutive blocks, and returns its `ds`. Returns
/// `None` if `out` is too short, or if `payload` exceeds 972 bytes (`ds` has 6 bits). The segments are contiguous: the
/// caller handles the wrap of a ring.
///
/// ```
/// use rushmem_mlx5::{Flags, Segment, View, wqe::emit_write_inline};
///
/// let mut out = [Segment::ZERO; 8];
/// let ds = emit_write_inline(&mut out, 7, 0x1a7, Flags::SIGNALED, 0x1000, 0x42, &[9; 60]).unwrap();
/// assert_eq!(ds, 6);
/// assert_eq!(View::parse(&out[..6]).unwrap().data_len(), 60);
/// ```
pub fn emit_write_inline(
    out: &mut [Segment],
    index: u16,
    qpn: u32,
    flags: Flags,
    raddr: u64,
    rkey: u32,
    payload: &[u8],
) -> Option<u8> {
    let len = u32::try_from(payload.len()).ok().filter(|len| *len <= InlineHdr::LEN_MASK)?;
    let ds = u8::try_from(2 + InlineHdr::segments_for(len)).ok().filter(|ds| *ds <= 63)?;
    let (head, body) = out.get_mut(..ds as usize)?.split_first_chunk_mut::<2>()?;
    *head = [
        CtrlSeg::new(0, Opcode::RDMA_WRITE, index, qpn, ds, flags, 0).to_segment(),
        RaddrSeg::new(raddr, rkey).to_segment(),
    ];
    let header: Be32 = InlineHdr::new(len).0;
    let mut bytes = bytemuck::bytes_of(&header).iter().chain(payload);
    for segment in body {
        let mut padded = [0; SEGMENT_BYTES];
        for (to, from) in padded.iter_mut().zip(&mut bytes) {
            *to = *from;
        }
        *segment = Segment::from_bytes(padded);
    }
    Some(ds)
}
