//! Comparison with `infiniband/mlx5dv.h`: a C program fills the structures of the header and prints their bytes.
//!
//! Needs a C compiler and the header (Debian: `gcc libibverbs-dev`). Without them, the test reports that it was
//! skipped, or fails if `CI_REQUIRE_ALL` is set.

use rushmem_mlx5::{
    Cqe, CqeOpcode, CqeWord, CtrlSeg, ErrCqe, Flags, Inline, Opcode, Segment, Syndrome, View, Wqe,
    av::AvSeg,
    be::{Be16, Be32},
    cqe::{CQE_BYTES, Completion, Failure, OpOwn},
    doorbell::{ArmWord, Record, uar},
    seg::{self, DataSeg, InlineHdr},
};
use std::{
    collections::BTreeMap,
    mem::{offset_of, size_of},
    path::Path,
    process::Command,
};

/// Runs the C program. Returns the values that it printed, by name, or the reason why it could not run.
fn run_program() -> Result<BTreeMap<String, String>, String> {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/suite/header.c");
    let binary = dir.join("mlx5dv-header");
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".into());
    let probe = Command::new(&compiler).arg("--version").output();
    if !probe.is_ok_and(|probe| probe.status.success()) {
        return Err(format!("no C compiler `{compiler}`"));
    }
    let probe = dir.join("mlx5dv-probe.c");
    std::fs::write(&probe, "#include <infiniband/mlx5dv.h>\n").expect("the build's folder is writable");
    let found = Command::new(&compiler).arg("-fsyntax-only").arg(&probe).output().expect("it ran above");
    if !found.status.success() {
        return Err("no header infiniband/mlx5dv.h (package libibverbs-dev)".into());
    }
    let compiled =
        Command::new(&compiler).arg("-o").arg(&binary).arg(&source).output().expect("it ran above");
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let printed = Command::new(&binary).output().expect("it was compiled for this machine");
    assert!(printed.status.success());
    let text = String::from_utf8(printed.stdout).expect("the program prints ASCII");
    let lines = text.lines().filter_map(|line| line.split_once(' '));
    Ok(lines.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn formats_are_those_of_the_header() {
    let header = match run_program() {
        Ok(header) => header,
        Err(reason) => {
            assert!(std::env::var_os("CI_REQUIRE_ALL").is_none(), "required, but {reason}");
            eprintln!("SKIPPED formats_are_those_of_the_header: {reason}");
            return;
        }
    };
    let ours: BTreeMap<_, _> = [entries(), completions(), numbers(), layout()].concat().into_iter().collect();
    assert_eq!(header, ours);
}

fn entries() -> Vec<(String, String)> {
    let (raddr, rkey, laddr, lkey) = (0x7f4a_2000_1000, 0x0018_1ef0, 0x7f3b_4000_2000, 0x0020_0f42);
    let (on, qpn) = (Flags::SIGNALED, 0x1a7);
    let solicited = on.or(Flags::SOLICITED);
    let swap = Wqe::MaskedCompareSwap64 {
        raddr,
        rkey,
        laddr,
        lkey,
        compare: 0x1112_1314_1516_1718,
        swap: 0x0102_0304_0506_0708,
        compare_mask: 0x3132_3334_3536_3738,
        swap_mask: 0x2122_2324_2526_2728,
    };
    let data = Inline::new(b"twenty-eight bytes of inline").expect("28 bytes");
    let entry = |name: &str, wqe: Wqe, index, flags| {
        (name.to_owned(), hex(Segment::bytes_of(wqe.emit(index, qpn, flags).segments())))
    };
    let mut list = vec![
        entry("write", Wqe::Write { raddr, rkey, laddr, lkey, len: 16384 }, 0x12, on),
        entry("read", Wqe::Read { raddr, rkey, laddr, lkey, len: 256 }, 0x13, on),
        entry("inline", Wqe::WriteInline { raddr, rkey, data }, 0x14, on),
        entry("fetch_add", Wqe::FetchAdd { raddr, rkey, laddr, lkey, add: 5 }, 0x16, on),
        entry("compare_swap", Wqe::CompareSwap { raddr, rkey, laddr, lkey, compare: 10, swap: 11 }, 0x18, on),
        entry("masked_compare_swap", swap, 0x19, Flags::NONE),
        entry("nop", Wqe::Nop, 0xffff, Flags::SIGNALED.or(Flags::FENCE_AND_SMALL_FENCE)),
        entry(
            "write_imm",
            Wqe::WriteImm { raddr, rkey, laddr, lkey, len: 64, imm: 0xcafe_0001 },
            0x1e,
            solicited,
        ),
        entry("send", Wqe::Send { laddr, lkey, len: 64 }, 0x1f, on),
        entry("send_imm", Wqe::SendImm { laddr, lkey, len: 64, imm: 0xcafe_0001 }, 0x20, on),
        entry("send_inval", Wqe::SendInval { laddr, lkey, len: 64, inv_rkey: rkey }, 0x21, on),
    ];
    list.push(("datagram".to_owned(), hex(Segment::bytes_of(&datagram()))));
    let fetch = Wqe::FetchAdd { raddr, rkey, laddr, lkey, add: 5 };
    let dynamic = fetch.emit_to(&vector().to_dct(0x2b8, 0x1122_3344_5566_7788), 0x23, qpn, on);
    list.push(("dynamic".to_owned(), hex(Segment::bytes_of(dynamic.segments()))));
    list
}

fn vector() -> AvSeg {
    AvSeg {
        qkey: Be32::new(0x1111_2222),
        dqpn: Be32::new(AvSeg::EXTENDED | 0x2b8),
        stat_rate_sl: 0x36,
        fl_mlid: 0x05,
        rlid: Be16::new(0xc001),
        rmac: [2, 0x52, 0x4d, 0, 0x12, 0xb7],
        tclass: 0x68,
        hop_limit: 0x40,
        grh_gid_fl: Be32::new(AvSeg::GRH | 3 << 20 | 0x1_2345),
        rgid: [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 64, 3, 4],
        ..AvSeg::default()
    }
}

fn datagram() -> [Segment; 5] {
    let ctrl = CtrlSeg::new(0, Opcode::SEND_IMM, 0x22, 0x1a7, 5, Flags::SIGNALED, 0xcafe_0001);
    let [a, b, c] = vector().to_segments();
    let entry = [ctrl.to_segment(), a, b, c, DataSeg::new(0x7f3b_4000_2000, 0x0020_0f42, 64).to_segment()];
    let view = View::parse_datagram(&entry).expect("it is one");
    assert_eq!(view.av(), Some(vector()));
    let mut again = [Segment::ZERO; 5];
    assert_eq!(view.emit(&mut again), Some(5));
    again
}

fn completions() -> Vec<(String, String)> {
    let done = Completion {
        opcode: Opcode::RDMA_WRITE,
        qpn: 0x1a7,
        wqe_counter: 0x12,
        user_index: 7,
        byte_cnt: 0x4000,
        timestamp: 0x12_3456_7890,
    };
    let failure = Failure {
        kind: CqeOpcode::REQ_ERR,
        opcode: Opcode::RDMA_READ,
        qpn: 0x1a7,
        wqe_counter: 0x13,
        srqn_uidx: 7,
        syndrome: Syndrome::REMOTE_ACCESS_ERR,
        vendor_syndrome: 0x88,
    };
    vec![
        ("cqe".to_owned(), hex(&Cqe::requester(&done, false).to_bytes())),
        ("err_cqe".to_owned(), hex(&Cqe::error(&failure, true).to_bytes())),
    ]
}

// Flat lists of names defined by the C header.
fn numbers() -> Vec<(String, String)> {
    let opcodes = [
        Opcode::NOP,
        Opcode::SEND_INVAL,
        Opcode::RDMA_WRITE,
        Opcode::RDMA_WRITE_IMM,
        Opcode::SEND,
        Opcode::SEND_IMM,
        Opcode::TSO,
        Opcode::RDMA_READ,
        Opcode::ATOMIC_CS,
        Opcode::ATOMIC_FA,
        Opcode::ATOMIC_MASKED_CS,
        Opcode::ATOMIC_MASKED_FA,
        Opcode::FMR,
        Opcode::LOCAL_INVAL,
        Opcode::CONFIG_CMD,
        Opcode::SET_PSV,
        Opcode::UMR,
        Opcode::TAG_MATCHING,
        Opcode::FLOW_TBL_ACCESS,
        Opcode::MMO,
    ]
    .map(|opcode| (format!("OPCODE_{opcode}"), opcode.0 as usize));
    let kinds = [
        CqeOpcode::REQ,
        CqeOpcode::RESP_WR_IMM,
        CqeOpcode::RESP_SEND,
        CqeOpcode::RESP_SEND_IMM,
        CqeOpcode::RESP_SEND_INV,
        CqeOpcode::RESIZE_CQ,
        CqeOpcode::NO_PACKET,
        CqeOpcode::SIG_ERR,
        CqeOpcode::REQ_ERR,
        CqeOpcode::RESP_ERR,
        CqeOpcode::INVALID,
    ]
    .map(|kind| (format!("CQE_{kind}"), kind.0 as usize));
    let syndromes = [
        Syndrome::LOCAL_LENGTH_ERR,
        Syndrome::LOCAL_QP_OP_ERR,
        Syndrome::LOCAL_PROT_ERR,
        Syndrome::WR_FLUSH_ERR,
        Syndrome::MW_BIND_ERR,
        Syndrome::BAD_RESP_ERR,
        Syndrome::LOCAL_ACCESS_ERR,
        Syndrome::REMOTE_INVAL_REQ_ERR,
        Syndrome::REMOTE_ACCESS_ERR,
        Syndrome::REMOTE_OP_ERR,
        Syndrome::TRANSPORT_RETRY_EXC_ERR,
        Syndrome::RNR_RETRY_EXC_ERR,
        Syndrome::REMOTE_ABORTED_ERR,
    ]
    .map(|syndrome| (format!("CQE_SYNDROME_{syndrome}"), syndrome.0 as usize));
    let others = [
        ("WQE_CTRL_CQ_UPDATE", Flags::SIGNALED.0 as usize),
        ("WQE_CTRL_SOLICITED", Flags::SOLICITED.0 as usize),
        ("WQE_CTRL_FENCE", Flags::FENCE_AND_SMALL_FENCE.0 as usize),
        ("WQE_CTRL_INITIATOR_SMALL_FENCE", Flags::SMALL_FENCE.0 as usize),
        ("INLINE_SEG", InlineHdr::INLINE as usize),
        ("EXTENDED_UD_AV", AvSeg::EXTENDED as usize),
        ("INVALID_LKEY", DataSeg::LIST_END_LKEY as usize),
        ("SEND_WQE_BB", seg::WQEBB_BYTES),
        ("RCV_DBR", Record::RCV_OFFSET / 4),
        ("SND_DBR", Record::SND_OFFSET / 4),
        ("CQ_DB_REQ_NOT_SOL", ArmWord::new(0, true, 0).0.get() as usize),
        ("CQ_DB_REQ_NOT", ArmWord::new(0, false, 0).0.get() as usize),
        ("CQ_DOORBELL", uar::CQ_ARM),
        ("CQE_OWNER_MASK", OpOwn::new(CqeOpcode::REQ, false, true).0 as usize),
    ]
    .map(|(name, number)| (name.to_owned(), number));
    let print = |(name, number): (String, usize)| (format!("MLX5_{name}"), number.to_string());
    opcodes.into_iter().chain(kinds).chain(syndromes).chain(others).map(print).collect()
}

fn layout() -> Vec<(String, String)> {
    [
        ("sizeof ctrl", seg::SEGMENT_BYTES),
        ("sizeof raddr", size_of::<seg::RaddrSeg>()),
        ("sizeof data", size_of::<seg::DataSeg>()),
        ("sizeof atomic", size_of::<seg::AtomicSeg>()),
        ("sizeof inline", size_of::<InlineHdr>()),
        ("sizeof av", size_of::<AvSeg>()),
        ("av.dqp_dct", offset_of!(AvSeg, dqpn)),
        ("av.stat_rate_sl", offset_of!(AvSeg, stat_rate_sl)),
        ("av.fl_mlid", offset_of!(AvSeg, fl_mlid)),
        ("av.rlid", offset_of!(AvSeg, rlid)),
        ("av.rmac", offset_of!(AvSeg, rmac)),
        ("av.tclass", offset_of!(AvSeg, tclass)),
        ("av.hop_limit", offset_of!(AvSeg, hop_limit)),
        ("av.grh_gid_fl", offset_of!(AvSeg, grh_gid_fl)),
        ("av.rgid", offset_of!(AvSeg, rgid)),
        ("sizeof srq_next", size_of::<seg::SrqNextSeg>()),
        ("srq_next.next", offset_of!(seg::SrqNextSeg, next)),
        ("srq_next.signature", offset_of!(seg::SrqNextSeg, signature)),
        ("sizeof cqe", CQE_BYTES),
        ("sizeof err_cqe", size_of::<ErrCqe>()),
        ("cqe.wqe_id", offset_of!(Cqe, wqe_id)),
        ("cqe.ml_path", offset_of!(Cqe, ml_path)),
        ("cqe.slid", offset_of!(Cqe, slid)),
        ("cqe.flags_rqpn", offset_of!(Cqe, flags_rqpn)),
        ("cqe.hds_ip_ext", offset_of!(Cqe, hds_ip_ext)),
        ("cqe.l4_hdr_type", offset_of!(Cqe, l4_hdr_type)),
        ("cqe.vlan_info", offset_of!(Cqe, vlan_info)),
        ("cqe.srqn_uidx", offset_of!(Cqe, srqn_uidx)),
        ("cqe.imm_inval_pkey", offset_of!(Cqe, imm_inval_pkey)),
        ("cqe.app", offset_of!(Cqe, app)),
        ("cqe.app_op", offset_of!(Cqe, app_op)),
        ("cqe.app_info", offset_of!(Cqe, app_info)),
        ("cqe.byte_cnt", offset_of!(Cqe, byte_cnt)),
        ("cqe.timestamp", offset_of!(Cqe, timestamp)),
        ("cqe.sop_drop_qpn", CqeWord::OFFSET),
        ("err_cqe.srqn", offset_of!(ErrCqe, srqn_uidx)),
        ("err_cqe.vendor_err_synd", offset_of!(ErrCqe, vendor_err_synd)),
        ("err_cqe.syndrome", offset_of!(ErrCqe, syndrome)),
    ]
    .map(|(name, number)| (name.replace(' ', "_"), number.to_string()))
    .to_vec()
}
