//! Property tests: every value survives encoding and decoding.

use proptest::{collection::vec, prelude::*};
use rushmem_mlx5::{
    Cqe, CqeOpcode, CtrlSeg, Doorbell, Flags, Inline, Opcode, Segment, Syndrome, View, Wqe,
    av::AvSeg,
    be::{Be16, Be32},
    cqe::{Completion, Failure, Reception},
    prm::{
        CmdError, CmdStatus, Command, DecodeError, Layout, Response, caps, counter, cq, dct, eq, flow, hca,
        lag, mkey, pd, port, qp, queue, registers, rmp, sq, tir, uar, uctx, umem, vport, xrc,
    },
    seg::{DataSeg, InlineHdr, RaddrSeg, XrcSeg},
    wqe::{Data, emit_write_inline},
};

/// Random values from which the fields of a send entry are made.
#[derive(Clone, Debug)]
struct Fields {
    raddr: u64,
    rkey: u32,
    laddr: u64,
    lkey: u32,
    len: u32,
    imm: u32,
    operands: [u64; 4],
    data: Inline,
}

fn fields() -> impl Strategy<Value = Fields> {
    let keys = (any::<u64>(), any::<u32>(), any::<u64>(), any::<u32>());
    let rest = (1..1_u32 << 31, any::<u32>(), any::<[u64; 4]>(), vec(any::<u8>(), 0..=Inline::MAX));
    (keys, rest).prop_map(|((raddr, rkey, laddr, lkey), (len, imm, operands, data))| {
        let data = Inline::new(&data).expect("at most Inline::MAX bytes");
        Fields { raddr, rkey, laddr, lkey, len, imm, operands, data }
    })
}

fn wqe() -> impl Strategy<Value = Wqe> {
    (0..17, fields()).prop_map(|(variant, fields)| {
        let Fields { raddr, rkey, laddr, lkey, len, imm, operands: [a, b, c, d], data } = fields;
        match variant {
            0 => Wqe::Nop,
            1 => Wqe::Write { raddr, rkey, laddr, lkey, len },
            2 => Wqe::WriteInline { raddr, rkey, data },
            3 => Wqe::WriteImm { raddr, rkey, laddr, lkey, len, imm },
            4 => Wqe::Read { raddr, rkey, laddr, lkey, len },
            5 => Wqe::Send { laddr, lkey, len },
            6 => Wqe::SendInline { data },
            7 => Wqe::SendImm { laddr, lkey, len, imm },
            8 => Wqe::SendInval { laddr, lkey, len, inv_rkey: imm },
            9 => Wqe::FetchAdd { raddr, rkey, laddr, lkey, add: a },
            10 => Wqe::CompareSwap { raddr, rkey, laddr, lkey, compare: a, swap: b },
            11 => Wqe::MaskedFetchAdd32 { raddr, rkey, laddr, lkey, add: a as u32, boundary: b as u32 },
            12 => Wqe::MaskedFetchAdd64 { raddr, rkey, laddr, lkey, add: a, boundary: b },
            13 => Wqe::MaskedCompareSwap32 {
                raddr,
                rkey,
                laddr,
                lkey,
                compare: a as u32,
                swap: b as u32,
                compare_mask: c as u32,
                swap_mask: d as u32,
            },
            14 => Wqe::MaskedCompareSwap64 {
                raddr,
                rkey,
                laddr,
                lkey,
                compare: a,
                swap: b,
                compare_mask: c,
                swap_mask: d,
            },
            15 => Wqe::Dump { laddr, lkey, len },
            _ => Wqe::Wait { index: a as u32, cqn: b as u32 },
        }
    })
}

fn flags() -> impl Strategy<Value = Flags> {
    (0..5_u8, 0..4_u8, any::<bool>()).prop_map(|(fm, ce, se)| Flags(fm << 5 | ce << 2 | (se as u8) << 1))
}

/// A data segment of a generated entry: a pointer (address, lkey, length), or inline bytes.
type Piece = Result<(u64, u32, u32), Vec<u8>>;

fn data() -> impl Strategy<Value = Piece> {
    prop_oneof![
        (any::<u64>(), any::<u32>(), 0..1_u32 << 31).prop_map(Ok),
        vec(any::<u8>(), 0..60).prop_map(Err),
    ]
}

fn data_segments(list: &[Piece]) -> Vec<Segment> {
    let mut segments = Vec::new();
    for entry in list {
        match entry {
            Ok((addr, lkey, len)) => segments.push(DataSeg::new(*addr, *lkey, *len).to_segment()),
            Err(payload) => {
                let mut bytes = bytemuck::bytes_of(&InlineHdr::new(payload.len() as u32)).to_vec();
                bytes.extend(payload);
                bytes.resize(bytes.len().next_multiple_of(16), 0);
                segments.extend(bytes.as_chunks().0.iter().map(|chunk| Segment::from_bytes(*chunk)));
            }
        }
    }
    segments
}

fn address() -> impl Strategy<Value = Vec<Segment>> {
    let route = (any::<u8>(), any::<u8>(), any::<u16>(), any::<[u8; 6]>(), any::<[u8; 16]>());
    (any::<u32>(), 0..1_u32 << 24, any::<bool>(), any::<u32>(), any::<[u8; 2]>(), route).prop_map(
        |(qkey, qpn, whole, grh, [tclass, hop_limit], (rate, path, rlid, rmac, rgid))| {
            let av = AvSeg {
                qkey: Be32::new(qkey),
                dqpn: Be32::new(qpn | if whole { AvSeg::EXTENDED } else { 0 }),
                stat_rate_sl: rate,
                fl_mlid: path,
                rlid: Be16::new(rlid),
                rmac,
                tclass,
                hop_limit,
                grh_gid_fl: Be32::new(grh),
                rgid,
                ..AvSeg::default()
            };
            av.to_segments()[..if whole { 3 } else { 1 }].to_vec()
        },
    )
}

/// Generates any send entry that a driver may write, with zeros where NICs ignore bytes, and whether its QP is a
/// datagram QP.
fn entry() -> impl Strategy<Value = (Vec<Segment>, bool)> {
    let place = (any::<u16>(), 0..1_u32 << 24, flags(), any::<u32>());
    let lists = vec(data(), 0..8).prop_map(|list| data_segments(&list));
    (wqe(), any::<bool>(), address(), lists, place).prop_map(|(wqe, plain, address, list, place)| {
        let (index, qpn, flags, imm) = place;
        let opcode = wqe.opcode();
        let imm =
            if View::parse(wqe.emit(0, 0, flags).segments()).unwrap().imm().is_some() { imm } else { 0 };
        let head = |parts: &[&[Segment]]| {
            let mut entry = vec![Segment::ZERO];
            parts.iter().for_each(|part| entry.extend_from_slice(part));
            entry[0] = CtrlSeg::new(0, opcode, index, qpn, entry.len() as u8, flags, imm).to_segment();
            entry
        };
        match opcode {
            Opcode::SEND | Opcode::SEND_IMM if !plain => (head(&[&address, &list]), true),
            Opcode::SEND | Opcode::SEND_IMM | Opcode::SEND_INVAL => (head(&[&list]), false),
            Opcode::RDMA_WRITE | Opcode::RDMA_WRITE_IMM => {
                (head(&[&[RaddrSeg::new(5, 6).to_segment()], &list]), false)
            }
            // The others cannot have lists.
            _ => (wqe.emit(index, qpn, flags).segments().to_vec(), false),
        }
    })
}

proptest! {
    #[test]
    fn entries_round_trip(
        wqe in wqe(), flags in flags(), index: u16, qpn in 0..1_u32 << 24,
    ) {
        let emitted = wqe.emit(index, qpn, flags);
        let view = View::parse(emitted.segments()).unwrap();
        prop_assert_eq!(view.to_wqe(), Some(wqe));
        let ctrl = view.ctrl();
        prop_assert_eq!((ctrl.index(), ctrl.qpn(), ctrl.flags()), (index, qpn, flags));
        prop_assert_eq!((ctrl.ds(), view.n_blocks()), (emitted.ds, emitted.n_blocks()));
        let unused = rushmem_mlx5::Wqebb::segments_of(&emitted.blocks);
        prop_assert!(unused[emitted.ds as usize..].iter().all(|segment| *segment == Segment::ZERO));

        let next = index.wrapping_add(emitted.n_blocks() as u16);
        for rung in [Doorbell::last_wqe(ctrl), Doorbell::producer(qpn, next)] {
            prop_assert_eq!((rung.qpn(), rung.producer_index()), (qpn, next));
        }
    }

    #[test]
    fn entries_of_dc_round_trip(
        wqe in wqe(), flags in flags(), index: u16, qpn in 0..1_u32 << 24, dctn in 0..1_u32 << 24, key: u64,
        stream: u16, address in address(),
    ) {
        let mut vector = [Segment::ZERO; 3];
        vector[..address.len()].copy_from_slice(&address);
        let av = AvSeg::from_segments(vector).to_dct(dctn, key);
        let entry = wqe.emit_to(&av, index, qpn, flags);
        let view = View::parse_dc(entry.segments()).unwrap();
        let ctrl = view.ctrl();
        prop_assert_eq!((ctrl.index(), ctrl.qpn(), ctrl.flags()), (index, qpn, flags));
        prop_assert_eq!((ctrl.ds(), view.opcode()), (entry.ds, wqe.opcode()));
        let is_wait = matches!(wqe, Wqe::Wait { .. });
        prop_assert_eq!(entry.n_blocks(), if is_wait { 1 } else { 2 });
        let unused = &rushmem_mlx5::Wqebb::segments_of(&entry.blocks)[entry.ds as usize..];
        prop_assert!(unused.iter().all(|segment| *segment == Segment::ZERO));
        if matches!(wqe, Wqe::Nop | Wqe::Dump { .. } | Wqe::Wait { .. }) {
            prop_assert_eq!(view.av(), None);
        } else {
            let of_view = view.av().unwrap();
            prop_assert_eq!((of_view, of_view.qpn(), of_view.dc_key()), (av, dctn, key));
            prop_assert_eq!(view.to_wqe(), Some(wqe));
        }
        let mut again = [Segment([0xa5a5_a5a5; 4]); 8];
        prop_assert_eq!(view.emit(&mut again), Some(entry.ds));
        prop_assert_eq!(&again[..entry.ds as usize], entry.segments());
        let mut in_stream = entry.segments().to_vec();
        in_stream[0] = ctrl.with_dci_stream(stream).to_segment();
        let view = View::parse_dc(&in_stream).unwrap();
        prop_assert_eq!((view.ctrl().dci_stream(), view.emit(&mut again)), (stream, Some(entry.ds)));
        prop_assert_eq!(&again[..entry.ds as usize], &in_stream);
    }

    #[test]
    fn entries_of_xrc_round_trip(
        wqe in wqe(), flags in flags(), index: u16, qpn in 0..1_u32 << 24, srqn in 0..1_u32 << 24,
    ) {
        let entry = wqe.emit(index, qpn, flags);
        let is_local = matches!(wqe, Wqe::Nop | Wqe::Dump { .. } | Wqe::Wait { .. });
        let mut segments = entry.segments().to_vec();
        if !is_local {
            segments.insert(1, XrcSeg::new(srqn).to_segment());
            let mut ctrl = segments[0].to_bytes();
            ctrl[7] += 1;
            segments[0] = Segment::from_bytes(ctrl);
        }
        let view = View::parse_xrc(&segments).unwrap();
        prop_assert_eq!((view.xrc_srqn(), view.av()), ((!is_local).then_some(srqn), None));
        prop_assert_eq!((view.opcode(), view.ctrl().index(), view.ctrl().qpn()), (wqe.opcode(), index, qpn));
        prop_assert_eq!(view.to_wqe(), is_local.then_some(wqe));
        let mut again = [Segment([0xa5a5_a5a5; 4]); 8];
        prop_assert_eq!(view.emit(&mut again).map(usize::from), Some(segments.len()));
        prop_assert_eq!(&again[..segments.len()], &segments[..]);
    }

    #[test]
    fn gather_lists_keep_order_and_bytes(list in vec(data(), 0..12), qpn in 0..1_u32 << 24) {
        let mut segments = vec![Segment::ZERO, RaddrSeg::new(1, 2).to_segment()];
        segments.extend(data_segments(&list));
        prop_assume!(segments.len() <= 63);
        let ds = segments.len() as u8;
        segments[0] = CtrlSeg::new(0, Opcode::RDMA_WRITE, 7, qpn, ds, Flags::NONE, 0).to_segment();
        let view = View::parse(&segments).unwrap();
        let read: Vec<_> = view
            .data()
            .map(|data| match data {
                Data::Pointer(at) => Ok((at.addr.get(), at.lkey.get(), at.len.get())),
                Data::Inline(bytes) => Err(bytes.to_vec()),
            })
            .collect();
        prop_assert_eq!(read, list);
    }

    #[test]
    fn parsed_entries_are_written_back_unchanged((entry, datagram) in entry()) {
        let view = if datagram { View::parse_datagram(&entry) } else { View::parse(&entry) }.unwrap();
        let mut again = vec![Segment([0xa5a5_a5a5; 4]); entry.len()];
        prop_assert_eq!(view.emit(&mut again), Some(entry.len() as u8));
        prop_assert_eq!(&again, &entry);
        prop_assert_eq!(view.emit(&mut again[1..]), None, "no room");
    }

    #[test]
    fn ignored_bytes_become_zero(wqe in wqe(), stale: u32, qpn in 0..1_u32 << 24) {
        let clean = wqe.emit(1, qpn, Flags::SIGNALED);
        let mut entry = clean.segments().to_vec();
        if View::parse(&entry).unwrap().imm().is_none() {
            entry[0].0[3] = stale;
        }
        if let Wqe::FetchAdd { .. } = wqe {
            entry[2].0[2..].fill(stale);
        }
        let mut again = vec![Segment::ZERO; entry.len()];
        prop_assert!(View::parse(&entry).unwrap().emit(&mut again).is_some());
        prop_assert_eq!(&again, clean.segments());
    }

    #[test]
    fn long_inline_payloads_arrive(payload in vec(any::<u8>(), 0..=972), index: u16) {
        let mut out = [Segment([0xa5a5_a5a5; 4]); 63];
        let ds = emit_write_inline(&mut out, index, 1, Flags::NONE, 2, 3, &payload).unwrap();
        let view = View::parse(&out).unwrap();
        prop_assert_eq!(view.ctrl().ds(), ds);
        prop_assert_eq!(view.data().collect::<Vec<_>>(), [Data::Inline(&payload)]);
    }

    #[test]
    fn completions_round_trip(
        opcode: u8, qpn in 0..1_u32 << 24, wqe_counter: u16, user_index in 0..1_u32 << 24, byte_cnt: u32,
        timestamp: u64, owner: bool, solicited: bool, imm: u32, code: u8, kind in 1..5_u8,
    ) {
        let done = Completion { opcode: Opcode(opcode), qpn, wqe_counter, user_index, byte_cnt, timestamp };
        let cqe = Cqe::requester(&done, owner);
        prop_assert_eq!((cqe.opcode(), cqe.qpn(), cqe.wqe_counter()), (done.opcode, qpn, wqe_counter));
        prop_assert_eq!((cqe.user_index(), cqe.byte_cnt(), cqe.timestamp()), (user_index, byte_cnt, timestamp));
        prop_assert_eq!((cqe.op_own().opcode(), cqe.op_own().owner()), (CqeOpcode::REQ, owner));

        let kind = CqeOpcode(kind);
        let srqn_uidx = user_index;
        let got = Reception {
            kind,
            qpn,
            wqe_counter,
            srqn_uidx,
            remote_qpn: user_index ^ 5,
            slid: wqe_counter ^ 7,
            grh: owner,
            sl: code & 0xf,
            imm,
            byte_cnt,
            timestamp,
            solicited,
        };
        let cqe = Cqe::responder(&got, owner);
        prop_assert_eq!((cqe.imm(), cqe.qpn(), cqe.wqe_counter()), (imm, qpn, wqe_counter));
        prop_assert_eq!((cqe.op_own().opcode(), cqe.op_own().is_solicited()), (kind, solicited));
        let flags = (owner as u32) << 28 | u32::from(got.sl) << 24 | got.remote_qpn;
        prop_assert_eq!((cqe.flags_rqpn.get(), cqe.slid.get()), (flags, got.slid));

        for kind in [CqeOpcode::REQ_ERR, CqeOpcode::RESP_ERR] {
            let opcode = Opcode(opcode);
            let (syndrome, vendor_syndrome) = (Syndrome(code), !code);
            let failure = Failure { kind, opcode, qpn, wqe_counter, srqn_uidx, syndrome, vendor_syndrome };
            let cqe = Cqe::error(&failure, owner);
            prop_assert_eq!(cqe.as_error().unwrap().failure(), failure);
            prop_assert_eq!(cqe.op_own().owner(), owner);
        }
    }

    #[test]
    fn rejections_round_trip(status in 1..=0xff_u8, syndrome: u32, len in 8..300_usize) {
        let refusal = CmdError { status: CmdStatus(status), syndrome };
        let mut out = vec![0xa5; len];
        refusal.write(&mut out);
        prop_assert_eq!(CmdError::check(&out), Err(DecodeError::Refused(refusal)));
        prop_assert!(out[8..].iter().all(|byte| *byte == 0));
    }
}

/// Checks each field of a structure alone, with all of its bits set. Encoding must return the same bit pattern: no
/// field is lost, moved or duplicated.
fn each_field_alone<T, M>(
    encode: impl Fn(&T) -> M,
    decode: impl Fn(&[u8]) -> Result<T, DecodeError>,
    head: &[u8],
) where
    T: Layout + PartialEq + std::fmt::Debug,
    M: AsRef<[u8]>,
{
    let mut empty = vec![0; T::LEN];
    empty[..head.len()].copy_from_slice(head);
    let zero = decode(&empty).unwrap();
    assert_eq!(encode(&zero).as_ref(), empty);
    for field in T::FIELDS {
        let mut bytes = empty.clone();
        for bit in field.offset..field.offset + field.width {
            bytes[bit / 8] |= 0x80 >> (bit % 8);
        }
        let value = decode(&bytes).unwrap();
        assert_ne!(value, zero, "{field:?} is not read");
        let again = encode(&value);
        // A nested structure has gaps too; every bit that it has must come back.
        let lost = again.as_ref().iter().zip(&bytes).any(|(ours, theirs)| ours & !theirs != 0);
        assert!(!lost, "{field:?} spills");
        if field.width <= 64 {
            assert_eq!(again.as_ref(), bytes, "{field:?}");
        }
        assert_eq!(decode(again.as_ref()), Ok(value), "{field:?}");
    }
}

fn command<C>()
where
    C: Command + Layout + PartialEq + std::fmt::Debug,
    C::Output: Layout + PartialEq + std::fmt::Debug,
{
    each_field_alone::<C, _>(C::encode, C::decode, &C::OPCODE.0.to_be_bytes());
    each_field_alone::<C::Output, _>(C::Output::encode, C::Output::decode, &[]);
}

#[test]
fn every_field_of_every_command_has_its_own_bits() {
    command::<caps::QueryHcaCap>();
    command::<caps::QueryRoceAddress>();
    command::<hca::EnableHca>();
    command::<hca::DisableHca>();
    command::<hca::InitHca>();
    command::<hca::TeardownHca>();
    command::<hca::QueryPages>();
    command::<hca::ManagePages>();
    command::<hca::QueryIssi>();
    command::<hca::SetIssi>();
    command::<hca::SetDriverVersion>();
    command::<hca::SetHcaCap>();
    command::<hca::QueryAdapter>();
    command::<eq::CreateEq>();
    command::<eq::DestroyEq>();
    command::<port::QueryHcaVportContext>();
    command::<port::QueryHcaVportGid>();
    command::<port::QueryHcaVportPkey>();
    command::<port::AccessReg>();
    command::<port::MadIfc>();
    command::<pd::AllocPd>();
    command::<pd::DeallocPd>();
    command::<lag::QueryLag>();
    command::<counter::AllocQCounter>();
    command::<counter::DeallocQCounter>();
    command::<counter::QueryQCounter>();
    command::<uar::AllocUar>();
    command::<uar::DeallocUar>();
    command::<uctx::CreateUctx>();
    command::<uctx::DestroyUctx>();
    command::<umem::CreateUmem>();
    command::<umem::DestroyUmem>();
    command::<mkey::CreateMkey>();
    command::<mkey::DestroyMkey>();
    command::<cq::CreateCq>();
    command::<cq::ModifyCq>();
    command::<cq::QueryCq>();
    command::<cq::DestroyCq>();
    command::<rmp::CreateRmp>();
    command::<rmp::ModifyRmp>();
    command::<rmp::QueryRmp>();
    command::<rmp::DestroyRmp>();
    command::<caps::SetRoceAddress>();
    command::<vport::QueryVportState>();
    command::<vport::QueryNicVportContext>();
    command::<vport::ModifyNicVportContext>();
    command::<vport::QueryVportCounter>();
    command::<sq::CreateSq>();
    command::<sq::ModifySq>();
    command::<sq::QuerySq>();
    command::<sq::DestroySq>();
    command::<sq::CreateRq>();
    command::<sq::ModifyRq>();
    command::<sq::QueryRq>();
    command::<sq::DestroyRq>();
    command::<tir::AllocTransportDomain>();
    command::<tir::DeallocTransportDomain>();
    command::<tir::CreateTis>();
    command::<tir::ModifyTis>();
    command::<tir::DestroyTis>();
    command::<tir::CreateTir>();
    command::<tir::ModifyTir>();
    command::<tir::DestroyTir>();
    command::<tir::CreateRqt>();
    command::<tir::ModifyRqt>();
    command::<tir::DestroyRqt>();
    command::<flow::SetFlowTableRoot>();
    command::<flow::CreateFlowTable>();
    command::<flow::ModifyFlowTable>();
    command::<flow::DestroyFlowTable>();
    command::<flow::CreateFlowGroup>();
    command::<flow::DestroyFlowGroup>();
    command::<flow::SetFlowTableEntry>();
    command::<flow::DeleteFlowTableEntry>();
    command::<flow::AllocFlowCounter>();
    command::<flow::QueryFlowCounter>();
    command::<flow::DeallocFlowCounter>();
    command::<xrc::AllocXrcd>();
    command::<xrc::DeallocXrcd>();
    command::<xrc::CreateXrcSrq>();
    command::<xrc::ArmXrcSrq>();
    command::<xrc::QueryXrcSrq>();
    command::<xrc::DestroyXrcSrq>();
    command::<dct::CreateDct>();
    command::<dct::DrainDct>();
    command::<dct::QueryDct>();
    command::<dct::DestroyDct>();
    command::<qp::CreateQp>();
    command::<qp::Rst2Init>();
    command::<qp::Init2Rtr>();
    command::<qp::Rtr2Rts>();
    command::<qp::Sqerr2Rts>();
    command::<qp::Sqd2Rts>();
    command::<qp::Init2Init>();
    command::<qp::Rts2Rts>();
    command::<qp::ToErr>();
    command::<qp::ToRst>();
    command::<qp::QueryQp>();
    command::<qp::DestroyQp>();
}

#[test]
fn every_field_of_every_structure_has_its_own_bits() {
    macro_rules! structure {
        ($($ty:ty),*) => {$(
            each_field_alone::<$ty, _>(
                |value| {
                    let mut bytes = [0; <$ty>::LEN];
                    value.write(&mut bytes);
                    bytes
                },
                |bytes| Ok(<$ty>::read(bytes.first_chunk().unwrap())),
                &[],
            );
        )*};
    }
    structure!(cq::CqContext, qp::QpContext, qp::AddressPath, mkey::MkeyContext, mkey::Klm, umem::Umem);
    structure!(rmp::Wq, rmp::RmpContext, dct::DctContext, xrc::XrcSrqContext);
    structure!(hca::AdapterParams, eq::EqContext, eq::Eqe, port::HcaVportContext, port::Ptys, port::Pmtu);
    structure!(port::Pvlc, port::NodeDescription, queue::CmdEntry, queue::BlockTrailer);
    structure!(caps::EthernetCaps, caps::MatchFields, caps::FlowTableProperties, caps::FlowTableCaps);
    structure!(
        sq::SqContext,
        sq::RqContext,
        tir::TisContext,
        tir::TirContext,
        tir::HashFields,
        tir::RqtContext
    );
    structure!(
        flow::FlowTableContext,
        flow::FlowContext,
        flow::Headers,
        flow::Destination,
        flow::FlowCounter
    );
    structure!(vport::NicVportContext, registers::Paos, registers::Pfcc, registers::Ppcnt);
    structure!(registers::Ieee8023Counters, registers::Rfc2863Counters);
    structure!(caps::HcaCap, caps::GeneralCap2, caps::AtomicCaps, caps::RoceCap, caps::RoceAddr);
}
