use super::*;
use crate::be::Be16;
use crate::prm::mkey::MkeyContext;
use crate::testing::bytes;
use crate::umr::UmrSeg;
use std::{string::ToString, vec, vec::Vec};

const QPN: u32 = 0x1a7;
const RKEY: u32 = 0x0018_1ef0;
const RADDR: u64 = 0x7f4a_2000_1000;
const LKEY: u32 = 0x0020_0f42;
const LADDR: u64 = 0x7f3b_4000_2000;

struct Golden {
    name: &'static str,
    wqe: Wqe,
    index: u16,
    flags: Flags,
    bytes: &'static str,
}

// A flat table; splitting it would only move rows elsewhere.
fn goldens() -> [Golden; 14] {
    let (raddr, rkey, laddr, lkey) = (RADDR, RKEY, LADDR, LKEY);
    let golden = |name, wqe, index, flags, bytes| Golden { name, wqe, index, flags, bytes };
    [
        golden(
            "write 16384",
            Wqe::Write { raddr, rkey, laddr, lkey, len: 16384 },
            0x12,
            Flags::SIGNALED,
            "00001208 0001a703 00000008 00000000  00007f4a 20001000 00181ef0 00000000
             00004000 00200f42 00007f3b 40002000",
        ),
        golden(
            "read 256",
            Wqe::Read { raddr, rkey, laddr, lkey, len: 256 },
            0x13,
            Flags::SIGNALED,
            "00001310 0001a703 00000008 00000000  00007f4a 20001000 00181ef0 00000000
             00000100 00200f42 00007f3b 40002000",
        ),
        golden(
            "inline u32",
            Wqe::WriteInline { raddr, rkey, data: Inline::from_u32(0x1122_3344_u32.to_le()) },
            0x14,
            Flags::SIGNALED,
            "00001408 0001a703 00000008 00000000  00007f4a 20001000 00181ef0 00000000
             80000004 44332211 00000000 00000000",
        ),
        golden(
            "inline u64",
            Wqe::WriteInline { raddr, rkey, data: Inline::from_u64(0x1122_3344_5566_7788_u64.to_le()) },
            0x15,
            Flags::SIGNALED,
            "00001508 0001a703 00000008 00000000  00007f4a 20001000 00181ef0 00000000
             80000008 88776655 44332211 00000000",
        ),
        golden(
            "fetch add 5",
            Wqe::FetchAdd { raddr, rkey, laddr, lkey, add: 5 },
            0x16,
            Flags::SIGNALED,
            "00001612 0001a704 00000008 00000000  00007f4a 20001000 00181ef0 00000000
             00000000 00000005 00000000 00000000  00000008 00200f42 00007f3b 40002000",
        ),
        golden(
            "masked fetch add, 32 bits",
            Wqe::MaskedFetchAdd32 { raddr, rkey, laddr, lkey, add: 1, boundary: 0 },
            0x17,
            Flags::SIGNALED,
            "08001715 0001a704 00000008 00000000  00007f4a 20001000 00181ef0 00000000
             00000001 00000000 00000000 00000000  00000004 00200f42 00007f3b 40002000",
        ),
        golden(
            "compare swap",
            Wqe::CompareSwap { raddr, rkey, laddr, lkey, compare: 0x0a, swap: 0x0b },
            0x18,
            Flags::SIGNALED,
            "00001811 0001a704 00000008 00000000  00007f4a 20001000 00181ef0 00000000
             00000000 0000000b 00000000 0000000a  00000008 00200f42 00007f3b 40002000",
        ),
        golden(
            "masked compare swap, 64 bits: unconditional swap, two blocks",
            Wqe::MaskedCompareSwap64 {
                raddr,
                rkey,
                laddr,
                lkey,
                compare: 0,
                swap: 0x0102_0304_0506_0708,
                compare_mask: 0,
                swap_mask: u64::MAX,
            },
            0x19,
            Flags::NONE,
            "09001914 0001a705 00000000 00000000  00007f4a 20001000 00181ef0 00000000
             01020304 05060708 00000000 00000000  ffffffff ffffffff 00000000 00000000
             00000008 00200f42 00007f3b 40002000",
        ),
        golden("nop", Wqe::Nop, 0x1b, Flags::SIGNALED, "00001b00 0001a701 00000008 00000000"),
        golden(
            "masked compare swap, 32 bits",
            Wqe::MaskedCompareSwap32 {
                raddr,
                rkey,
                laddr,
                lkey,
                compare: 0x0a,
                swap: 0x0b,
                compare_mask: u32::MAX,
                swap_mask: u32::MAX,
            },
            0x1c,
            Flags::SIGNALED,
            "08001c14 0001a704 00000008 00000000  00007f4a 20001000 00181ef0 00000000
             0000000b 0000000a ffffffff ffffffff  00000004 00200f42 00007f3b 40002000",
        ),
        golden(
            "dump, fenced",
            Wqe::Dump { laddr, lkey, len: 1 },
            0x1d,
            Flags::SIGNALED.or(Flags::FENCE),
            "00001d23 0001a702 00000048 00000000  00000001 00200f42 00007f3b 40002000",
        ),
        golden(
            "write with immediate, solicited",
            Wqe::WriteImm { raddr, rkey, laddr, lkey, len: 64, imm: 0xcafe_0001 },
            0x1e,
            Flags::SIGNALED.or(Flags::SOLICITED),
            "00001e09 0001a703 0000000a cafe0001  00007f4a 20001000 00181ef0 00000000
             00000040 00200f42 00007f3b 40002000",
        ),
        golden(
            "wait",
            Wqe::Wait { index: 0x12, cqn: 0x403 },
            0x1f,
            Flags::SIGNALED,
            "00001f0f 0001a702 00000008 00000000  00000000 00000000 00000012 00000403",
        ),
        golden(
            "masked fetch add, 64 bits: xor, last index",
            Wqe::MaskedFetchAdd64 {
                raddr,
                rkey,
                laddr,
                lkey,
                add: 0x8000_0000_0000_0001,
                boundary: u64::MAX,
            },
            0xffff,
            Flags::SIGNALED,
            "09ffff15 0001a704 00000008 00000000  00007f4a 20001000 00181ef0 00000000
             80000000 00000001 ffffffff ffffffff  00000008 00200f42 00007f3b 40002000",
        ),
    ]
}

/// Parses a hexadecimal dump as segments.
fn segments(text: &str) -> Vec<Segment> {
    let digits: std::string::String = text.split_whitespace().collect();
    digits
        .as_bytes()
        .chunks(32)
        .map(|c| Segment::from_bytes(bytes(core::str::from_utf8(c).unwrap())))
        .collect()
}

#[test]
fn emit() {
    for Golden { name, wqe, index, flags, bytes } in goldens() {
        let emitted = wqe.emit(index, QPN, flags);
        assert_eq!(emitted.segments(), segments(bytes), "{name}");
        assert_eq!(emitted.n_blocks(), if segments(bytes).len() > 4 { 2 } else { 1 }, "{name}");
    }
}

#[test]
fn parse() {
    for Golden { name, wqe, index, flags, bytes } in goldens() {
        let mut ring = segments(bytes);
        let ds = ring.len();
        ring.resize(8, Segment([0xa5a5_a5a5; 4]));
        let view = View::parse(&ring).unwrap();
        assert_eq!(view.to_wqe(), Some(wqe), "{name}");
        assert_eq!(view.segments().len(), ds, "{name}");
        let ctrl = view.ctrl();
        assert_eq!((ctrl.index(), ctrl.qpn(), ctrl.flags()), (index, QPN, flags), "{name}");
    }
}

#[test]
fn every_truncation_is_an_error() {
    for Golden { name, bytes, .. } in goldens() {
        let whole = segments(bytes);
        for have in 0..whole.len() {
            let need = if have == 0 { 1 } else { whole.len() as u8 };
            let error = View::parse(&whole[..have]).unwrap_err();
            assert_eq!(error, Malformed::Short { need, have }, "{name}");
        }
    }
}

#[test]
fn inline_payload_is_limited_to_28_bytes() {
    assert_eq!(Inline::new(&[7; 29]), None);
    for len in 0..=28 {
        let data = Inline::new(&[7; 28][..len]).unwrap();
        let wqe = Wqe::WriteInline { raddr: RADDR, rkey: RKEY, data };
        let emitted = wqe.emit(1, QPN, Flags::NONE);
        assert_eq!(emitted.ds, if len <= 12 { 3 } else { 4 }, "{len}");
        assert_eq!(View::parse(emitted.segments()).unwrap().to_wqe(), Some(wqe));
        let bytes = emitted.blocks[0].to_bytes();
        assert_eq!(bytes[0x24..0x24 + len], [7; 28][..len]);
        assert!(bytes[0x24 + len..].iter().all(|b| *b == 0));
    }
}

#[test]
fn inline_integers_keep_their_memory_order() {
    assert_eq!(Inline::from_u8(0x12).bytes(), 0x12_u8.to_ne_bytes());
    assert_eq!(Inline::from_u16(0x1234).bytes(), 0x1234_u16.to_ne_bytes());
    assert_eq!(Inline::from_u32(0x1234_5678).bytes(), 0x1234_5678_u32.to_ne_bytes());
    assert_eq!(Inline::from_u64(0x0102_0304_0506_0708).bytes(), 0x0102_0304_0506_0708_u64.to_ne_bytes());
}

#[test]
fn long_inline_writes_every_byte_of_its_segments_and_no_more() {
    let payload: [u8; 100] = core::array::from_fn(|i| i as u8);
    for len in [0, 1, 12, 13, 28, 29, 60, 100] {
        let mut ring = [Segment([0xa5a5_a5a5; 4]); 10];
        let ds = emit_write_inline(&mut ring, 3, QPN, Flags::NONE, RADDR, RKEY, &payload[..len]).unwrap();
        assert_eq!(ds as usize, 2 + (4 + len).div_ceil(16));
        assert!(ring[ds as usize..].iter().all(|s| *s == Segment([0xa5a5_a5a5; 4])));
        let view = View::parse(&ring).unwrap();
        assert_eq!(view.data().collect::<Vec<_>>(), [Data::Inline(&payload[..len])]);
        let tail = &Segment::bytes_of(view.segments())[0x24 + len..];
        assert!(tail.iter().all(|b| *b == 0));
        if len <= Inline::MAX {
            let data = Inline::new(&payload[..len]).unwrap();
            let short = Wqe::WriteInline { raddr: RADDR, rkey: RKEY, data }.emit(3, QPN, Flags::NONE);
            assert_eq!(short.segments(), view.segments());
        }
    }
    let mut ring = [Segment::ZERO; 63];
    let at_most =
        |ring: &mut [Segment], len| emit_write_inline(ring, 0, 0, Flags::NONE, 0, 0, &[0; 2048][..len]);
    assert_eq!(at_most(&mut ring, 972), Some(63));
    assert_eq!(at_most(&mut ring, 973), None, "ds has six bits");
    assert_eq!(at_most(&mut ring, 1024), None);
    assert_eq!(at_most(&mut ring[..2], 1), None, "no room");
}

#[test]
fn gather_lists_and_mixed_inline_are_read_in_order() {
    let ctrl = CtrlSeg::new(0, Opcode::RDMA_WRITE, 0, QPN, 7, Flags::NONE, 0);
    let one = DataSeg::new(LADDR, LKEY, 100);
    let two = DataSeg::new(LADDR + 4096, LKEY, 28);
    let [head, more] = Inline::new(&[9; 20]).unwrap().to_segments();
    let list = [
        ctrl.to_segment(),
        remote(RADDR, RKEY),
        one.to_segment(),
        head,
        more,
        two.to_segment(),
        one.to_segment(),
    ];
    let view = View::parse(&list).unwrap();
    let data: Vec<_> = view.data().collect();
    assert_eq!(data, [Data::Pointer(one), Data::Inline(&[9; 20]), Data::Pointer(two), Data::Pointer(one)]);
    assert_eq!(view.data_len(), 248);
    assert_eq!(view.n_blocks(), 2);
    assert_eq!(view.to_wqe(), None, "one `Wqe` has one buffer");
}

#[test]
fn empty_data_has_no_segment() {
    let (raddr, rkey, laddr, lkey, len) = (RADDR, RKEY, 0, 0, 0);
    for (wqe, ds) in [
        (Wqe::Write { raddr, rkey, laddr, lkey, len }, 2),
        (Wqe::WriteImm { raddr, rkey, laddr, lkey, len, imm: 1 }, 2),
        (Wqe::Read { raddr, rkey, laddr, lkey, len }, 2),
        (Wqe::Send { laddr, lkey, len }, 1),
        (Wqe::SendImm { laddr, lkey, len, imm: 1 }, 1),
    ] {
        let emitted = wqe.emit(0, QPN, Flags::NONE);
        assert_eq!(emitted.ds, ds);
        let view = View::parse(emitted.segments()).unwrap();
        assert_eq!((view.to_wqe(), view.data_len()), (Some(wqe), 0));
    }
}

fn vector() -> AvSeg {
    AvSeg { rlid: 0xc001.into(), rmac: [1, 2, 3, 4, 5, 6], ..AvSeg::default() }
        .to_dct(0x2b8, 0x1122_3344_5566_7788)
}

#[test]
fn entries_of_dc_carry_key_and_target() {
    let put = Wqe::Write { raddr: RADDR, rkey: RKEY, laddr: LADDR, lkey: LKEY, len: 16384 };
    let entry = put.emit_to(&vector(), 0x12, QPN, Flags::SIGNALED);
    let expected: [u8; 96] = bytes(
        "00001208 0001a706 00000008 00000000  11223344 55667788 800002b8 0000c001
         00000000 01020304 05060000 00000000  00000000 00000000 00000000 00000000
         00007f4a 20001000 00181ef0 00000000  00004000 00200f42 00007f3b 40002000",
    );
    assert_eq!(Segment::bytes_of(entry.segments()), expected);
    assert_eq!(
        View::parse_dc(entry.segments()).unwrap().to_string(),
        "qp 0x1a7 [0x12] RDMA_WRITE ds 6 signaled to dct 0x2b8 key 0x1122334455667788 lid 0xc001 \
         gid 00000000000000000000000000000000 mac 010203040506 remote 0x7f4a20001000 rkey 0x181ef0 \
         data 16384 B at 0x7f3b40002000 lkey 0x200f42"
    );
    assert!(View::parse(entry.segments()).is_ok_and(|view| view.av().is_none()), "its service is not in it");
}

/// The expected bytes follow `struct mlx5_wqe_xrc_seg` of libmlx5.
#[test]
fn entries_of_xrc_carry_the_number_of_the_queue() {
    let expected: [u8; 64] = bytes(
        "00001208 0001a704 00000008 00000000  000002b8 00000000 00000000 00000000
         00007f4a 20001000 00181ef0 00000000  00004000 00200f42 00007f3b 40002000",
    );
    let segments: Vec<Segment> =
        expected.as_chunks().0.iter().map(|chunk| Segment::from_bytes(*chunk)).collect();
    assert_eq!(
        View::parse_xrc(&segments).unwrap().to_string(),
        "qp 0x1a7 [0x12] RDMA_WRITE ds 4 signaled to xrc srq 0x2b8 remote 0x7f4a20001000 rkey 0x181ef0 \
         data 16384 B at 0x7f3b40002000 lkey 0x200f42"
    );
}

#[test]
fn every_entry_of_dc_has_two_blocks() {
    for golden in goldens().iter().filter(|golden| golden.wqe.opcode() != Opcode::WAIT) {
        let entry = golden.wqe.emit_to(&vector(), 7, QPN, golden.flags);
        assert!((5..=8).contains(&entry.ds) && entry.n_blocks() == 2, "{}", golden.name);
        assert!(View::parse_dc(entry.segments()).is_ok(), "{}", golden.name);
    }
    let empty = Wqe::Send { laddr: 0, lkey: 0, len: 0 }.emit_to(&vector(), 7, QPN, Flags::NONE);
    assert_eq!((empty.ds, View::parse_dc(empty.segments()).unwrap().data_len()), (5, 0));
}

#[test]
fn entries_of_dc_are_as_long_as_their_vector_says() {
    let fetch = Wqe::FetchAdd { raddr: RADDR, rkey: RKEY, laddr: LADDR, lkey: LKEY, add: 5 };
    let whole = fetch.emit_to(&vector(), 7, QPN, Flags::NONE);
    assert_eq!(whole.ds, 7);
    let with = |ds, short: bool| {
        let mut segments = whole.segments().to_vec();
        if short {
            segments.drain(2..4);
            segments[1].0[2] = Be32::new(0x2b8).raw();
        }
        segments[0] = CtrlSeg::new(0, Opcode::ATOMIC_FA, 7, QPN, ds, Flags::NONE, 0).to_segment();
        segments.push(Segment::ZERO);
        View::parse_dc(&segments).map(|view| (view.av().map(|av| av.dc_key()), view.atomic()))
    };
    let read = (Some(0x1122_3344_5566_7788), Some(Atomic::FetchAdd { add: 5 }));
    assert_eq!([with(7, false), with(5, true)], [Ok(read); 2]);
    let wrong = |ds, of| Err(Malformed::Ds { opcode: Opcode::ATOMIC_FA, ds, least: of, most: of });
    assert_eq!([with(4, false), with(8, false), with(4, true)], [wrong(4, 7), wrong(8, 7), wrong(4, 5)]);
}

#[test]
fn stale_bytes_in_ignored_fields_are_accepted() {
    let put = Wqe::Write { raddr: RADDR, rkey: RKEY, laddr: LADDR, lkey: LKEY, len: 64 };
    let mut emitted = put.emit(0, QPN, Flags::SIGNALED);
    emitted.blocks[0].0[0].0[3] = 0xa5a5_a5a5;
    emitted.blocks[0].0[1].0[3] = 0xa5a5_a5a5;
    let view = View::parse(emitted.segments()).unwrap();
    assert_eq!(view.imm(), None);
    assert_eq!(view.remote().unwrap().addr.get(), RADDR);
    assert_eq!(view.to_wqe(), None, "emitting would not give these bytes");
}

#[test]
fn a_change_of_a_key_has_its_translations_inside_or_in_memory() {
    let context = MkeyContext { free: true, mkey_7_0: 9, pd: 3, ..MkeyContext::default() };
    let mut bytes = [0; MkeyContext::LEN];
    context.write(&mut bytes);
    let entry = |flags, tail: &[Segment]| {
        let umr = UmrSeg { flags, offset_low: Be16::new(5), offset_high: Be32::new(1), ..UmrSeg::default() };
        let ds = 8 + tail.len() as u8;
        let ctrl = CtrlSeg::new(0, Opcode::UMR, 7, QPN, ds, Flags::SIGNALED, 0x1234);
        let mut segments = vec![ctrl.to_segment()];
        segments.extend(umr.to_segments());
        segments.extend(bytes.as_chunks().0.iter().map(|segment| Segment::from_bytes(*segment)));
        segments.extend(tail);
        segments
    };
    let pointer = DataSeg::new(LADDR, LKEY, 64);
    let list = Segment::from_bytes([0xa5; 16]);
    for (flags, tail) in [(0, pointer.to_segment()), (UmrSeg::INLINE, list)] {
        let segments = entry(flags, &[tail]);
        let view = View::parse(&segments).unwrap();
        let umr = view.umr().unwrap();
        assert_eq!((umr.key, umr.context, umr.control.offset()), (0x1234, context, 0x1_0005));
        let is_inline = flags != 0;
        assert_eq!(umr.inline.map(<[u8]>::to_vec), is_inline.then(|| vec![0xa5; 16]));
        assert_eq!(view.data().next(), (!is_inline).then_some(Data::Pointer(pointer)));
        let mut again = [Segment::ZERO; 9];
        assert_eq!((view.emit(&mut again), &again[..]), (Some(9), &segments[..]));
        assert!(View::parse_xrc(&segments).is_err() && view.to_wqe().is_none());
    }
    assert_eq!(View::parse(&entry(0, &[])[..7]).unwrap_err(), Malformed::Short { need: 8, have: 7 });
}

#[test]
fn errors_name_the_defect() {
    let with = |opmod, opcode, ds, flags| {
        let ctrl = CtrlSeg::new(opmod, opcode, 0, QPN, ds, flags, 0).to_segment();
        View::parse(&[ctrl, Segment::ZERO, Segment::ZERO, Segment::ZERO, Segment::ZERO]).map(|_| ())
    };
    let write = Opcode::RDMA_WRITE;
    assert_eq!(with(0, write, 3, Flags::NONE), Ok(()));
    assert_eq!(with(0, Opcode(0x7f), 1, Flags::NONE), Err(Malformed::UnknownOpcode(Opcode(0x7f))));
    assert_eq!(with(0, Opcode::SET_PSV, 1, Flags::NONE), Err(Malformed::Unsupported(Opcode::SET_PSV)));
    assert_eq!(with(1, write, 3, Flags::NONE), Err(Malformed::Opmod { opcode: write, opmod: 1 }));
    assert_eq!(
        with(0, write, 1, Flags::NONE),
        Err(Malformed::Ds { opcode: write, ds: 1, least: 2, most: 63 })
    );
    assert_eq!(
        with(0, Opcode::NOP, 0, Flags::NONE),
        Err(Malformed::Ds { opcode: Opcode::NOP, ds: 0, least: 1, most: 63 })
    );
    assert_eq!(with(0, write, 3, Flags(0x10)), Err(Malformed::Reserved { field: "fm_ce_se", bits: 0x10 }));
    assert_eq!(with(0, write, 3, Flags(0xa0)), Err(Malformed::FenceMode(5)));
    let mut spoilt = [CtrlSeg::new(0, write, 0, QPN, 2, Flags::NONE, 0).to_segment(), Segment::ZERO];
    spoilt[0].0[1] |= Be32::new(0x40).raw();
    assert_eq!(View::parse(&spoilt).unwrap_err(), Malformed::Reserved { field: "ds", bits: 0x40 });
    let masked = Opcode::ATOMIC_MASKED_CS;
    assert_eq!(with(0, masked, 4, Flags::NONE), Err(Malformed::Opmod { opcode: masked, opmod: 0 }));
    assert_eq!(with(0x0a, masked, 4, Flags::NONE), Err(Malformed::Opmod { opcode: masked, opmod: 0x0a }));
    assert_eq!(
        with(9, masked, 4, Flags::NONE),
        Err(Malformed::Ds { opcode: masked, ds: 4, least: 5, most: 5 })
    );
    assert_eq!(with(9, Opcode::ATOMIC_MASKED_FA, 4, Flags::NONE), Ok(()));
}

#[test]
fn inline_data_is_checked() {
    let with = |opcode, header: u32| {
        let ctrl = CtrlSeg::new(0, opcode, 0, QPN, 4, Flags::NONE, 0).to_segment();
        let head = Segment([Be32::new(header).raw(), 0, 0, 0]);
        View::parse(&[ctrl, Segment::ZERO, head, Segment::ZERO]).map(|view| view.data_len())
    };
    let write = Opcode::RDMA_WRITE;
    assert_eq!(with(write, 0x8000_001c), Ok(28));
    assert_eq!(with(write, 0x8000_001d), Err(Malformed::InlineLength { len: 29, room: 28 }));
    assert_eq!(with(write, 0x8000_0404), Err(Malformed::Reserved { field: "inline length", bits: 0x400 }));
    let read = Opcode::RDMA_READ;
    assert_eq!(with(read, 0x8000_0004), Err(Malformed::InlineNotAllowed(read)));
}

#[test]
fn entries_print_on_one_line() {
    let lines: Vec<_> = goldens().iter().map(|g| g.wqe.to_string()).collect();
    assert_eq!(
        lines[0],
        "RDMA_WRITE remote 0x7f4a20001000 rkey 0x181ef0 data 16384 B at 0x7f3b40002000 lkey 0x200f42"
    );
    assert_eq!(lines[2], "RDMA_WRITE remote 0x7f4a20001000 rkey 0x181ef0 inline 4 B 44332211");
    assert_eq!(lines[8], "NOP");
    assert_eq!(lines[12], "WAIT for index 0x12 of cq 0x403");
    assert!(lines.iter().all(|line| !line.contains('\n')));
}
