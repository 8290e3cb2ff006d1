//! Parser for the entries of Ethernet send queues.

use super::Malformed;
use crate::ctrl::{CtrlSeg, Opcode};
use crate::seg::{DataSeg, SEGMENT_BYTES, Segment, blocks_for};

/// A parsed entry of an Ethernet send queue: a frame, several TCP or UDP segments, or nothing.
#[derive(Clone, Copy, Debug)]
pub struct FrameView<'a> {
    ctrl: CtrlSeg,
    frame: Option<Frame<'a>>,
}

/// What an entry sends.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// The NIC computes the checksum of the IP header.
    pub ip_checksum: bool,
    /// The NIC computes the checksum of TCP or UDP.
    pub l4_checksum: bool,
    /// Maximum length of the data of each segment, if the data is sent as several segments, each with the headers.
    pub segment_size: Option<u16>,
    /// Tag that the NIC inserts: its EtherType and its control information.
    pub vlan: Option<(u16, u16)>,
    /// The first bytes of the frame.
    pub headers: &'a [u8],
    data: &'a [Segment],
}

/// Offset of the inline headers in the segment with the offloads.
const HEADERS_AT: usize = 14;

/// Bits of the flags of the checksums.
const IP_CHECKSUM: u8 = 1 << 6;
const L4_CHECKSUM: u8 = 1 << 7;

/// Bit of the length of the headers: there is a VLAN tag to insert instead.
const INSERT_VLAN: u16 = 1 << 15;
/// Bit next to [`INSERT_VLAN`]: the tag is that of a service.
const SERVICE_TAG: u16 = 1;

/// Bit of the length of a data segment: the data follows in the entry.
const INLINE: u32 = 1 << 31;

/// EtherTypes of VLAN tags.
const CUSTOMER_VLAN: u16 = 0x8100;
const SERVICE_VLAN: u16 = 0x88a8;

impl<'a> FrameView<'a> {
    /// Parses an entry, which starts at the first segment.
    pub fn parse(segments: &'a [Segment]) -> Result<Self, Malformed> {
        let ctrl = CtrlSeg::from_segment(*segments.first().ok_or(Malformed::Short { need: 1, have: 0 })?);
        let (opcode, ds) = (ctrl.opcode(), ctrl.ds());
        let segments =
            segments.get(..ds.into()).ok_or(Malformed::Short { need: ds, have: segments.len() })?;
        match opcode {
            Opcode::NOP => return Ok(Self { ctrl, frame: None }),
            Opcode::SEND | Opcode::TSO => {}
            _ => return Err(Malformed::Unsupported(opcode)),
        }
        let [_, offloads, rest @ ..] = segments else {
            return Err(Malformed::Ds { opcode, ds, least: 2, most: 63 });
        };
        let offloads = offloads.to_bytes();
        let word = |at: usize| u16::from_be_bytes([offloads[at], offloads[at + 1]]);
        let (flags, mss, size) = (offloads[4], word(6), word(12));
        let vlan = (size & INSERT_VLAN != 0).then(|| {
            let tag = if size & SERVICE_TAG != 0 { SERVICE_VLAN } else { CUSTOMER_VLAN };
            (tag, word(HEADERS_AT))
        });
        let len = if vlan.is_some() { 0 } else { usize::from(size) };
        let bytes = Segment::bytes_of(&segments[1..]);
        let used = (HEADERS_AT + len).div_ceil(SEGMENT_BYTES);
        let headers = bytes
            .get(HEADERS_AT..HEADERS_AT + len)
            .ok_or(Malformed::InlineLength { len: len as u32, room: (bytes.len() - HEADERS_AT) as u32 })?;
        let data = rest.get(used - 1..).unwrap_or_default();
        if data.iter().any(|segment| DataSeg::from_segment(*segment).len.get() & INLINE != 0) {
            return Err(Malformed::InlineNotAllowed(opcode));
        }
        let segment_size = (opcode == Opcode::TSO).then_some(mss);
        let (ip_checksum, l4_checksum) = (flags & IP_CHECKSUM != 0, flags & L4_CHECKSUM != 0);
        Ok(Self { ctrl, frame: Some(Frame { ip_checksum, l4_checksum, segment_size, vlan, headers, data }) })
    }

    /// Returns the control segment.
    pub const fn ctrl(&self) -> CtrlSeg {
        self.ctrl
    }

    /// Returns what the entry sends, or `None` for a NOP.
    pub const fn frame(&self) -> Option<Frame<'a>> {
        self.frame
    }

    /// Returns the number of 64-byte blocks (WQEBBs) of the entry.
    pub fn n_blocks(&self) -> u8 {
        blocks_for(self.ctrl.ds()).max(1)
    }
}

impl<'a> Frame<'a> {
    /// Returns the memory that contains the frame after the inline headers.
    pub fn data(&self) -> impl Iterator<Item = DataSeg> + use<'a> {
        self.data.iter().map(|segment| DataSeg::from_segment(*segment))
    }

    /// Returns the length of the frame with all data, in bytes.
    pub fn len(&self) -> u64 {
        self.data().fold(self.headers.len() as u64, |sum, data| sum + u64::from(data.len.get()))
    }

    /// Returns whether the frame has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ctrl::Flags;
    use std::vec::Vec;

    fn entry(opcode: Opcode, offloads: [u8; 16], rest: &[Segment]) -> Vec<Segment> {
        let ds = 2 + rest.len() as u8;
        let ctrl = CtrlSeg::new(0, opcode, 5, 7, ds, Flags::SIGNALED, 0).to_segment();
        [&[ctrl, Segment::from_bytes(offloads)], rest].concat()
    }

    #[test]
    fn a_frame_has_headers_and_data() {
        let data = DataSeg::new(0x1000, 8, 100).to_segment();
        let headers = Segment::from_bytes([3; 16]);
        let offloads = [0, 0, 0, 0, 0xc0, 0, 0, 0, 0, 0, 0, 0, 0, 18, 1, 2];
        let entry = entry(Opcode::SEND, offloads, &[headers, data]);
        let view = FrameView::parse(&entry).unwrap();
        let frame = view.frame().unwrap();
        assert_eq!((frame.headers.len(), &frame.headers[..3], frame.len()), (18, &[1, 2, 3][..], 118));
        assert!(frame.ip_checksum && frame.l4_checksum && frame.vlan.is_none());
        assert_eq!(frame.data().collect::<Vec<_>>(), [DataSeg::new(0x1000, 8, 100)]);
    }

    #[test]
    fn a_tag_replaces_inline_headers() {
        let offloads = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x80, 0, 0x20, 5];
        let data = DataSeg::new(0x1000, 8, 60).to_segment();
        let entry = entry(Opcode::SEND, offloads, &[data]);
        let frame = FrameView::parse(&entry).unwrap().frame().unwrap();
        assert_eq!((frame.vlan, frame.headers.len(), frame.len()), (Some((0x8100, 0x2005)), 0, 60));
    }

    #[test]
    fn malformed_entries_are_rejected() {
        let parse = |entry: &[Segment]| FrameView::parse(entry).map(|_| ());
        let mut offloads = [0; 16];
        offloads[13] = 3;
        let short = entry(Opcode::SEND, offloads, &[]);
        assert_eq!(parse(&short), Err(Malformed::InlineLength { len: 3, room: 2 }));
        assert_eq!(parse(&short[..1]), Err(Malformed::Short { need: 2, have: 1 }));
        let write = entry(Opcode::RDMA_WRITE, [0; 16], &[]);
        assert_eq!(parse(&write), Err(Malformed::Unsupported(Opcode::RDMA_WRITE)));
        let inline = entry(Opcode::SEND, [0; 16], &[Segment([0x80, 0, 0, 0])]);
        assert_eq!(parse(&inline), Err(Malformed::InlineNotAllowed(Opcode::SEND)));
        assert!(FrameView::parse(&[]).is_err());
    }
}
