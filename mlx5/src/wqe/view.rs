//! Parser for the send entries of any mlx5 driver.

use super::{Inline, Malformed, OPMOD_MASKED_4, OPMOD_MASKED_8, Wqe};
use crate::{
    av::AvSeg,
    ctrl::{CtrlSeg, Flags, Opcode},
    seg::{
        AtomicSeg, DataSeg, InlineHdr, MaskedCompareSwap32Seg, MaskedCompareSwap64Seg, MaskedFetchAdd32Seg,
        MaskedFetchAdd64Seg, RaddrSeg, Segment, WaitSeg, XrcSeg, blocks_for,
    },
    umr::Umr,
};

/// A parsed and validated send work-queue entry.
///
/// The format depends on the service of the QP. [`View::parse`] parses entries of connections, reliable or not.
/// [`View::parse_datagram`] parses entries of datagram QPs and [`View::parse_dc`] those of DC initiators, both of which
/// start with an address vector. [`View::parse_xrc`] parses entries of XRC initiators, which start with an SRQN.
///
/// All of them are strict about everything that determines the meaning of an entry: opcode, opmod, sizes, and the order
/// of segments. They ignore bytes that NICs ignore (the immediate of opcodes without one, reserved words), because
/// other drivers leave old bytes there.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    ctrl: CtrlSeg,
    segments: &'a [Segment],
    /// Number of segments of the address vector or XRC segment: zero, one or three. The address itself is not stored:
    /// the software ConnectX parses entries in its hot path, and most have none.
    av: u8,
    format: u8,
    remote: Option<RaddrSeg>,
    atomic: Option<Atomic>,
    wait: Option<WaitSeg>,
    /// Number of segments of a UMR entry between the control segment and the data.
    umr: u8,
    data: &'a [Segment],
}

/// The operands of an atomic, in host order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the operands' names are those of `Wqe`")]
pub enum Atomic {
    /// 64-bit fetch and add.
    FetchAdd { add: u64 },
    /// 64-bit compare and swap.
    CompareSwap { compare: u64, swap: u64 },
    /// 32-bit fetch and add on independent bit fields; a set bit in `boundary` is the top bit of a field.
    MaskedFetchAdd32 { add: u32, boundary: u32 },
    /// 64-bit fetch and add on independent bit fields; a set bit in `boundary` is the top bit of a field.
    MaskedFetchAdd64 { add: u64, boundary: u64 },
    /// 32-bit compare (under `compare_mask`) and swap (under `swap_mask`).
    MaskedCompareSwap32 { compare: u32, swap: u32, compare_mask: u32, swap_mask: u32 },
    /// 64-bit compare (under `compare_mask`) and swap (under `swap_mask`).
    MaskedCompareSwap64 { compare: u64, swap: u64, compare_mask: u64, swap_mask: u64 },
}

impl Atomic {
    /// Returns the size of the remote operand in bytes, 4 or 8.
    pub const fn size(&self) -> u8 {
        match self {
            Self::MaskedFetchAdd32 { .. } | Self::MaskedCompareSwap32 { .. } => 4,
            _ => 8,
        }
    }
}

/// The memory or payload that a data segment of a send entry contributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Data<'a> {
    /// A pointer to local memory.
    Pointer(DataSeg),
    /// Payload carried in the entry itself.
    Inline(&'a [u8]),
}

const CONNECTED: u8 = 0;
const DATAGRAM: u8 = 1;
const DYNAMIC: u8 = 2;
const EXTENDED: u8 = 3;

/// Which segments an opcode requires between the control segment and the data.
struct Shape {
    remote: bool,
    operands: u8,
    least: u8,
    most: u8,
    inline: bool,
}

impl<'a> View<'a> {
    /// Maximum size of an entry, in 16-byte segments.
    pub const MAX_DS: u8 = 63;

    /// Parses the entry that starts at `segments[0]`, in the format of reliable and unreliable connections.
    ///
    /// The caller must have joined an entry that wraps around the ring. Segments past `ds` are ignored.
    pub fn parse(segments: &'a [Segment]) -> Result<Self, Malformed> {
        Self::parse_as::<CONNECTED>(segments)
    }

    /// Parses an entry of a datagram QP, which must be a SEND or a NOP.
    pub fn parse_datagram(segments: &'a [Segment]) -> Result<Self, Malformed> {
        Self::parse_as::<DATAGRAM>(segments)
    }

    /// Parses an entry of a DC initiator, which has an address vector after the control segment, but is otherwise like
    /// that of a connection. NOP, DUMP and WAIT have no vector.
    pub fn parse_dc(segments: &'a [Segment]) -> Result<Self, Malformed> {
        Self::parse_as::<DYNAMIC>(segments)
    }

    /// Parses an entry of an XRC initiator, which has an XRC segment after the control segment, but is otherwise like
    /// that of a connection. NOP, DUMP and WAIT have no XRC segment.
    pub fn parse_xrc(segments: &'a [Segment]) -> Result<Self, Malformed> {
        Self::parse_as::<EXTENDED>(segments)
    }

    #[inline]
    fn parse_as<const FORMAT: u8>(segments: &'a [Segment]) -> Result<Self, Malformed> {
        let Some(first) = segments.first() else { return Err(Malformed::Short { need: 1, have: 0 }) };
        let ctrl = CtrlSeg::from_segment(*first);
        let shape = Shape::of(ctrl)?;
        if FORMAT == DATAGRAM && !matches!(ctrl.opcode(), Opcode::NOP | Opcode::SEND | Opcode::SEND_IMM) {
            return Err(Malformed::NotOfDatagrams(ctrl.opcode()));
        }
        if FORMAT != CONNECTED && ctrl.opcode() == Opcode::UMR {
            return Err(Malformed::Unsupported(Opcode::UMR));
        }
        let ds = ctrl.ds();
        if ctrl.reserved() != 0 {
            return Err(Malformed::Reserved { field: "ds", bits: ctrl.reserved() as u32 });
        }
        if ctrl.flags().0 & Flags::RESERVED != 0 {
            let bits = (ctrl.flags().0 & Flags::RESERVED) as u32;
            return Err(Malformed::Reserved { field: "fm_ce_se", bits });
        }
        if ctrl.flags().fence_mode() > 4 {
            return Err(Malformed::FenceMode(ctrl.flags().fence_mode()));
        }
        let av = match ctrl.opcode() {
            Opcode::NOP | Opcode::DUMP | Opcode::WAIT => 0,
            _ if FORMAT == CONNECTED => 0,
            _ if FORMAT == EXTENDED => 1,
            _ => vector_segments(segments),
        };
        let (least, most) = (shape.least + av, (shape.most + av).min(Self::MAX_DS));
        if ds < least || ds > most {
            return Err(Malformed::Ds { opcode: ctrl.opcode(), ds, least, most });
        }
        let short = Malformed::Short { need: ds, have: segments.len() };
        let segments = segments.get(..ds as usize).ok_or(short)?;

        let mut rest = segments.get(1 + av as usize..).ok_or(short)?;
        let mut take = || {
            let (first, tail) = rest.split_first().ok_or(short)?;
            rest = tail;
            Ok(*first)
        };
        let remote = if shape.remote { Some(RaddrSeg::from_segment(take()?)) } else { None };
        let (mut atomic, mut wait) = (None, None);
        if ctrl.opcode() == Opcode::WAIT {
            wait = Some(WaitSeg::from_segment(take()?));
        } else if shape.operands == 1 {
            atomic = Some(one_segment_atomic(ctrl, take()?));
        } else if shape.operands == 2 {
            atomic = Some(two_segment_atomic([take()?, take()?]));
        }
        let umr = match ctrl.opcode() {
            Opcode::UMR => Umr::segments(rest),
            _ => 0,
        };
        rest = rest.get(umr..).ok_or(short)?;
        let data = if ctrl.opcode() == Opcode::NOP { &[] } else { rest };
        check_data(ctrl.opcode(), data, shape.inline)?;
        Ok(Self { ctrl, segments, av, format: FORMAT, remote, atomic, wait, umr: umr as u8, data })
    }

    /// Returns the control segment, the first 16 bytes of the entry.
    pub const fn ctrl(&self) -> CtrlSeg {
        self.ctrl
    }

    /// Returns the operation that the entry requests.
    pub const fn opcode(&self) -> Opcode {
        self.ctrl.opcode()
    }

    /// Returns the fence mode, completion request and solicited-event bit.
    pub const fn flags(&self) -> Flags {
        self.ctrl.flags()
    }

    /// Returns the immediate, or the key to invalidate or change, for opcodes that have one.
    pub const fn imm(&self) -> Option<u32> {
        match self.opcode() {
            Opcode::RDMA_WRITE_IMM | Opcode::SEND_IMM | Opcode::SEND_INVAL | Opcode::UMR => {
                Some(self.ctrl.imm())
            }
            _ => None,
        }
    }

    /// Returns the number of 64-byte blocks (WQEBBs) that the entry occupies.
    pub const fn n_blocks(&self) -> u8 {
        blocks_for(self.ctrl.ds())
    }

    /// Returns all 16-byte segments of the entry, `ds` of them.
    pub const fn segments(&self) -> &'a [Segment] {
        self.segments
    }

    /// Returns the address vector of a datagram or DC entry.
    pub fn av(&self) -> Option<AvSeg> {
        let [_, rest @ ..] = self.segments else { return None };
        match (self.av, rest) {
            _ if self.format == EXTENDED => None,
            (1, [first, ..]) => Some(AvSeg::from_segments([*first, Segment::ZERO, Segment::ZERO])),
            (3, [first, second, third, ..]) => Some(AvSeg::from_segments([*first, *second, *third])),
            _ => None,
        }
    }

    /// Returns whether the entry addresses a DC target, so its vector starts with an access key.
    pub(crate) const fn is_dc(&self) -> bool {
        self.format == DYNAMIC
    }

    /// Returns the shared receive queue number (SRQN) that an entry of an XRC initiator addresses.
    pub fn xrc_srqn(&self) -> Option<u32> {
        match self.segments {
            [_, first, ..] if self.format == EXTENDED && self.av == 1 => {
                Some(XrcSeg::from_segment(*first).srqn.get() & 0xff_ffff)
            }
            _ => None,
        }
    }

    /// Returns the remote address of a READ, WRITE or atomic.
    pub const fn remote(&self) -> Option<RaddrSeg> {
        self.remote
    }

    /// Returns the operands of an atomic.
    pub const fn atomic(&self) -> Option<Atomic> {
        self.atomic
    }

    /// Returns the condition of a WAIT.
    pub const fn wait(&self) -> Option<WaitSeg> {
        self.wait
    }

    /// Returns the contents of a UMR entry. Its data segments hold the translations, if they are not in the entry.
    pub fn umr(&self) -> Option<Umr<'a>> {
        Umr::read(self.ctrl.imm(), self.segments.get(1..)?).filter(|_| self.umr != 0)
    }

    /// Returns the segments of a UMR entry between the control segment and the data.
    pub(crate) fn umr_segments(&self) -> &'a [Segment] {
        self.segments.get(1..1 + self.umr as usize).unwrap_or_default()
    }

    /// Returns the data segments, in order: gathered by WRITE and SEND, scattered to by READ and atomics.
    pub fn data(&self) -> DataIter<'a> {
        DataIter { rest: self.data }
    }

    /// Returns the total length of all data segments, in bytes.
    pub fn data_len(&self) -> u64 {
        self.data()
            .map(|data| match data {
                Data::Pointer(segment) => segment.len.get() as u64,
                Data::Inline(bytes) => bytes.len() as u64,
            })
            .sum()
    }

    /// Converts the entry to a [`Wqe`], provided that emitting it with the same index, QPN, flags and address vector
    /// yields the same bytes.
    ///
    /// Returns `None` for short address vectors, multiple data segments, and inline data longer than [`Inline::MAX`].
    /// Also returns `None` if ignored or reserved bytes, or a DC stream channel, are set.
    pub fn to_wqe(&self) -> Option<Wqe> {
        let wqe = self.shape_of_wqe()?;
        let (index, qpn, flags) = (self.ctrl.index(), self.ctrl.qpn(), self.flags());
        let again = match self.av() {
            Some(av) => wqe.emit_to(&av, index, qpn, flags),
            None => wqe.emit(index, qpn, flags),
        };
        (again.segments() == self.segments).then_some(wqe)
    }

    fn shape_of_wqe(&self) -> Option<Wqe> {
        let mut list = self.data();
        let data = list.next();
        if list.next().is_some() {
            return None;
        }
        let (laddr, lkey, len, inline) = match data {
            Some(Data::Pointer(segment)) => (segment.addr.get(), segment.lkey.get(), segment.len.get(), None),
            Some(Data::Inline(bytes)) => (0, 0, 0, Some(Inline::new(bytes)?)),
            None => (0, 0, 0, None),
        };
        let imm = self.ctrl.imm();
        let Some(at) = self.remote else {
            return Some(match (self.opcode(), inline) {
                (Opcode::NOP, _) => Wqe::Nop,
                (Opcode::SEND, Some(data)) => Wqe::SendInline { data },
                (Opcode::SEND, None) => Wqe::Send { laddr, lkey, len },
                (Opcode::SEND_IMM, None) => Wqe::SendImm { laddr, lkey, len, imm },
                (Opcode::SEND_INVAL, None) => Wqe::SendInval { laddr, lkey, len, inv_rkey: imm },
                (Opcode::DUMP, None) => Wqe::Dump { laddr, lkey, len },
                (Opcode::WAIT, None) => {
                    let wait = self.wait?;
                    Wqe::Wait { index: wait.index.get(), cqn: wait.cqn.get() }
                }
                _ => return None,
            });
        };
        let (raddr, rkey) = (at.addr.get(), at.rkey.get());
        Some(match (self.opcode(), inline, self.atomic) {
            (Opcode::RDMA_WRITE, Some(data), _) => Wqe::WriteInline { raddr, rkey, data },
            (Opcode::RDMA_WRITE, None, _) => Wqe::Write { raddr, rkey, laddr, lkey, len },
            (Opcode::RDMA_WRITE_IMM, None, _) => Wqe::WriteImm { raddr, rkey, laddr, lkey, len, imm },
            (Opcode::RDMA_READ, None, _) => Wqe::Read { raddr, rkey, laddr, lkey, len },
            (_, None, Some(atomic)) => atomic_wqe(atomic, raddr, rkey, laddr, lkey),
            _ => return None,
        })
    }
}

fn atomic_wqe(atomic: Atomic, raddr: u64, rkey: u32, laddr: u64, lkey: u32) -> Wqe {
    match atomic {
        Atomic::FetchAdd { add } => Wqe::FetchAdd { raddr, rkey, laddr, lkey, add },
        Atomic::CompareSwap { compare, swap } => Wqe::CompareSwap { raddr, rkey, laddr, lkey, compare, swap },
        Atomic::MaskedFetchAdd32 { add, boundary } => {
            Wqe::MaskedFetchAdd32 { raddr, rkey, laddr, lkey, add, boundary }
        }
        Atomic::MaskedFetchAdd64 { add, boundary } => {
            Wqe::MaskedFetchAdd64 { raddr, rkey, laddr, lkey, add, boundary }
        }
        Atomic::MaskedCompareSwap32 { compare, swap, compare_mask, swap_mask } => {
            Wqe::MaskedCompareSwap32 { raddr, rkey, laddr, lkey, compare, swap, compare_mask, swap_mask }
        }
        Atomic::MaskedCompareSwap64 { compare, swap, compare_mask, swap_mask } => {
            Wqe::MaskedCompareSwap64 { raddr, rkey, laddr, lkey, compare, swap, compare_mask, swap_mask }
        }
    }
}

impl Shape {
    fn of(ctrl: CtrlSeg) -> Result<Self, Malformed> {
        let (opcode, opmod) = (ctrl.opcode(), ctrl.opmod());
        let most = View::MAX_DS;
        let shape = match opcode {
            Opcode::NOP => Self { remote: false, operands: 0, least: 1, most, inline: false },
            Opcode::RDMA_WRITE | Opcode::RDMA_WRITE_IMM => {
                Self { remote: true, operands: 0, least: 2, most, inline: true }
            }
            Opcode::RDMA_READ => Self { remote: true, operands: 0, least: 2, most, inline: false },
            Opcode::SEND | Opcode::SEND_IMM | Opcode::SEND_INVAL => {
                Self { remote: false, operands: 0, least: 1, most, inline: true }
            }
            Opcode::ATOMIC_CS | Opcode::ATOMIC_FA => {
                Self { remote: true, operands: 1, least: 4, most: 4, inline: false }
            }
            Opcode::ATOMIC_MASKED_CS | Opcode::ATOMIC_MASKED_FA => {
                let operands = match (opcode, opmod) {
                    (Opcode::ATOMIC_MASKED_CS, OPMOD_MASKED_8) => 2,
                    (_, OPMOD_MASKED_4 | OPMOD_MASKED_8) => 1,
                    _ => return Err(Malformed::Opmod { opcode, opmod }),
                };
                let ds = 3 + operands;
                return Ok(Self { remote: true, operands, least: ds, most: ds, inline: false });
            }
            Opcode::UMR => {
                Self { remote: false, operands: 0, least: 1 + Umr::SEGMENTS as u8, most, inline: false }
            }
            Opcode::DUMP => Self { remote: false, operands: 0, least: 2, most, inline: false },
            Opcode::WAIT => Self { remote: false, operands: 1, least: 2, most: 2, inline: false },
            known if known.name().is_some() => return Err(Malformed::Unsupported(known)),
            unknown => return Err(Malformed::UnknownOpcode(unknown)),
        };
        if opmod != 0 {
            return Err(Malformed::Opmod { opcode, opmod });
        }
        Ok(shape)
    }
}

/// Returns the number of segments of the address vector that follows the control segment.
fn vector_segments(segments: &[Segment]) -> u8 {
    let first = segments.get(1).copied().unwrap_or(Segment::ZERO);
    if AvSeg::from_segments([first, Segment::ZERO, Segment::ZERO]).is_extended() { 3 } else { 1 }
}

fn one_segment_atomic(ctrl: CtrlSeg, segment: Segment) -> Atomic {
    match (ctrl.opcode(), ctrl.opmod()) {
        (Opcode::ATOMIC_MASKED_CS, _) => {
            let seg = MaskedCompareSwap32Seg::from_segment(segment);
            Atomic::MaskedCompareSwap32 {
                compare: seg.compare.get(),
                swap: seg.swap.get(),
                compare_mask: seg.compare_mask.get(),
                swap_mask: seg.swap_mask.get(),
            }
        }
        (Opcode::ATOMIC_MASKED_FA, OPMOD_MASKED_4) => {
            let seg = MaskedFetchAdd32Seg::from_segment(segment);
            Atomic::MaskedFetchAdd32 { add: seg.add.get(), boundary: seg.boundary.get() }
        }
        (Opcode::ATOMIC_MASKED_FA, _) => {
            let seg = MaskedFetchAdd64Seg::from_segment(segment);
            Atomic::MaskedFetchAdd64 { add: seg.add.get(), boundary: seg.boundary.get() }
        }
        (Opcode::ATOMIC_CS, _) => {
            let seg = AtomicSeg::from_segment(segment);
            Atomic::CompareSwap { compare: seg.compare.get(), swap: seg.swap_add.get() }
        }
        _ => Atomic::FetchAdd { add: AtomicSeg::from_segment(segment).swap_add.get() },
    }
}

fn two_segment_atomic(segments: [Segment; 2]) -> Atomic {
    let seg = MaskedCompareSwap64Seg::from_segments(segments);
    Atomic::MaskedCompareSwap64 {
        compare: seg.compare.get(),
        swap: seg.swap.get(),
        compare_mask: seg.compare_mask.get(),
        swap_mask: seg.swap_mask.get(),
    }
}

/// Validates the data segments once, so [`DataIter`] may trust them.
fn check_data(opcode: Opcode, data: &[Segment], inline_allowed: bool) -> Result<(), Malformed> {
    let mut rest = data;
    while let Some((first, tail)) = rest.split_first() {
        let header = InlineHdr(DataSeg::from_segment(*first).len);
        if !header.is_inline() {
            rest = tail;
            continue;
        }
        if !inline_allowed {
            return Err(Malformed::InlineNotAllowed(opcode));
        }
        if header.reserved() != 0 {
            return Err(Malformed::Reserved { field: "inline length", bits: header.reserved() });
        }
        let room = Segment::bytes_of(rest).len() as u32 - 4;
        let too_long = Malformed::InlineLength { len: header.len(), room };
        rest = rest.get(InlineHdr::segments_for(header.len()) as usize..).ok_or(too_long)?;
    }
    Ok(())
}

/// Iterator over the data segments of an entry; see [`View::data`].
#[derive(Clone, Copy, Debug)]
pub struct DataIter<'a> {
    rest: &'a [Segment],
}

impl<'a> Iterator for DataIter<'a> {
    type Item = Data<'a>;

    fn next(&mut self) -> Option<Data<'a>> {
        let (first, tail) = self.rest.split_first()?;
        let segment = DataSeg::from_segment(*first);
        let header = InlineHdr(segment.len);
        if !header.is_inline() {
            self.rest = tail;
            return Some(Data::Pointer(segment));
        }
        let bytes = Segment::bytes_of(self.rest).get(4..4 + header.len() as usize)?;
        self.rest = self.rest.get(InlineHdr::segments_for(header.len()) as usize..)?;
        Some(Data::Inline(bytes))
    }
}
