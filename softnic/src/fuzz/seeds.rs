//! Valid inputs for each fuzz target, which are the seeds of its corpus.

use super::{harness, station};
use crate::roce::{self, Aeth, AethSyndrome, Bth, DEFAULT_PKEY, Deth, Ext, Nak, Op, Psn, Reth, Service};
use rushmem_mlx5::av::AvSeg;
use rushmem_mlx5::be::{Be16, Be64};
use rushmem_mlx5::prm::caps::{HcaCap, QueryHcaCap};
use rushmem_mlx5::prm::cq::{CqContext, CreateCq, ModifyCq};
use rushmem_mlx5::prm::dct::{CreateDct, DctContext, DestroyDct, DrainDct, QueryDct};
use rushmem_mlx5::prm::mcg::{AttachToMcg, DetachFromMcg};
use rushmem_mlx5::prm::mkey::{AccessMode, CreateMkey, MkeyContext};
use rushmem_mlx5::prm::pd::AllocPd;
use rushmem_mlx5::prm::port::{
    AccessReg, MadIfc, QueryHcaVportContext, QueryHcaVportGid, QueryHcaVportPkey, RegisterId,
};
use rushmem_mlx5::prm::qp::{
    CreateQp, Init2Rtr, Mtu, QpContext, QueryQp, RqType, Rst2Init, Rtr2Rts, ServiceType, ToErr,
};
use rushmem_mlx5::prm::rmp::{CreateRmp, DestroyRmp, ModifyRmp, QueryRmp, RmpContext, Wq};
use rushmem_mlx5::prm::uar::AllocUar;
use rushmem_mlx5::prm::umem::{CreateUmem, Umem};
use rushmem_mlx5::prm::xrc::{
    AllocXrcd, ArmXrcSrq, CreateXrcSrq, DeallocXrcd, DestroyXrcSrq, QueryXrcSrq, XrcSrqContext,
};
use rushmem_mlx5::prm::{CmdOpcode, Command};
use rushmem_mlx5::seg::DataSeg;
use rushmem_mlx5::umr::{UmrSeg, mask};
use rushmem_mlx5::wqe::Inline;
use rushmem_mlx5::{CtrlSeg, Flags, Opcode, Segment, Wqe};

// Placeholders, which the harness replaces with the numbers of its objects.
const KEY: u32 = 0;
const SOME: u32 = 0;
const SRQN: u32 = 0;

/// Returns inputs for `mailboxes`: one for each command.
pub(super) fn mailboxes() -> Vec<Vec<u8>> {
    [keys(), pools(), queues(), domains(), targets(), paged(), port()].concat()
}

fn keys() -> Vec<Vec<u8>> {
    let mkc = MkeyContext { len: 4096, lr: true, rw: true, ..MkeyContext::default() };
    let mkey = CreateMkey {
        umem_valid: true,
        context: mkc.with_access_mode(AccessMode::MTT),
        ..CreateMkey::default()
    };
    let over_key = CreateMkey {
        context: mkc.with_access_mode(AccessMode::KSM),
        translations_octword_actual_size: 1,
        ..CreateMkey::default()
    };
    vec![
        mailbox(&QueryHcaCap::current::<HcaCap>()),
        mailbox(&AllocPd::default()),
        mailbox(&mkey),
        mailbox(&over_key),
    ]
}

/// Returns command inputs for objects at bus addresses. The list after each mailbox consists of zeros.
fn paged() -> Vec<Vec<u8>> {
    let mkc = MkeyContext { len: 4096, lr: true, pd: 3, ..MkeyContext::default() };
    let umem = Umem { num_of_mtt: 2, ..Umem::default() };
    let list = CreateMkey {
        context: mkc.with_access_mode(AccessMode::MTT),
        translations_octword_actual_size: 1,
        ..CreateMkey::default()
    };
    let everything = MkeyContext { length64: true, ..mkc };
    vec![
        mailbox(&AllocUar::default()),
        mailbox(&CreateUmem { umem, ..CreateUmem::default() }),
        mailbox(&list),
        mailbox(&CreateMkey { context: everything, ..CreateMkey::default() }),
        mailbox(&CreateCq::default()),
        mailbox(&CreateQp { context: QpContext { pd: 3, ..QpContext::default() }, ..CreateQp::default() }),
    ]
}

/// Returns command inputs about the port.
fn port() -> Vec<Vec<u8>> {
    let access = |register_id| AccessReg { op_mod: AccessReg::READ, register_id, ..AccessReg::default() };
    vec![
        mailbox(&QueryHcaVportContext::default()),
        mailbox(&QueryHcaVportGid::default()),
        mailbox(&QueryHcaVportPkey::default()),
        mailbox(&access(RegisterId::PTYS)),
        mailbox(&MadIfc { port: 1, ..MadIfc::default() }),
    ]
}

fn pools() -> Vec<Vec<u8>> {
    let wq =
        Wq { log_wq_stride: 6, log_wq_sz: 2, dbr_umem_valid: true, wq_umem_valid: true, ..Wq::default() };
    let pool = RmpContext { wq, ..RmpContext::default() };
    vec![
        mailbox(&CreateRmp { context: pool, ..CreateRmp::default() }),
        mailbox(&ModifyRmp { rmpn: 1, lwm: true, context: pool, ..ModifyRmp::default() }),
        mailbox(&QueryRmp { rmpn: 1, ..QueryRmp::default() }),
        mailbox(&DestroyRmp { rmpn: 1, ..DestroyRmp::default() }),
    ]
}

/// Returns command inputs that create, query and modify CQs and QPs.
fn queues() -> Vec<Vec<u8>> {
    let (op_mod, cqn, field_select, umem_id) = (ModifyCq::RESIZE, 5, ModifyCq::LOG_SIZE, 1);
    let context = CqContext { log_cq_size: 4, ..CqContext::default() };
    let resize =
        ModifyCq { op_mod, cqn, field_select, context, umem_id, umem_valid: true, ..ModifyCq::default() };
    vec![
        mailbox(&CreateCq { umem_valid: true, ..CreateCq::default() }),
        mailbox(&resize),
        mailbox(&CreateQp { wq_umem_valid: true, ..CreateQp::default() }),
        mailbox(&Rst2Init { qpn: 6, ..Rst2Init::default() }),
        mailbox(&Init2Rtr { qpn: 6, ..Init2Rtr::default() }),
        mailbox(&Rtr2Rts { qpn: 6, ..Rtr2Rts::default() }),
        mailbox(&QueryQp { qpn: 6, ..QueryQp::default() }),
        mailbox(&AttachToMcg { qpn: 6, multicast_gid: [0xff; 16], ..AttachToMcg::default() }),
        mailbox(&DetachFromMcg { qpn: 6, multicast_gid: [0xff; 16], ..DetachFromMcg::default() }),
        mailbox(&ToErr { qpn: 6, ..ToErr::default() }),
    ]
}

/// Returns command inputs for XRC domains and the objects in them.
fn domains() -> Vec<Vec<u8>> {
    let srq = XrcSrqContext {
        log_xrc_srq_size: 2,
        log_rq_stride: 2,
        xrcd: 10,
        dbr_umem_valid: true,
        cqn: 5,
        dbr_umem_id: 1,
        pd: 3,
        ..XrcSrqContext::default()
    };
    let target = QpContext {
        st: ServiceType::XRC,
        no_sq: true,
        pd: 3,
        xrcd: 10,
        rq_type: RqType::SRQ,
        ..QpContext::default()
    };
    vec![
        mailbox(&AllocXrcd::default()),
        mailbox(&CreateXrcSrq { context: srq, umem_id: 1, umem_valid: true, ..CreateXrcSrq::default() }),
        mailbox(&ArmXrcSrq { op_mod: ArmXrcSrq::XRC_SRQ, xrc_srqn: 11, lwm: 1, ..ArmXrcSrq::default() }),
        mailbox(&QueryXrcSrq { xrc_srqn: 11, ..QueryXrcSrq::default() }),
        mailbox(&DestroyXrcSrq { xrc_srqn: 11, ..DestroyXrcSrq::default() }),
        mailbox(&DeallocXrcd { xrcd: 10, ..DeallocXrcd::default() }),
        mailbox(&CreateQp { context: target, ..CreateQp::default() }),
    ]
}

/// Returns command inputs that create, query, drain and destroy DCTs.
fn targets() -> Vec<Vec<u8>> {
    let target = DctContext { cqn: 5, pd: 3, srqn_xrqn: 8, mtu: Mtu::B256, ..DctContext::default() };
    vec![
        mailbox(&CreateDct { context: target, ..CreateDct::default() }),
        mailbox(&QueryDct { dctn: 9, ..QueryDct::default() }),
        mailbox(&DrainDct { dctn: 9, ..DrainDct::default() }),
        mailbox(&DestroyDct { dctn: 9, ..DestroyDct::default() }),
    ]
}

/// Returns inputs for `rings`: records with packets, and skip records.
pub(super) fn rings() -> Vec<Vec<u8>> {
    let sealed = 1 << 32;
    vec![
        ring(640, 0, &[4]),
        ring(640, 320, &[sealed | 4]),
        ring(64 << 10, 64 << 10, &[4, u64::MAX]),
        ring(64, 0, &[4140]),
    ]
}

/// Returns an input for `rings`: the positions of the producer and the consumer, and the words of the records.
pub(super) fn ring(tail: u64, head: u64, records: &[u64]) -> Vec<u8> {
    [&[tail, head], records].concat().iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn mailbox<C: Command>(command: &C) -> Vec<u8> {
    let opcodes = harness::opcodes();
    let at = CmdOpcode::ALL.iter().position(|opcode| *opcode == C::OPCODE).expect("a known opcode");
    // The top bit replaces small numbers with numbers of existing objects.
    let choice = (0..=0x3f).find(|choice| usize::from(0x80 | *choice) % opcodes.len() == at);
    let choice = 0x80 | choice.unwrap_or(0u8);
    let bytes = command.encode();
    let body = &bytes.as_ref()[..bytes.as_ref().len().min(510)];
    [&[choice, (body.len() / 2) as u8], body].concat()
}

/// Returns inputs for `loopback_entries` and `wire_entries`: one for each operation and service, with plausible
/// numbers.
pub(super) fn entries() -> Vec<Vec<u8>> {
    let (raddr, rkey, laddr, lkey, len) = (0, KEY, 4096, KEY, 600);
    let (compare, swap) = (1, 2);
    let masked =
        Wqe::MaskedCompareSwap64 { raddr, rkey, laddr, lkey, compare, swap, compare_mask: 3, swap_mask: 4 };
    let all = [
        Wqe::Nop,
        Wqe::Write { raddr, rkey, laddr, lkey, len },
        Wqe::WriteInline { raddr, rkey, data: Inline::from_u64(7) },
        Wqe::WriteImm { raddr, rkey, laddr, lkey, len, imm: 9 },
        Wqe::Read { raddr, rkey, laddr, lkey, len },
        Wqe::Send { laddr, lkey, len },
        Wqe::SendImm { laddr, lkey, len, imm: 9 },
        Wqe::FetchAdd { raddr, rkey, laddr, lkey, add: 1 },
        Wqe::CompareSwap { raddr, rkey, laddr, lkey, compare, swap },
        Wqe::MaskedFetchAdd32 { raddr, rkey, laddr, lkey, add: 1, boundary: 2 },
        masked,
    ];
    let services = (0..3u8).map(|service| {
        let blocks = all.iter().zip(0..).flat_map(|(wqe, index)| {
            let entry = wqe.emit(index, SOME, Flags::SIGNALED);
            entry.blocks[..entry.n_blocks().into()]
                .iter()
                .flat_map(|block| block.to_bytes())
                .collect::<Vec<_>>()
        });
        [vec![all.len() as u8, service << 1 | 1], blocks.collect()].concat()
    });
    let dynamic = all.iter().zip(0..).flat_map(|(wqe, index)| {
        let entry = wqe.emit_to(&AvSeg::default(), 2 * index, SOME, Flags::SIGNALED);
        entry.blocks.iter().flat_map(|block| block.to_bytes()).collect::<Vec<_>>()
    });
    let dynamic = [vec![2 * all.len() as u8, 3 << 1 | 1], dynamic.collect()].concat();
    // Only WQEs of one block.
    let extended =
        all.iter().filter(|wqe| wqe.emit(0, SOME, Flags::NONE).ds < 4).zip(0..).flat_map(|(wqe, index)| {
            let mut segments = harness::extended(wqe, index, SOME, SRQN);
            segments.resize(4, Segment::ZERO);
            Segment::bytes_of(&segments).to_vec()
        });
    let extended: Vec<u8> = extended.collect();
    let extended = [vec![(extended.len() / 64) as u8, 4 << 1 | 1], extended].concat();
    services.chain([dynamic, extended, changes()]).collect()
}

/// Returns WQEs that give a key two pages, write through it, and free it.
fn changes() -> Vec<u8> {
    let some = mask::LEN | mask::PAGE_SIZE | mask::KEY | mask::FREE | mask::LR | mask::RW;
    let enable = MkeyContext { len: 8192, log_page_size: 12, lr: true, rw: true, ..MkeyContext::default() };
    let disable = MkeyContext { free: true, ..MkeyContext::default() };
    let change = |index, umr: UmrSeg, context: MkeyContext| {
        let mut bytes = [0; MkeyContext::LEN];
        context.write(&mut bytes);
        let ctrl = CtrlSeg::new(0, Opcode::UMR, index, SOME, 9, Flags::SIGNALED, KEY);
        let mut segments = vec![ctrl.to_segment()];
        segments.extend(umr.to_segments());
        segments.extend(bytes.as_chunks().0.iter().map(|segment| Segment::from_bytes(*segment)));
        segments.push(DataSeg::new(0, KEY, 64).to_segment());
        segments.resize(12, Segment::ZERO);
        Segment::bytes_of(&segments).to_vec()
    };
    let umr = UmrSeg { octowords: Be16::new(4), mask: Be64::new(some), ..UmrSeg::default() };
    let write =
        Wqe::Write { raddr: 0, rkey: KEY, laddr: 0, lkey: KEY, len: 8 }.emit(3, SOME, Flags::SIGNALED);
    let free = UmrSeg { flags: UmrSeg::INLINE, mask: Be64::new(mask::FREE), ..UmrSeg::default() };
    let entries = [change(0, umr, enable), write.blocks[0].to_bytes().to_vec(), change(4, free, disable)];
    [vec![7, 1], entries.concat()].concat()
}

/// Returns inputs for `packets`: requests, responses and datagrams.
pub(super) fn packets() -> Vec<Vec<u8>> {
    let reth = |len| Ext::Reth(Reth { addr: 0, rkey: KEY, len });
    let atomic = Ext::Atomic { addr: 64, rkey: KEY, swap_add: 1, compare: 0 };
    let aeth = |syndrome| Ext::Aeth(Aeth { syndrome, msn: 1 });
    let deth = Ext::Deth(Deth { qkey: 0, source_qpn: SOME });
    let requests = [
        packet(Service::Rc, Op::WriteFirst, 0, &reth(300), 256),
        packet(Service::Rc, Op::WriteLast, 1, &Ext::None, 44),
        packet(Service::Rc, Op::ReadRequest, 2, &reth(600), 0),
        packet(Service::Rc, Op::FetchAdd, 5, &atomic, 0),
        packet(Service::Rc, Op::SendOnly, 6, &Ext::None, 32),
        packet(Service::Rc, Op::ReadRequest, 2, &reth(700), 0),
    ];
    let responses = [
        packet(Service::Rc, Op::Ack, 3, &aeth(AethSyndrome::Ack), 0),
        packet(Service::Rc, Op::Ack, 4, &aeth(AethSyndrome::Nak(Nak::Sequence)), 0),
        packet(Service::Rc, Op::Ack, 4, &aeth(AethSyndrome::Rnr(1)), 0),
        packet(Service::Rc, Op::ReadFirst, 4, &aeth(AethSyndrome::Ack), 256),
        packet(
            Service::Rc,
            Op::AtomicAck,
            7,
            &Ext::AtomicAck(Aeth { syndrome: AethSyndrome::Ack, msn: 3 }, 5),
            0,
        ),
        packet(Service::Rc, Op::Ack, 8, &aeth(AethSyndrome::Nak(Nak::RemoteAccess)), 0),
    ];
    let unreliable = [
        packet(Service::Uc, Op::WriteOnly, 0, &reth(16), 16),
        packet(Service::Uc, Op::SendOnly, 1, &Ext::None, 16),
    ];
    let datagrams = [packet(Service::Ud, Op::SendOnly, 0, &deth, 16)];
    let dynamic = [
        packet(Service::Dc, Op::WriteOnly, 0, &reth(16), 16),
        packet(Service::Dc, Op::ReadRequest, 1, &reth(300), 0),
        packet(Service::Dc, Op::FetchAdd, 3, &atomic, 0),
        packet(Service::Dc, Op::Ack, 1, &aeth(AethSyndrome::Ack), 0),
        packet(Service::Dc, Op::Disconnect, 4, &Ext::Disconnect(1), 0),
    ];
    let extended = [
        packet(Service::Xrc, Op::WriteFirst, 0, &reth(300), 256),
        packet(Service::Xrc, Op::WriteLast, 1, &Ext::None, 44),
        packet(Service::Xrc, Op::ReadRequest, 2, &reth(300), 0),
        packet(Service::Xrc, Op::FetchAdd, 4, &atomic, 0),
        packet(Service::Xrc, Op::SendOnlyImm, 5, &Ext::Imm(9), 0),
        packet(Service::Xrc, Op::Ack, 1, &aeth(AethSyndrome::Ack), 0),
    ];
    let input = |service: u8, packets: &[Vec<u8>]| [vec![service], packets.concat()].concat();
    // The top bit injects faults.
    vec![
        input(0, &requests),
        input(0x80, &requests),
        input(0, &responses),
        input(1, &unreliable),
        input(2, &datagrams),
        input(3, &dynamic),
        input(4, &extended),
        input(0x84, &extended),
    ]
}

/// Encodes a packet with its choice (QPN and key of the harness) and its length. Longer payloads are truncated.
fn packet(service: Service, op: Op, psn: u32, ext: &Ext, payload: usize) -> Vec<u8> {
    let psn = Psn::new(psn);
    let srqn = (service == Service::Xrc && !op.is_response()).then_some(SRQN);
    let bth =
        Bth { service, op, solicited: false, pkey: DEFAULT_PKEY, ack_req: true, dest_qpn: SOME, psn, srqn };
    let mut bytes = vec![0; roce::packet_len(bth.len() + ext.len(), payload)];
    roce::emit(&bth, ext, payload, &mut bytes).fill(0x5a);
    bytes.truncate((bytes.len() - roce::ICRC).min(252));
    let choice = if matches!(ext, Ext::Reth(_) | Ext::Atomic { .. }) { 2 } else { 0 };
    [vec![choice, bytes.len() as u8], bytes].concat()
}

/// Returns messages for [`frames`](super::frames): entries, frames and commands.
pub(super) fn frames() -> Vec<Vec<u8>> {
    let message = |kind: u8, body: &[u8]| [&[kind, body.len() as u8][..], body].concat();
    let udp = [
        &[0; 12][..],
        &[8, 0, 0x45, 0, 0, 32, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2],
        &[0x12, 0xb7, 0x12, 0xb7, 0, 12, 0, 0, 1, 2, 3, 4],
    ]
    .concat();
    // Two segments: offloads, and data of 100 bytes. One frame and segments of 40 bytes.
    let entry = |choice: u8, size: u8| {
        let mut body = vec![choice];
        body.extend([0, 0, 0, 0, 0xc0, 0, 0, size, 0, 0, 0, 0, 0, 0, 0, 0]);
        body.extend([0, 0, 0, 100, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x10, 0]);
        body
    };
    // A flow table entry, after the headers of a mailbox: table, index and group.
    let mut set = vec![0; 250];
    (set[15], set[27]) = (0xab, 1);
    (set[8 + 52 + 3], set[8 + 52 + 14]) = (0xac, 4);
    let of = |wanted: CmdOpcode| {
        let found = station::opcodes().iter().position(|opcode| *opcode == wanted);
        (found.expect("a known opcode") as u8) << 2 | 3
    };
    vec![
        [message(1, &udp), message(0, &entry(8, 0)), message(0, &entry(9, 40))].concat(),
        [message(of(CmdOpcode::SET_FLOW_TABLE_ENTRY), &set), message(1, &udp)].concat(),
        [message(of(CmdOpcode::DESTROY_RQ), &[0, 0, 0, 0xa7]), message(2, &udp)].concat(),
        [message(of(CmdOpcode::CREATE_FLOW_GROUP), &[0; 200]), message(1, &[0x81, 0])].concat(),
    ]
}
