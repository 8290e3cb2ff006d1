//! Fuzz targets for the parsers of `rushmem-mlx5`. The crate's tests run the same functions on stable Rust.
//!
//! Run one with `cargo +nightly fuzz run wqe` (or `cqe`, `doorbell`, `prm`) in `mlx5/`.

use rushmem_mlx5::{
    Cqe, CqeWord, CtrlSeg, Doorbell, Emitted, Flags, Inline, Opcode, Segment, View, Wqe,
    av::AvSeg,
    doorbell::{record_counter, record_word},
    prm::{self, CmdOpcode, Command, Response, caps, counter, cq, dct, mkey, pd, qp, rmp, uar, umem},
    seg::{DataSeg, InlineHdr},
    wqe::{Atomic, Data, FrameView, Malformed, scatter},
};
use std::fmt::{self, Display, Write};

/// A `fmt::Write` sink that discards its input. It only serves to check that formatting terminates without a panic.
struct Nowhere;

impl Write for Nowhere {
    fn write_str(&mut self, _: &str) -> fmt::Result {
        Ok(())
    }
}

fn print(value: impl Display) {
    write!(Nowhere, "{value}").expect("`Nowhere` takes everything");
}

/// Signature of the `View::parse*` functions, which parse a send work-queue entry for one transport.
type Parse = for<'a> fn(&'a [Segment]) -> Result<View<'a>, Malformed>;

/// Parses arbitrary bytes as a send work-queue entry of each transport, as one of an Ethernet queue, and as a receive entry.
pub fn wqe(bytes: &[u8]) {
    let segments: Vec<_> = bytes.as_chunks().0.iter().map(|chunk| Segment::from_bytes(*chunk)).collect();
    assert!(scatter(&segments).count() <= segments.len());
    let formats: [Parse; 4] = [
        |entry| View::parse(entry),
        |entry| View::parse_datagram(entry),
        |entry| View::parse_dc(entry),
        |entry| View::parse_xrc(entry),
    ];
    if let Ok(view) = FrameView::parse(&segments) {
        print(format_args!("{view:?}"));
        if let Some(frame) = view.frame() {
            assert!(frame.data().count() <= segments.len() && frame.len() >= frame.headers.len() as u64);
        }
    }
    for parse in formats {
        match parse(&segments) {
            Ok(view) => entry(view, &segments, parse),
            Err(malformed) => print(malformed),
        }
    }
}

/// Checks that a valid work-queue entry survives a round trip through `emit` and that its segments add up to its size.
fn entry(view: View<'_>, segments: &[Segment], parse: Parse) {
    print(view);
    let mut again = [Segment::ZERO; 63];
    assert_eq!(view.emit(&mut again), Some(view.ctrl().ds()), "its size stays");
    let again = &again[..view.segments().len()];
    let mut third = [Segment::ZERO; 63];
    parse(again).expect("it was one before").emit(&mut third).expect("63 segments are enough");
    assert_eq!(&third[..again.len()], again, "what is written once is written the same way twice");
    let ds = view.ctrl().ds();
    assert_eq!(view.segments(), &segments[..ds as usize]);
    assert_eq!(view.n_blocks(), ds.div_ceil(4));
    let operands = match view.atomic() {
        None => 0,
        Some(Atomic::MaskedCompareSwap64 { .. }) => 2,
        Some(_) => 1,
    };
    let vector = view.av().map_or(0, |av| if av.is_extended() { 3 } else { 1 });
    let vector = vector + view.xrc_srqn().is_some() as u32;
    let head = 1 + vector + view.remote().is_some() as u32 + view.wait().is_some() as u32 + operands;
    let data: u32 = view
        .data()
        .map(|data| match data {
            Data::Pointer(_) => 1,
            Data::Inline(bytes) => InlineHdr::segments_for(bytes.len() as u32),
        })
        .sum();
    if view.opcode() != Opcode::NOP {
        assert_eq!(head + data, ds as u32, "every segment is accounted for");
    }
    if let Some(wqe) = view.to_wqe() {
        print(wqe);
        let (index, qpn, flags) = (view.ctrl().index(), view.ctrl().qpn(), view.flags());
        let again = match view.av() {
            Some(av) => wqe.emit_to(&av, index, qpn, flags),
            None => wqe.emit(index, qpn, flags),
        };
        assert_eq!(again.segments(), view.segments());
    }
}

/// Parses arbitrary bytes as a completion-queue entry.
pub fn cqe(bytes: &[u8]) {
    let Some(bytes) = bytes.first_chunk() else { return };
    let cqe = Cqe::from_bytes(*bytes);
    print(cqe);
    assert_eq!(cqe.to_bytes(), *bytes);
    assert_eq!(CqeWord::from(cqe.word().tail()), cqe.word());
    assert_eq!((cqe.word().opcode(), cqe.word().qpn()), (cqe.opcode(), cqe.qpn()));
    assert_eq!((cqe.word().wqe_counter(), cqe.word().op_own()), (cqe.wqe_counter(), cqe.op_own()));
    let ready = [0, 64].map(|consumer| cqe.op_own().is_ready(consumer, 64));
    assert_ne!(ready, [true; 2], "an entry belongs to one lap");
    if let Some(error) = cqe.as_error() {
        let again = Cqe::error(&error.failure(), cqe.op_own().owner());
        assert_eq!(again.as_error().map(|again| again.failure()), Some(error.failure()));
    }
}

/// Parses arbitrary bytes as the value of a doorbell register and as a word of a doorbell record.
pub fn doorbell(bytes: &[u8]) {
    let Some(bytes) = bytes.first_chunk() else { return };
    let rung = Doorbell::from_raw(u64::from_le_bytes(*bytes));
    print(rung);
    let normal = Doorbell::producer(rung.qpn(), rung.producer_index());
    assert_eq!((normal.qpn(), normal.producer_index()), (rung.qpn(), rung.producer_index()));
    assert_eq!((normal.ds(), normal.index()), (0, rung.producer_index()));
    let counter = record_counter(rung.raw() as u32);
    assert_eq!(record_counter(record_word(counter)), counter);
}

/// Every command that the crate can parse, with the function that checks a mailbox with this opcode.
const COMMANDS: [(CmdOpcode, Target); 37] = [
    command::<caps::QueryHcaCap>(),
    command::<caps::QueryRoceAddress>(),
    command::<pd::AllocPd>(),
    command::<pd::DeallocPd>(),
    command::<counter::AllocQCounter>(),
    command::<counter::DeallocQCounter>(),
    command::<counter::QueryQCounter>(),
    command::<uar::AllocUar>(),
    command::<uar::DeallocUar>(),
    command::<umem::CreateUmem>(),
    command::<umem::DestroyUmem>(),
    command::<mkey::CreateMkey>(),
    command::<mkey::DestroyMkey>(),
    command::<cq::CreateCq>(),
    command::<cq::ModifyCq>(),
    command::<cq::QueryCq>(),
    command::<cq::DestroyCq>(),
    command::<rmp::CreateRmp>(),
    command::<rmp::ModifyRmp>(),
    command::<rmp::QueryRmp>(),
    command::<rmp::DestroyRmp>(),
    command::<dct::CreateDct>(),
    command::<dct::DrainDct>(),
    command::<dct::QueryDct>(),
    command::<dct::DestroyDct>(),
    command::<qp::CreateQp>(),
    command::<qp::Rst2Init>(),
    command::<qp::Init2Rtr>(),
    command::<qp::Rtr2Rts>(),
    command::<qp::Sqerr2Rts>(),
    command::<qp::Sqd2Rts>(),
    command::<qp::Init2Init>(),
    command::<qp::Rts2Rts>(),
    command::<qp::ToErr>(),
    command::<qp::ToRst>(),
    command::<qp::QueryQp>(),
    command::<qp::DestroyQp>(),
];

const fn command<C: Command + PartialEq + fmt::Debug>() -> (CmdOpcode, Target) {
    (C::OPCODE, mailboxes::<C>)
}

/// Parses the bytes as a command's input mailbox and, with status OK, as its output mailbox.
fn mailboxes<C: Command + PartialEq + fmt::Debug>(bytes: &[u8]) {
    print(format_args!("{:?}", C::decode_exact(bytes)));
    if let Ok(command) = C::decode(bytes) {
        let again = command.encode();
        assert_eq!(C::decode_exact(again.as_ref()), Ok(command));
        assert!(again.as_ref().len() <= bytes.len());
    }
    let mut answer = bytes.to_vec();
    for status in [answer.first().copied().unwrap_or(0), 0] {
        answer.iter_mut().take(1).for_each(|byte| *byte = status);
        match C::Output::decode(&answer) {
            Ok(response) => assert!(C::Output::decode(response.encode().as_ref()).is_ok()),
            Err(error) => print(error),
        }
    }
}

/// Parses arbitrary bytes as the mailbox of the PRM command that their first two bytes name.
pub fn prm(bytes: &[u8]) {
    let Ok(header) = prm::Header::decode(bytes) else { return };
    print(header.opcode);
    for (opcode, mailboxes) in COMMANDS {
        if opcode == header.opcode {
            mailboxes(bytes);
        }
    }
    prm::list_entries(bytes, qp::CreateQp::LEN).map(umem::Mtt::decode).for_each(|entry| {
        assert_eq!(umem::Mtt::decode(u64::from_be_bytes(entry.encode())), entry);
    });
}

/// Entry point of a fuzz target: libFuzzer calls it with the input bytes.
pub type Target = fn(&[u8]);

/// Returns every fuzz target with its name and a seed corpus of valid inputs.
pub fn targets() -> [(&'static str, Target, Vec<Vec<u8>>); 4] {
    [
        ("wqe", wqe, wqe_seeds()),
        ("cqe", cqe, vec![Cqe::requester(&Default::default(), false).to_bytes().to_vec()]),
        ("doorbell", doorbell, vec![vec![0; 8]]),
        ("prm", prm, COMMANDS.map(|(opcode, _)| mailbox(opcode)).to_vec()),
    ]
}

/// Returns a zeroed input mailbox of the length that the command `opcode` requires.
fn mailbox(opcode: CmdOpcode) -> Vec<u8> {
    let len = if opcode == CmdOpcode::QUERY_HCA_CAP { caps::QueryHcaCapOut::LEN } else { 512 };
    let mut bytes = vec![0; len];
    bytes[..2].copy_from_slice(&opcode.0.to_be_bytes());
    bytes
}

/// Returns a valid send entry of a datagram QP with a full 48-byte address vector.
fn datagram() -> Vec<u8> {
    let av = AvSeg { dqpn: (AvSeg::EXTENDED | 5).into(), ..AvSeg::default() };
    let mut entry = vec![CtrlSeg::new(0, Opcode::SEND, 1, 2, 5, Flags::SIGNALED, 0).to_segment()];
    entry.extend(av.to_segments());
    entry.push(DataSeg::new(0x2000, 0x43, 64).to_segment());
    Segment::bytes_of(&entry).to_vec()
}

fn wqe_seeds() -> Vec<Vec<u8>> {
    let (raddr, rkey, laddr, lkey, len) = (0x1000, 0x42, 0x2000, 0x43, 64);
    let entries = [
        Wqe::Nop,
        Wqe::Write { raddr, rkey, laddr, lkey, len },
        Wqe::WriteInline { raddr, rkey, data: Inline::from_u64(7) },
        Wqe::WriteImm { raddr, rkey, laddr, lkey, len, imm: 9 },
        Wqe::Read { raddr, rkey, laddr, lkey, len },
        Wqe::Send { laddr, lkey, len },
        Wqe::SendInline { data: Inline::from_u64(7) },
        Wqe::SendImm { laddr, lkey, len, imm: 9 },
        Wqe::SendInval { laddr, lkey, len, inv_rkey: 9 },
        Wqe::FetchAdd { raddr, rkey, laddr, lkey, add: 1 },
        Wqe::CompareSwap { raddr, rkey, laddr, lkey, compare: 1, swap: 2 },
        Wqe::MaskedFetchAdd32 { raddr, rkey, laddr, lkey, add: 1, boundary: 2 },
        Wqe::MaskedFetchAdd64 { raddr, rkey, laddr, lkey, add: 1, boundary: 2 },
        Wqe::MaskedCompareSwap32 {
            raddr,
            rkey,
            laddr,
            lkey,
            compare: 1,
            swap: 2,
            compare_mask: 3,
            swap_mask: 4,
        },
        Wqe::MaskedCompareSwap64 {
            raddr,
            rkey,
            laddr,
            lkey,
            compare: 1,
            swap: 2,
            compare_mask: 3,
            swap_mask: 4,
        },
        Wqe::Dump { laddr, lkey, len },
        Wqe::Wait { index: 3, cqn: 4 },
    ];
    let av = AvSeg::default().to_dct(5, 0x5623_ceaf);
    let bytes = |emitted: Emitted| emitted.blocks.iter().flat_map(|block| block.to_bytes()).collect();
    let plain = entries.iter().map(|entry| bytes(entry.emit(1, 2, Flags::SIGNALED)));
    plain
        .chain(entries.iter().map(|entry| bytes(entry.emit_to(&av, 1, 2, Flags::SIGNALED))))
        .chain([datagram()])
        .collect()
}
