//! Tests of unreliable connections and datagrams.

use crate::script::{Pe, QKEY, Setup, both, call, loopback_nic, pair, pair_of, pattern, until, wire_nic};
use rushmem_mlx5::av::AvSeg;
use rushmem_mlx5::be::{Be16, Be32};
use rushmem_mlx5::prm::CmdStatus;
use rushmem_mlx5::prm::mcg::{AttachToMcg, DetachFromMcg};
use rushmem_mlx5::prm::qp::{QpState, Rts2Rts, ServiceType, opt_param};
use rushmem_mlx5::seg::{DataSeg, InlineHdr};
use rushmem_mlx5::{Cqe, CqeOpcode, CtrlSeg, Flags, Opcode, Segment, Syndrome, Wqe};
use rushmem_softnic::{Config, Faults, Nic, Rule};
use std::time::Duration;

fn uc() -> Setup {
    Setup { service: ServiceType::UC, log_rq: Some(4), ..Setup::default() }
}

fn ud() -> Setup {
    Setup { service: ServiceType::UD, log_rq: Some(4), ..Setup::default() }
}

/// Returns the address vector of a QP, which names its adapter by the GID.
pub(crate) fn by_gid(to: &Pe) -> AvSeg {
    AvSeg {
        qkey: Be32::new(QKEY),
        dqpn: Be32::new(AvSeg::EXTENDED | to.qpn),
        grh_gid_fl: Be32::new(AvSeg::GRH),
        rmac: to.mac,
        rgid: to.gid,
        ..AvSeg::default()
    }
}

/// Posts a SEND of the heap's first `len` bytes to the QP that `av` names.
fn send_to(pe: &mut Pe, av: AvSeg, len: u32, imm: Option<u32>, flags: Flags) {
    let data = DataSeg::new(0, pe.key, len).to_segment();
    post_to(pe, av, &[data], imm, flags);
}

fn post_to(pe: &mut Pe, av: AvSeg, data: &[Segment], imm: Option<u32>, flags: Flags) {
    write_to(pe, av, data, imm, flags);
    pe.ring();
}

fn write_to(pe: &mut Pe, av: AvSeg, data: &[Segment], imm: Option<u32>, flags: Flags) {
    let mut entry = vec![Segment::ZERO];
    entry.extend(&av.to_segments()[..if av.is_extended() { 3 } else { 1 }]);
    entry.extend(data);
    let opcode = if imm.is_some() { Opcode::SEND_IMM } else { Opcode::SEND };
    let ds = entry.len() as u8;
    entry[0] = CtrlSeg::new(0, opcode, pe.producer, pe.qpn, ds, flags, imm.unwrap_or(0)).to_segment();
    pe.write_segments(&entry);
}

fn sent(pe: &mut Pe) {
    let cqe = pe.cq.wait();
    assert!(cqe.as_error().is_none(), "{cqe}");
}

/// Posts a SEND to the QP that `av` names, and waits for its CQE.
pub(crate) fn run_to(pe: &mut Pe, av: AvSeg, len: u32, imm: Option<u32>) {
    send_to(pe, av, len, imm, Flags::SIGNALED);
    sent(pe);
}

fn lost(nic: &Nic) -> u64 {
    nic.stats().lost
}

#[test]
fn unreliable_connections_write_and_send() {
    both(uc(), |a, b| {
        let data = pattern(5000, 3);
        a.fill(0, &data);
        a.run(&Wqe::Write { raddr: 10_000, rkey: b.key, laddr: 0, lkey: a.key, len: 5000 });
        b.post_receive(20_000, 6000);
        a.run(&Wqe::SendImm { laddr: 0, lkey: a.key, len: 3000, imm: 0xcafe_0001 });
        let cqe = b.recv_cq.wait();
        assert_eq!(
            (cqe.op_own().opcode(), cqe.imm(), cqe.byte_cnt()),
            (CqeOpcode::RESP_SEND_IMM, 0xcafe_0001, 3000)
        );
        assert_eq!((b.bytes(10_000, 5000), b.bytes(20_000, 3000)), (data.clone(), data[..3000].to_vec()));
        b.post_receive(0, 0);
        a.run(&Wqe::WriteImm { raddr: 1, rkey: b.key, laddr: 0, lkey: a.key, len: 100, imm: 7 });
        let cqe = b.recv_cq.wait();
        assert_eq!((cqe.op_own().opcode(), cqe.imm(), cqe.byte_cnt()), (CqeOpcode::RESP_WR_IMM, 7, 100));
        assert_eq!((cqe.flags_rqpn.get(), cqe.slid.get()), (0, 0));
    });
}

#[test]
fn lost_unreliable_messages_still_complete() {
    for wire in [false, true] {
        let (x, y) = if wire {
            (wire_nic(Config::default()), wire_nic(Config::default()))
        } else {
            (loopback_nic(), loopback_nic())
        };
        let to = if wire { &y } else { &x };
        let (mut a, mut b) = pair(&x, to, uc());
        // Without a receive, with an unknown key, or without the access right, the message is lost and both QPs
        // continue.
        a.run(&Wqe::Send { laddr: 0, lkey: a.key, len: 2000 });
        a.run(&Wqe::Write { raddr: 0, rkey: 1, laddr: 0, lkey: a.key, len: 2000 });
        a.run(&Wqe::Write { raddr: 1 << 40, rkey: b.key, laddr: 0, lkey: a.key, len: 8 });
        until("three lost messages", || lost(to) == 3);
        b.post_receive(0, 64);
        a.run(&Wqe::Send { laddr: 0, lkey: a.key, len: 64 });
        assert_eq!((b.recv_cq.wait().byte_cnt(), b.query().state), (64, QpState::RTS));
        // A receive that is too short only fails the receiver.
        b.post_receive(0, 63);
        a.run(&Wqe::Send { laddr: 0, lkey: a.key, len: 64 });
        assert_eq!(b.recv_cq.wait().as_error().map(|error| error.syndrome), Some(Syndrome::LOCAL_LENGTH_ERR));
        until("the error state", || b.query().state == QpState::ERR);
        a.run(&Wqe::Send { laddr: 0, lkey: a.key, len: 64 });
        assert_eq!(a.query().state, QpState::RTS);
        // Operations that an unreliable connection does not support fail immediately.
        let read = Wqe::Read { raddr: 0, rkey: b.key, laddr: 0, lkey: a.key, len: 8 };
        assert_eq!(a.fail(&read), Syndrome::LOCAL_QP_OP_ERR);
        assert_eq!((x.violations(), y.violations()), (vec![], vec![]));
    }
}

#[test]
fn unreliable_message_with_a_missing_packet_is_dropped() {
    let lossy = Faults { drop: 0.02, reorder: 0.02, seed: 11, ..Faults::default() };
    let (x, y) = (wire_nic(Config { faults: lossy, ..Config::default() }), wire_nic(Config::default()));
    let (mut a, mut b) = pair(&x, &y, Setup { log_rq: Some(8), log_cq: 10, ..uc() });
    for slot in 0..200u64 {
        b.post_receive(4096 * slot, 4096);
    }
    // Messages of four packets, all of whose bytes are equal.
    for message in 0..200u32 {
        a.fill(0, &[message as u8 + 1; 4000]);
        a.run(&Wqe::SendImm { laddr: 0, lkey: a.key, len: 4000, imm: message });
    }
    let mut last = None;
    let mut slot = 0u64;
    until("the last message, or silence", || {
        while let Some(cqe) = b.recv_cq.poll() {
            assert!(cqe.as_error().is_none() && last < Some(cqe.imm()), "{cqe}");
            // A dropped message leaves its receive to the next one.
            assert_eq!((u64::from(cqe.wqe_counter()), cqe.byte_cnt()), (slot, 4000));
            assert_eq!(b.bytes(4096 * slot, 4000), vec![cqe.imm() as u8 + 1; 4000]);
            (last, slot) = (Some(cqe.imm()), slot + 1);
        }
        y.stats().packets_received + x.stats().faults >= 800 && slot >= 100
    });
    assert!((100..200).contains(&slot), "{slot} of 200 messages");
}

#[test]
fn datagrams_reach_their_own_addresses() {
    let (x, y) = (wire_nic(Config::default()), wire_nic(Config::default()));
    let (mut a, mut b, mut c) = (Pe::new(&x, ud()), Pe::new(&x, ud()), Pe::new(&y, ud()));
    for pe in [&a, &b, &c] {
        pe.connect_to_itself();
    }
    let data = pattern(4096, 5);
    a.fill(0, &data);
    for (i, len) in [0u32, 1, 64, 1000, 4096].into_iter().enumerate() {
        for to in [&mut b, &mut c] {
            let imm = (i % 2 == 0).then_some(0xcafe_0000 + i as u32);
            to.post_receive(100, 40 + len);
            let solicited = Flags::SIGNALED.or(Flags::SOLICITED);
            send_to(&mut a, by_gid(to), len, imm, if i == 0 { solicited } else { Flags::SIGNALED });
            sent(&mut a);
            let cqe = to.recv_cq.wait();
            let kind = if imm.is_some() { CqeOpcode::RESP_SEND_IMM } else { CqeOpcode::RESP_SEND };
            assert_eq!((cqe.op_own().opcode(), cqe.imm()), (kind, imm.unwrap_or(0)));
            assert_eq!((cqe.byte_cnt(), cqe.op_own().is_solicited()), (40 + len, i == 0));
            assert_eq!((cqe.flags_rqpn.get(), Some(cqe.slid.get())), (0x1a << 24 | a.qpn, x.lid()));
            assert_eq!(to.bytes(140, len as usize), data[..len as usize]);
            let head = to.bytes(100, 40);
            assert_eq!(head[..21], [&[0; 20][..], &[0x45]].concat());
            assert_eq!(head[32..36], x.address().ip().octets());
            assert_eq!(head[36..40], to.gid[12..]);
        }
    }
    assert_eq!((x.violations(), y.violations()), (vec![], vec![]));
}

#[test]
fn datagrams_by_lid_inline_and_to_self() {
    let (x, y) = (wire_nic(Config::default()), wire_nic(Config::default()));
    let (mut a, mut b) = pair(&x, &y, ud());
    let mut inline = bytemuck::bytes_of(&InlineHdr::new(6)).to_vec();
    inline.extend(b"inline\0\0\0\0\0\0");
    inline.truncate(16);
    let inline = [Segment::from_bytes(inline.try_into().unwrap())];
    let (qkey, lid) = (Be32::new(QKEY), |nic: &Nic| Be16::new(nic.lid().unwrap()));
    // A 16-byte address vector, or a full one padded with zeroes.
    for extended in [0, AvSeg::EXTENDED] {
        b.post_receive(0, 100);
        let dqpn = Be32::new(extended | b.qpn);
        post_to(
            &mut a,
            AvSeg { qkey, dqpn, rlid: lid(&y), ..AvSeg::default() },
            &inline,
            None,
            Flags::SIGNALED,
        );
        sent(&mut a);
        assert_eq!((b.recv_cq.wait().byte_cnt(), b.bytes(40, 6)), (46, b"inline".to_vec()));

        a.post_receive(512, 100);
        let dqpn = Be32::new(extended | a.qpn);
        post_to(
            &mut a,
            AvSeg { qkey, dqpn, rlid: lid(&x), ..AvSeg::default() },
            &inline,
            None,
            Flags::SIGNALED,
        );
        sent(&mut a);
        assert_eq!((a.recv_cq.wait().byte_cnt(), a.bytes(552, 6)), (46, b"inline".to_vec()));
    }
}

/// GID of a multicast group of InfiniBand.
const GROUP: [u8; 16] = [0xff, 0x12, 0x40, 0x1b, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4];

#[test]
fn a_datagram_to_a_group_reaches_its_other_members() {
    let infiniband = Config { infiniband: true, ..Config::default() };
    let (x, y) = (wire_nic(infiniband.clone()), wire_nic(infiniband));
    let mut members = [Pe::new(&x, ud()), Pe::new(&x, ud()), Pe::new(&y, ud())];
    for pe in &mut members {
        pe.connect_to_itself();
        let attach = AttachToMcg { qpn: pe.qpn, multicast_gid: GROUP, ..Default::default() };
        call(&pe.context, &attach).unwrap();
        call(&pe.context, &attach).expect("a member again");
        pe.post_receive(0, 104);
    }
    let [a, others @ ..] = &mut members;
    let av = AvSeg {
        dqpn: Be32::new(AvSeg::EXTENDED | 0xff_ffff),
        rgid: GROUP,
        rlid: Be16::new(0xc123),
        ..by_gid(a)
    };
    a.fill(0, &pattern(64, 7));
    run_to(a, av, 64, None);
    for pe in others.iter_mut() {
        let cqe = pe.recv_cq.wait();
        assert_eq!((cqe.byte_cnt(), Some(cqe.slid.get())), (104, x.lid()));
        assert_eq!((pe.bytes(0, 1)[0] >> 4, pe.bytes(24, 16)), (6, GROUP.to_vec()));
        assert_eq!(pe.bytes(40, 64), pattern(64, 7));
    }
    // Who has left receives nothing more, which the next datagram to the other member shows.
    let detach = DetachFromMcg { qpn: others[0].qpn, multicast_gid: GROUP, ..Default::default() };
    call(&others[0].context, &detach).unwrap();
    assert_eq!(call(&others[0].context, &detach).unwrap_err().status, CmdStatus::BAD_RES);
    others.iter_mut().for_each(|pe| pe.post_receive(0, 104));
    run_to(a, av, 64, None);
    others[1].recv_cq.wait();
    assert!(others[0].recv_cq.poll().is_none() && a.recv_cq.poll().is_none());
}

#[test]
fn only_datagram_qps_join_only_groups() {
    let x = wire_nic(Config { infiniband: true, ..Config::default() });
    let (a, connected) = (Pe::new(&x, ud()), Pe::new(&x, uc()));
    let attach = |pe: &Pe, multicast_gid| {
        let refused = call(&a.context, &AttachToMcg { qpn: pe.qpn, multicast_gid, ..Default::default() });
        refused.map_err(|error| error.status)
    };
    assert_eq!(attach(&connected, GROUP), Err(CmdStatus::BAD_RES));
    assert_eq!(attach(&a, a.gid), Err(CmdStatus::BAD_PARAM));
    let group = |last: u16| {
        let mut group = GROUP;
        group[14..].copy_from_slice(&last.to_be_bytes());
        group
    };
    assert!((0..256).all(|last| attach(&a, group(last)).is_ok()));
    assert_eq!(attach(&a, group(256)), Err(CmdStatus::NO_RES));
    assert!(attach(&a, group(0)).is_ok(), "a member again");
}

#[test]
fn undeliverable_datagrams_are_lost() {
    let (x, y) = (wire_nic(Config::default()), wire_nic(Config::default()));
    let (mut a, mut b) = pair(&x, &y, ud());
    let (_, c) = pair_of(
        &x,
        &y,
        Setup { service: ServiceType::RC, ..ud() },
        Setup { service: ServiceType::RC, ..ud() },
    );
    let other = AvSeg { qkey: Be32::new(QKEY + 1), ..by_gid(&b) };
    // No receive, a wrong Q_Key, a QP of another service, and no QP at all.
    run_to(&mut a, by_gid(&b), 8, None);
    until("the first", || lost(&y) == 1);
    b.post_receive(0, 100);
    run_to(&mut a, other, 8, None);
    run_to(&mut a, AvSeg { dqpn: Be32::new(AvSeg::EXTENDED | c.qpn), ..by_gid(&b) }, 8, None);
    run_to(&mut a, AvSeg { rgid: [0xff; 16], ..by_gid(&b) }, 8, None);
    until("all", || (lost(&x), lost(&y), y.stats().dropped) == (1, 2, 1));
    // The sender's own Q_Key, which the highest bit selects.
    let own = AvSeg { qkey: Be32::new(1 << 31), ..by_gid(&b) };
    run_to(&mut a, own, 8, Some(3));
    assert_eq!(b.recv_cq.wait().imm(), 3);
    // The Q_Key may be changed.
    let mut command = Rts2Rts { qpn: b.qpn, opt_param_mask: opt_param::Q_KEY, ..Rts2Rts::default() };
    command.context.q_key = QKEY + 1;
    call(&b.context, &command).unwrap();
    assert_eq!(b.query().q_key, QKEY + 1);
    b.post_receive(0, 100);
    run_to(&mut a, other, 8, Some(4));
    assert_eq!(b.recv_cq.wait().imm(), 4);
}

#[test]
fn invalid_datagrams_fail() {
    let error = |cqe: Cqe| cqe.as_error().expect("an error").syndrome;
    struct Bad {
        syndrome: Syndrome,
        violations: usize,
        write: fn(&mut Pe, AvSeg),
    }
    let bad = [
        Bad {
            syndrome: Syndrome::LOCAL_LENGTH_ERR,
            violations: 0,
            write: |a, av| write_to(a, av, &[DataSeg::new(0, a.key, 4097).to_segment()], None, Flags::NONE),
        },
        Bad {
            syndrome: Syndrome::LOCAL_PROT_ERR,
            violations: 0,
            write: |a, av| write_to(a, av, &[DataSeg::new(0, 1, 8).to_segment()], None, Flags::NONE),
        },
        // Half an address vector.
        Bad {
            syndrome: Syndrome::LOCAL_QP_OP_ERR,
            violations: 1,
            write: |a, av| {
                let ctrl = CtrlSeg::new(0, Opcode::SEND, a.producer, a.qpn, 2, Flags::NONE, 0);
                a.write_segments(&[ctrl.to_segment(), av.to_segments()[0]]);
            },
        },
        Bad {
            syndrome: Syndrome::LOCAL_QP_OP_ERR,
            violations: 1,
            write: |a, _| {
                let (rkey, lkey) = (a.key, a.key);
                a.write(&Wqe::Write { raddr: 0, rkey, laddr: 0, lkey, len: 8 }, Flags::NONE);
            },
        },
    ];
    for Bad { syndrome: expected, violations, write } in bad {
        let nic = wire_nic(Config::default());
        let (mut a, b) = pair(&nic, &nic, ud());
        write(&mut a, by_gid(&b));
        // Later WQEs are flushed, whether they were posted before or after.
        write_to(&mut a, by_gid(&b), &[], None, Flags::NONE);
        a.ring();
        assert_eq!(error(a.cq.wait()), expected);
        assert_eq!(error(a.cq.wait()), Syndrome::WR_FLUSH_ERR);
        let entries = nic.violations().into_iter().filter(|violation| violation.rule == Rule::Wqe);
        assert_eq!(entries.count(), violations);
        send_to(&mut a, by_gid(&b), 8, None, Flags::NONE);
        assert_eq!(error(a.cq.wait()), Syndrome::WR_FLUSH_ERR);
    }
}

#[test]
fn a_datagram_receive_needs_room_for_the_header() {
    let nic = loopback_nic();
    let (mut a, mut b) = pair(&nic, &nic, ud());
    b.post_receive(0, 47);
    run_to(&mut a, by_gid(&b), 8, None);
    assert_eq!(b.recv_cq.wait().as_error().map(|error| error.syndrome), Some(Syndrome::LOCAL_LENGTH_ERR));
    until("the error state", || b.query().state == QpState::ERR);
    std::thread::sleep(Duration::from_millis(1));
    assert_eq!(a.query().state, QpState::RTS);
}
