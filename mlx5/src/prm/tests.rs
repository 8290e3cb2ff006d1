//! Commands compared with hand-written mailboxes, which are given as `(offset, word)` pairs for the non-zero words.

use super::{
    caps::{AtomicCaps, CapPage, CapType, HcaCap, PortType, QueryHcaCap, QueryHcaCapOut},
    cq::{CqContext, CreateCq, CreateCqOut},
    dct::{CreateDct, DctContext, DrainDct},
    mkey::{AccessMode, CreateMkey, MkeyContext},
    qp::{
        AddressPath, AtomicMode, CreateQp, Init2Rtr, ModifyQpOut, Mtu, PmState, QpContext, RqType, Rst2Init,
        Rtr2Rts,
    },
    umem::{CreateUmem, Mtt, Umem},
    xrc::{AllocXrcd, ArmXrcSrq, CreateXrcSrq, XrcSrqContext},
    *,
};
use std::{string::ToString, vec::Vec};

fn mailbox_of<const N: usize>(words: &[(usize, u32)]) -> [u8; N] {
    let mut bytes = [0; N];
    for (at, word) in words {
        bytes[*at..at + 4].copy_from_slice(&word.to_be_bytes());
    }
    bytes
}

/// Checks that a command encodes to the given `(offset, word)` pairs and decodes from them.
fn golden<C>(command: C, words: &[(usize, u32)])
where
    C: Command<Mailbox: PartialEq + core::fmt::Debug> + PartialEq + core::fmt::Debug,
{
    let mailbox = command.encode();
    let mut expected = [0; 512];
    expected.copy_from_slice(&mailbox_of::<512>(words));
    let (head, tail) = expected.split_at(mailbox.as_ref().len());
    assert_eq!(mailbox.as_ref(), head);
    assert!(tail.iter().all(|byte| *byte == 0));
    assert_eq!(C::decode_exact(mailbox.as_ref()), Ok(command));
}

#[test]
fn query_hca_cap() {
    golden(QueryHcaCap::current::<AtomicCaps>(), &[(0x00, 0x0100_0000), (0x04, 7)]);
    assert_eq!(QueryHcaCap::current::<AtomicCaps>().cap_type, CapType::ATOMIC);
}

#[test]
fn create_cq() {
    let context = CqContext {
        dbr_umem_valid: true,
        cc: true,
        oi: true,
        dbr_umem_id: 0x57,
        log_cq_size: 10,
        uar_page: 0x34,
        c_eqn: 2,
        log_page_size: 4,
        ..Default::default()
    };
    golden(
        CreateCq { context, umem_id: 0x56, umem_valid: true, ..Default::default() },
        &[
            (0x00, 0x0400_0000),
            (0x10, 0x0212_0000),
            (0x14, 0x57),
            (0x1c, 0x0a00_0034),
            (0x24, 2),
            (0x28, 0x0400_0000),
            (0x58, 0x56),
            (0x5c, 0x8000_0000),
        ],
    );
}

#[test]
fn shared_receive_queues_of_xrc_domains() {
    golden(AllocXrcd::default(), &[(0x00, 0x080e_0000)]);
    let context = XrcSrqContext {
        log_xrc_srq_size: 4,
        log_rq_stride: 1,
        xrcd: 0x31,
        dbr_umem_valid: true,
        cqn: 0x404,
        dbr_umem_id: 0x57,
        user_index: 9,
        pd: 0x12,
        lwm: 3,
        dbr_addr: 0x40,
        ..Default::default()
    };
    golden(
        CreateXrcSrq { context, umem_id: 0x56, umem_valid: true, ..Default::default() },
        &[
            (0x00, 0x0705_0000),
            (0x10, 0x0400_0000),
            (0x14, 0x0100_0031),
            (0x18, 0x0100_0404),
            (0x1c, 0x57),
            (0x20, 9),
            (0x28, 0x12),
            (0x2c, 0x0003_0000),
            (0x3c, 0x40),
            (0x58, 0x56),
            (0x5c, 0x8000_0000),
        ],
    );
    golden(
        ArmXrcSrq { op_mod: ArmXrcSrq::XRC_SRQ, xrc_srqn: 0x21, lwm: 3, ..Default::default() },
        &[(0x00, 0x0708_0000), (0x04, 1), (0x08, 0x21), (0x0c, 3)],
    );
}

fn qp_context() -> QpContext {
    QpContext {
        pm_state: PmState::MIGRATED,
        pd: 0x12,
        log_sq_size: 10,
        uar_page: 0x34,
        user_index: 7,
        cqn_snd: 0x403,
        dbr_addr: 0x40,
        rq_type: RqType::ZERO_SIZE,
        dbr_umem_valid: true,
        dbr_umem_id: 0x55,
        ..Default::default()
    }
}

#[test]
fn create_qp_with_and_without_shared_receive_queue() {
    let words = |last: [(usize, u32); 2]| {
        [
            (0x00, 0x0500_0000),
            (0x18, 0x1800),
            (0x1c, 0x12),
            (0x20, 0x5000),
            (0x24, 0x34),
            (0x28, 7),
            (0x94, 0x403),
            (0xbc, 0x40),
            (0xe8, 0x1000_0000),
            (0xfc, 0x55),
            (0x108, 0x54),
            (0x10c, 0x8000_0000),
            last[0],
            last[1],
        ]
    };
    let alone =
        CreateQp { context: qp_context(), wq_umem_id: 0x54, wq_umem_valid: true, ..Default::default() };
    golden(alone, &words([(0xb4, 0), (0xc4, 0x0300_0000)]));
    let context = QpContext { rq_type: RqType::SRQ, srqn_rmpn_xrqn: 0x21, cqn_rcv: 0x404, ..alone.context };
    golden(CreateQp { context, ..alone }, &words([(0xb4, 0x404), (0xc4, 0x0100_0021)]));
}

#[test]
fn rst2init() {
    let context = QpContext {
        pm_state: PmState::MIGRATED,
        primary_address_path: AddressPath { vhca_port_num: 1, ..Default::default() },
        atomic_mode: AtomicMode::UP_TO_8B,
        rre: true,
        rwe: true,
        rae: true,
        ..Default::default()
    };
    golden(
        Rst2Init { qpn: 0x1a7, context, ..Default::default() },
        &[(0x00, 0x0502_0000), (0x08, 0x1a7), (0x18, 0x1800), (0x54, 0x0001_0000), (0xa8, 0x0003_e000)],
    );
}

fn init2rtr(primary_address_path: AddressPath) -> Init2Rtr {
    let context = QpContext {
        mtu: Mtu::B4096,
        log_msg_max: 30,
        remote_qpn: 0x2b8,
        primary_address_path,
        log_rra_max: 4,
        min_rnr_nak: 12,
        ..Default::default()
    };
    Init2Rtr { qpn: 0x1a7, context, ..Default::default() }
}

const INIT2RTR: [(usize, u32); 6] = [
    (0x00, 0x0503_0000),
    (0x08, 0x1a7),
    (0x20, 0xbe00_0000),
    (0x2c, 0x2b8),
    (0xa8, 0x0080_0000),
    (0xac, 0x0c00_0000),
];

#[test]
fn init2rtr_on_infiniband() {
    let path = AddressPath { rlid: 0x19, ..Default::default() };
    golden(init2rtr(path), &[&INIT2RTR[..], &[(0x34, 0x19)]].concat());
}

#[test]
fn init2rtr_on_roce() {
    let path = AddressPath {
        src_addr_index: 3,
        hop_limit: 255,
        rgid_rip: [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 168, 1, 20],
        dscp: 106 >> 2,
        udp_sport: 0xc000,
        eth_prio: 3,
        rmac: [0x02, 0x11, 0x22, 0x33, 0x44, 0x55],
        ..Default::default()
    };
    let words = [
        (0x38, 0x0003_00ff),
        (0x48, 0x0000_ffff),
        (0x4c, 0xc0a8_0114),
        (0x50, 0x001a_c000),
        (0x54, 0x3000_0211),
        (0x58, 0x2233_4455),
    ];
    golden(init2rtr(path), &[&INIT2RTR[..], &words].concat());
}

#[test]
fn rtr2rts() {
    let context = QpContext {
        primary_address_path: AddressPath { ack_timeout: 20, ..Default::default() },
        log_sra_max: 4,
        retry_count: 7,
        rnr_retry: 7,
        ..Default::default()
    };
    golden(
        Rtr2Rts { qpn: 0x1a7, context, ..Default::default() },
        &[(0x00, 0x0504_0000), (0x08, 0x1a7), (0x38, 0xa000_0000), (0x88, 0x0087_e000)],
    );
}

#[test]
fn create_mkey() {
    let context = MkeyContext {
        relaxed_ordering_write: true,
        a: true,
        rw: true,
        rr: true,
        lw: true,
        lr: true,
        qpn: MkeyContext::ANY_QP,
        mkey_7_0: 0x42,
        pd: 0x12,
        start_addr: 0x7f3b_4000_0000,
        len: 0x20_0000,
        translations_octword_size: 1,
        relaxed_ordering_read: true,
        log_page_size: 21,
        ..Default::default()
    }
    .with_access_mode(AccessMode::MTT);
    assert_eq!(context.access_mode(), AccessMode::MTT);
    // The worked example omits umem_id and the actual size; its text names umem 0x58.
    golden(
        CreateMkey { umem_valid: true, context, umem_id: 0x58, ..Default::default() },
        &[
            (0x00, 0x0200_0000),
            (0x0c, 0x4000_0000),
            (0x10, 0x0004_7d00),
            (0x14, 0xffff_ff42),
            (0x1c, 0x12),
            (0x20, 0x7f3b),
            (0x24, 0x4000_0000),
            (0x2c, 0x20_0000),
            (0x44, 1),
            (0x48, 0x55),
            (0x64, 0x58),
        ],
    );
    assert_eq!(mkey::key(0x200f, 0x42), 0x0020_0f42);
}

#[test]
fn create_umem_and_its_list() {
    let umem = Umem { log_page_size: 9, page_offset: 64, num_of_mtt: 2 };
    golden(CreateUmem { uid: 0, umem }, &[(0x00, 0x0a08_0000), (0x20, 9), (0x24, 64), (0x2c, 2)]);
    let pages = [
        Mtt { address: 0x1_0000_0000, read: true, write: true },
        Mtt { address: 0x2_0000, read: true, write: false },
    ];
    let mut mailbox = CreateUmem { uid: 0, umem }.encode().to_vec();
    pages.iter().for_each(|page| mailbox.extend(page.encode()));
    assert_eq!(mailbox[48..], [0, 0, 0, 1, 0, 0, 0, 3, 0, 0, 0, 0, 0, 2, 0, 1]);
    let listed: Vec<_> = list_entries(&mailbox, CreateUmem::LEN).map(Mtt::decode).collect();
    assert_eq!(listed, pages);
    assert_eq!(list_entries(&mailbox[..40], CreateUmem::LEN).count(), 0);
}

#[test]
fn access_modes_survive_the_split() {
    for mode in AccessMode::ALL {
        assert_eq!(MkeyContext::default().with_access_mode(*mode).access_mode(), *mode);
    }
}

#[test]
fn a_page_of_capabilities_round_trips() {
    let caps = HcaCap {
        port_type: PortType::ETHERNET,
        log_bf_reg_size: 9,
        gid_table_size: 5,
        general_obj_types: 1 << 63 | 1,
        cqe_version: 1,
        rc: true,
        ..Default::default()
    };
    let mailbox = QueryHcaCapOut { page: CapPage::new(caps) }.encode();
    assert_eq!(mailbox[0x10 + 0x36], 0x01, "port_type");
    assert_eq!(mailbox[0x10 + 0x4d], 0x09, "log_bf_reg_size");
    assert_eq!(mailbox[0x10 + 0x80..0x10 + 0x88], [0x80, 0, 0, 0, 0, 0, 0, 1], "general_obj_types");
    let page = QueryHcaCapOut::decode(&mailbox).unwrap().page;
    assert_eq!(page.get::<HcaCap>(), caps);
    assert_eq!(caps.gid_entries(), None);
    assert_eq!(HcaCap { gid_table_size: 4, ..caps }.gid_entries(), Some(128));
}

#[test]
fn writing_a_structure_leaves_other_bits_alone() {
    let mut bytes = [0xa5; CqContext::LEN];
    let context = CqContext::read(&bytes);
    context.write(&mut bytes);
    assert_eq!(bytes, [0xa5; CqContext::LEN]);
    CqContext { log_cq_size: 0, ..context }.write(&mut bytes);
    assert_eq!(bytes[0x0c], 0xa0);
    assert_eq!(bytes.iter().filter(|byte| **byte != 0xa5).count(), 1);
}

#[test]
fn errors_name_the_defect() {
    let mailbox = CreateCq::default().encode();
    assert_eq!(CreateCq::decode(&mailbox[..271]), Err(DecodeError::Length { need: 272, have: 271 }));
    assert_eq!(CreateCq::decode(&mailbox[..3]), Err(DecodeError::Length { need: 8, have: 3 }));
    let other = DecodeError::Opcode { expected: CmdOpcode::CREATE_QP, found: CmdOpcode::CREATE_CQ };
    assert_eq!(CreateQp::decode(&mailbox), Err(other));
    let mut odd = mailbox;
    odd[0x50] = 1;
    odd[0x60] = 1;
    assert_eq!(CreateCq::decode(&odd).unwrap().umem_offset, 1 << 56, "lenient");
    assert_eq!(CreateCq::decode_exact(&odd), Err(DecodeError::Unexplained { byte: 0x60 }));
}

#[test]
fn rejected_command_decodes_to_its_error() {
    let refusal = CmdError { status: CmdStatus::BAD_QP_STATE, syndrome: 0x0102_0304 };
    let mut out = [0xa5; ModifyQpOut::LEN];
    refusal.write(&mut out);
    assert_eq!(out, [0x10, 0, 0, 0, 1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(ModifyQpOut::decode(&out), Err(DecodeError::Refused(refusal)));
    assert_eq!(CreateCqOut::decode(&out[..8]), Err(DecodeError::Refused(refusal)), "however short");
    let line = refusal.to_string();
    assert!(line.starts_with("status BAD_QP_STATE (0x10), syndrome 0x01020304: the queue pair"), "{line}");
}

#[test]
fn numbers_have_names() {
    assert_eq!(CmdOpcode::RTR2RTS_QP.to_string(), "RTR2RTS_QP");
    assert_eq!(CmdOpcode(0xfff).to_string(), "CmdOpcode(0xfff)");
    assert_eq!(Mtu::B4096.bytes(), Some(4096));
    assert_eq!(Mtu(6).bytes(), None);
    assert!(
        CmdStatus::ALL
            .iter()
            .all(|status| !status.meaning().contains("does not know") || *status == CmdStatus::BAD_OP)
    );
}

#[test]
fn create_dct() {
    let context = DctContext {
        user_index: 0x77,
        cqn: 0x404,
        atomic_mode: AtomicMode::UP_TO_8B,
        rre: true,
        rwe: true,
        rae: true,
        min_rnr_nak: 12,
        srqn_xrqn: 0x21,
        pd: 0x12,
        dc_access_key: 0x1122_3344_5566_7788,
        mtu: Mtu::B4096,
        port: 1,
        my_addr_index: 3,
        hop_limit: 255,
        dscp: 26,
        ..Default::default()
    };
    golden(
        CreateDct { context, ..Default::default() },
        &[
            (0x00, 0x0710_0000),
            (0x14, 0x77),
            (0x18, 0x404),
            (0x1c, 0x003e_0000),
            (0x20, 0x0c00),
            (0x24, 0x21),
            (0x28, 0x12),
            (0x30, 0x1122_3344),
            (0x34, 0x5566_7788),
            (0x38, 0x0501_0000),
            (0x3c, 0x0003_00ff),
            (0x44, 0x1a),
        ],
    );
    golden(DrainDct { dctn: 0x2b8, ..Default::default() }, &[(0x00, 0x0712_0000), (0x08, 0x2b8)]);
}
