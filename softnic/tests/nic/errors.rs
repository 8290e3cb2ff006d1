//! Tests of every error of a requester, over loopback and by packets, and of its effect on the QP.

use crate::script::{Pe, Setup, both, call, loopback_nic, pair, pair_of, wire_nic};
use rushmem_mlx5::prm::qp::{AddressPath, AtomicMode, QpContext, QpState, Rst2Init, ToErr};
use rushmem_mlx5::seg::DataSeg;
use rushmem_mlx5::wqe::Inline;
use rushmem_mlx5::{CqeOpcode, CtrlSeg, Flags, Opcode, Segment, Syndrome, Wqe};
use rushmem_softnic::{Config, Nic, Rule, reason};
use std::time::{Duration, Instant};

/// Checks that the WQE built by `make` fails with `expected`, over loopback and by packets.
fn fails(setup: Setup, expected: Syndrome, make: impl Fn(&Pe, &Pe) -> Wqe) {
    fails_between(setup.clone(), setup, expected, make);
}

fn fails_between(of_a: Setup, of_b: Setup, expected: Syndrome, make: impl Fn(&Pe, &Pe) -> Wqe) {
    let check = |x: &Nic, y: &Nic, how: &str| {
        let (mut a, b) = pair_of(x, y, of_a.clone(), of_b.clone());
        // The two valid WQEs before it must complete.
        a.run(&Wqe::Nop);
        let wqe = make(&a, &b);
        assert_eq!(a.fail(&wqe), expected, "{how}: {wqe:?}");
        assert_eq!(a.query().state, QpState::ERR);
        // Later WQEs are flushed, signaled or not.
        let index = a.write(&Wqe::Nop, Flags::NONE);
        a.ring();
        let cqe = a.cq.wait();
        let error = cqe.as_error().expect("flushed");
        assert_eq!((error.syndrome, error.tail.wqe_counter.get()), (Syndrome::WR_FLUSH_ERR, index));
    };
    let nic = loopback_nic();
    check(&nic, &nic, "loopback");
    let (x, y) = (wire_nic(Config::default()), wire_nic(Config::default()));
    check(&x, &y, "wire");
}

fn write(rkey: u32, lkey: u32) -> Wqe {
    Wqe::Write { raddr: 0, rkey, laddr: 0, lkey, len: 64 }
}

#[test]
fn wrong_lkey() {
    fails(Setup::default(), Syndrome::LOCAL_PROT_ERR, |a, b| write(b.key, a.key ^ 1));
    fails(Setup::default(), Syndrome::LOCAL_PROT_ERR, |a, b| write(b.key, a.key.wrapping_add(0x1000)));
    // A key of another protection domain.
    fails(Setup::default(), Syndrome::LOCAL_PROT_ERR, |a, b| {
        if a.key == b.key { write(b.key, 0) } else { write(b.key, b.key) }
    });
}

#[test]
fn local_range() {
    fails(Setup::default(), Syndrome::LOCAL_PROT_ERR, |a, b| Wqe::Write {
        raddr: 0,
        rkey: b.key,
        laddr: a.setup.heap as u64 - 63,
        lkey: a.key,
        len: 64,
    });
    fails(Setup::default(), Syndrome::LOCAL_PROT_ERR, |a, _| Wqe::Dump {
        laddr: u64::MAX,
        lkey: a.key,
        len: 2,
    });
}

#[test]
fn local_write_right() {
    let no_local_write = Setup { rights: [true, true, true, false, true], ..Setup::default() };
    fails(no_local_write.clone(), Syndrome::LOCAL_PROT_ERR, |a, b| Wqe::Read {
        raddr: 0,
        rkey: b.key,
        laddr: 0,
        lkey: a.key,
        len: 8,
    });
    fails(no_local_write, Syndrome::LOCAL_PROT_ERR, |a, b| Wqe::FetchAdd {
        raddr: 0,
        rkey: b.key,
        laddr: 0,
        lkey: a.key,
        add: 1,
    });
}

#[test]
fn wrong_rkey_and_remote_range() {
    fails(Setup::default(), Syndrome::REMOTE_ACCESS_ERR, |a, b| write(b.key ^ 0x80, a.key));
    fails(Setup::default(), Syndrome::REMOTE_ACCESS_ERR, |a, b| Wqe::Write {
        raddr: b.setup.heap as u64 - 63,
        rkey: b.key,
        laddr: 0,
        lkey: a.key,
        len: 64,
    });
    fails(Setup::default(), Syndrome::REMOTE_ACCESS_ERR, |a, b| Wqe::Read {
        raddr: u64::MAX - 3,
        rkey: b.key,
        laddr: 0,
        lkey: a.key,
        len: 8,
    });
    fails(Setup::default(), Syndrome::REMOTE_ACCESS_ERR, |a, b| Wqe::FetchAdd {
        raddr: b.setup.heap as u64,
        rkey: b.key,
        laddr: 0,
        lkey: a.key,
        add: 1,
    });
}

#[test]
fn remote_rights() {
    let right = |rights| Setup { rights, ..Setup::default() };
    let (a, b, c) = (
        right([true, false, true, true, true]),
        right([true, true, false, true, true]),
        right([false, true, true, true, true]),
    );
    let expected = Syndrome::REMOTE_ACCESS_ERR;
    fails_between(Setup::default(), a, expected, |a, b| write(b.key, a.key));
    fails_between(Setup::default(), b, expected, |a, b| Wqe::Read {
        raddr: 0,
        rkey: b.key,
        laddr: 0,
        lkey: a.key,
        len: 8,
    });
    fails_between(Setup::default(), c, expected, fetch_add);
}

fn fetch_add(a: &Pe, b: &Pe) -> Wqe {
    Wqe::FetchAdd { raddr: 8, rkey: b.key, laddr: 0, lkey: a.key, add: 1 }
}

#[test]
fn operations_without_rights_at_the_target_qp() {
    let access = |access| Setup { access, ..Setup::default() };
    let expected = Syndrome::REMOTE_INVAL_REQ_ERR;
    fails_between(Setup::default(), access([true, false, true]), expected, |a, b| write(b.key, a.key));
    fails_between(Setup::default(), access([false, true, true]), expected, |a, b| Wqe::Read {
        raddr: 0,
        rkey: b.key,
        laddr: 0,
        lkey: a.key,
        len: 8,
    });
    fails_between(Setup::default(), access([true, true, false]), expected, fetch_add);
    let none = Setup { atomic_mode: AtomicMode::NONE, ..Setup::default() };
    fails_between(Setup::default(), none, expected, fetch_add);
    let standard_only = Setup { atomic_mode: AtomicMode::IB_SPEC, ..Setup::default() };
    fails_between(Setup::default(), standard_only, expected, |a, b| Wqe::MaskedFetchAdd32 {
        raddr: 8,
        rkey: b.key,
        laddr: 0,
        lkey: a.key,
        add: 1,
        boundary: 0,
    });
    // A QP without a receive queue can never have a receive.
    fails(Setup::default(), expected, |a, _| Wqe::Send { laddr: 0, lkey: a.key, len: 4 });
}

#[test]
fn waiting_for_a_cq_that_does_not_exist() {
    fails(Setup::default(), Syndrome::LOCAL_QP_OP_ERR, |_, _| Wqe::Wait { index: 0, cqn: 0xff_ffff });
}

#[test]
fn misaligned_atomics() {
    let expected = Syndrome::REMOTE_INVAL_REQ_ERR;
    fails(Setup::default(), expected, |a, b| Wqe::FetchAdd {
        raddr: 4,
        rkey: b.key,
        laddr: 0,
        lkey: a.key,
        add: 1,
    });
    fails(Setup::default(), expected, |a, b| Wqe::MaskedFetchAdd32 {
        raddr: 6,
        rkey: b.key,
        laddr: 0,
        lkey: a.key,
        add: 1,
        boundary: 0,
    });
}

#[test]
fn message_longer_than_the_qp_allows() {
    let setup = Setup { log_msg_max: 12, ..Setup::default() };
    fails(setup, Syndrome::LOCAL_LENGTH_ERR, |a, b| Wqe::Write {
        raddr: 0,
        rkey: b.key,
        laddr: 0,
        lkey: a.key,
        len: 4097,
    });
}

#[test]
fn receive_entry_too_short() {
    both(Setup { log_rq: Some(2), ..Setup::default() }, |a, b| {
        b.post_receive(0, 16);
        b.post_receive(64, 16);
        assert_eq!(a.fail(&Wqe::Send { laddr: 0, lkey: a.key, len: 17 }), Syndrome::REMOTE_INVAL_REQ_ERR);
        let got = [b.recv_cq.wait(), b.recv_cq.wait()];
        assert_eq!(got.map(|cqe| cqe.tail.op_own.opcode()), [CqeOpcode::RESP_ERR; 2]);
        let syndromes = got.map(|cqe| cqe.as_error().map(|error| error.syndrome));
        assert_eq!(syndromes, [Some(Syndrome::LOCAL_LENGTH_ERR), Some(Syndrome::WR_FLUSH_ERR)]);
        assert_eq!(b.query().state, QpState::ERR);
    });
}

#[test]
fn receiver_never_ready() {
    let setup = Setup { log_rq: Some(2), rnr_retry: 3, ..Setup::default() };
    fails(setup, Syndrome::RNR_RETRY_EXC_ERR, |a, _| Wqe::Send { laddr: 0, lkey: a.key, len: 4 });
}

#[test]
fn missing_peer_times_out() {
    let setup = Setup { ack_timeout: 13, retry_count: 2, ..Setup::default() };
    // 4.096 us * 2^13, three times.
    let wanted = Duration::from_micros(4096 * 8192 * 3 / 1000);
    let check = |x: &Nic, y: &Nic| {
        let (mut a, mut b) = (Pe::new(x, setup.clone()), Pe::new(y, setup.clone()));
        a.connect(&b);
        b.to_init();
        let start = Instant::now();
        let wqe = write(b.key, a.key);
        assert_eq!(a.fail(&wqe), Syndrome::TRANSPORT_RETRY_EXC_ERR);
        let took = start.elapsed();
        assert!(took >= wanted && took < wanted * 4 + Duration::from_secs(1), "{took:?} for {wanted:?}");
        b.producer = 0;
    };
    let nic = loopback_nic();
    check(&nic, &nic);
    check(&wire_nic(Config::default()), &wire_nic(Config::default()));
}

#[test]
fn requester_waits_for_a_late_peer() {
    let check = |x: &Nic, y: &Nic| {
        let (mut a, b) = (Pe::new(x, Setup::default()), Pe::new(y, Setup::default()));
        a.connect(&b);
        let index = a.post(&Wqe::WriteInline { raddr: 0, rkey: b.key, data: Inline::from_u32(9) });
        std::thread::sleep(Duration::from_millis(50));
        assert!(a.cq.poll().is_none());
        b.connect(&a);
        let cqe = a.cq.wait();
        assert_eq!((cqe.as_error().is_none(), cqe.tail.wqe_counter.get()), (true, index));
        assert_eq!(b.heap.load_u32(0), 9);
    };
    let nic = loopback_nic();
    check(&nic, &nic);
    check(&wire_nic(Config::default()), &wire_nic(Config::default()));
}

#[test]
fn different_packet_numbers_time_out() {
    let (one, other) = (Setup { psn: 5, ..quick() }, quick());
    let nic = loopback_nic();
    let (mut a, b) = (Pe::new(&nic, one.clone()), Pe::new(&nic, other));
    b.connect(&a);
    a.setup.psn = 6;
    a.connect(&b);
    let wqe = write(b.key, a.key);
    assert_eq!(a.fail(&wqe), Syndrome::TRANSPORT_RETRY_EXC_ERR);
}

#[test]
fn different_partitions_cannot_communicate() {
    let keys = Config { pkeys: vec![0xffff, 0x8001, 0x0001], ..Config::default() };
    let check = |x: &Nic, y: &Nic| {
        let of = |setup: &Setup, pkey_index| Setup { pkey_index, ..setup.clone() };
        for (one, other) in [(0, 0), (1, 1), (1, 2), (2, 1)] {
            let (mut a, b) = pair_of(x, y, of(&Setup::default(), one), of(&Setup::default(), other));
            assert_eq!(a.query().primary_address_path.pkey_index, one);
            a.run(&write(b.key, a.key));
        }
        // Two limited members of one partition, and members of different partitions.
        for (one, other) in [(2, 2), (0, 1), (1, 0)] {
            let (mut a, b) = pair_of(x, y, of(&quick(), one), of(&quick(), other));
            assert_eq!(a.fail(&write(b.key, a.key)), Syndrome::TRANSPORT_RETRY_EXC_ERR);
        }
    };
    let nic = Nic::start(keys.clone()).unwrap();
    check(&nic, &nic);
    check(&wire_nic(keys.clone()), &wire_nic(keys));

    let a = Pe::new(&nic, Setup::default());
    let path = AddressPath { vhca_port_num: 1, pkey_index: 3, ..AddressPath::default() };
    let context = QpContext { primary_address_path: path, ..QpContext::default() };
    let refused = call(&a.context, &Rst2Init { qpn: a.qpn, context, ..Rst2Init::default() }).unwrap_err();
    assert!(reason(refused.syndrome).unwrap().contains("partition"));
}

/// Returns the setup of a QP that times out after a few milliseconds.
fn quick() -> Setup {
    Setup { ack_timeout: 10, retry_count: 1, ..Setup::default() }
}

#[test]
fn malformed_wqes_fail() {
    let bad: [fn(&Pe, &Pe) -> Vec<Segment>; 6] = [
        // Unknown opcode.
        |a, _| vec![ctrl(a, a.producer, a.qpn, Opcode(0x77), 1)],
        // QPN of another QP.
        |a, _| vec![ctrl(a, a.producer, a.qpn + 1, Opcode::NOP, 1)],
        // Index of another slot.
        |a, _| vec![ctrl(a, a.producer.wrapping_add(1), a.qpn, Opcode::NOP, 1)],
        // A WRITE without a remote address.
        |a, _| vec![ctrl(a, a.producer, a.qpn, Opcode::RDMA_WRITE, 1)],
        // No segments at all.
        |a, _| vec![ctrl(a, a.producer, a.qpn, Opcode::NOP, 0)],
        // Longer than what was announced.
        |a, b| {
            let data = DataSeg::new(0, a.key, 8).to_segment();
            let raddr = rushmem_mlx5::seg::RaddrSeg::new(0, b.key).to_segment();
            vec![ctrl(a, a.producer, a.qpn, Opcode::RDMA_WRITE, 40), raddr, data]
        },
    ];
    for make in bad {
        let run = |x: &Nic, y: &Nic| {
            let (mut a, b) = pair(x, y, Setup::default());
            let segments = make(&a, &b);
            let index = a.write_segments(&segments);
            a.ring();
            let cqe = a.cq.wait();
            let error = cqe.as_error().expect("malformed");
            assert_eq!((error.syndrome, error.tail.wqe_counter.get()), (Syndrome::LOCAL_QP_OP_ERR, index));
            let found: Vec<Rule> = x.violations().iter().map(|violation| violation.rule).collect();
            assert_eq!(found, [Rule::Wqe]);
        };
        let nic = loopback_nic();
        run(&nic, &nic);
        run(&wire_nic(Config::default()), &wire_nic(Config::default()));
    }
}

fn ctrl(_: &Pe, index: u16, qpn: u32, opcode: Opcode, ds: u8) -> Segment {
    CtrlSeg::new(0, opcode, index, qpn, ds, Flags::SIGNALED, 0).to_segment()
}

#[test]
fn wqes_before_a_failure_complete_and_later_ones_are_flushed() {
    both(Setup::default(), |a, b| {
        let (rkey, lkey) = (b.key, a.key);
        let good = Wqe::WriteInline { raddr: 0, rkey, data: Inline::from_u32(1) };
        let expected = [
            (a.write(&good, Flags::SIGNALED), None),
            (a.write(&fetch_add(a, b), Flags::SIGNALED), None),
            (a.write(&write(rkey ^ 1, lkey), Flags::NONE), Some(Syndrome::REMOTE_ACCESS_ERR)),
            (a.write(&good, Flags::NONE), Some(Syndrome::WR_FLUSH_ERR)),
            (
                a.write(
                    &Wqe::MaskedCompareSwap64 {
                        raddr: 0,
                        rkey,
                        laddr: 0,
                        lkey,
                        compare: 0,
                        swap: 0,
                        compare_mask: 0,
                        swap_mask: 0,
                    },
                    Flags::NONE,
                ),
                Some(Syndrome::WR_FLUSH_ERR),
            ),
            (a.write(&good, Flags::SIGNALED), Some(Syndrome::WR_FLUSH_ERR)),
        ];
        a.ring();
        for (index, syndrome) in expected {
            let cqe = a.cq.wait();
            assert_eq!(cqe.as_error().map(|error| error.syndrome), syndrome);
            assert_eq!(cqe.tail.wqe_counter.get(), index);
        }
        assert!(a.cq.poll().is_none());
    });
}

#[test]
fn qp_error_does_not_affect_other_qps() {
    let nic = loopback_nic();
    let (mut a, b) = pair(&nic, &nic, Setup::default());
    let (mut c, d) = pair(&nic, &nic, Setup::default());
    let wqe = write(b.key ^ 1, a.key);
    assert_eq!(a.fail(&wqe), Syndrome::REMOTE_ACCESS_ERR);
    c.fill(0, &[7; 64]);
    c.run(&write(d.key, c.key));
    assert_eq!(d.bytes(0, 64), [7; 64]);
}

#[test]
fn to_error_flushes_posted_wqes() {
    both(Setup { log_rq: Some(2), ..Setup::default() }, |a, b| {
        a.run(&Wqe::WriteInline { raddr: 0, rkey: b.key, data: Inline::from_u32(1) });
        a.post_receive(0, 8);
        call(&a.context, &ToErr { qpn: a.qpn, ..ToErr::default() }).unwrap();
        assert_eq!(a.fail(&Wqe::Nop), Syndrome::WR_FLUSH_ERR);
        let cqe = a.recv_cq.wait();
        assert_eq!(cqe.as_error().map(|error| error.syndrome), Some(Syndrome::WR_FLUSH_ERR));
        assert_eq!(cqe.tail.op_own.opcode(), CqeOpcode::RESP_ERR);
    });
}
