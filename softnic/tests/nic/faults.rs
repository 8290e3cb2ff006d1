//! Tests of injected packet faults: lost packets are resent, corrupted packets are dropped, and no request executes
//! twice.

use crate::script::{Pe, Setup, pair, pattern, until, wire_nic};
use rushmem_mlx5::prm::qp::Mtu;
use rushmem_mlx5::wqe::Inline;
use rushmem_mlx5::{Flags, Syndrome, Wqe};
use rushmem_softnic::{Config, Event, Faults, Health, Nic};
use std::time::{Duration, Instant};

fn faulty(faults: Faults) -> Config {
    Config { faults, retransmit: Duration::from_millis(2), ..Config::default() }
}

/// Runs WRITEs, READs and atomics under faults in both directions, and checks that each takes effect exactly once.
fn survives(name: &str, faults: Faults) -> (Nic, Nic) {
    let there = faulty(Faults { seed: 11, ..faults.clone() });
    let back = faulty(Faults { seed: 12, ..faults });
    let (x, y) = (wire_nic(there), wire_nic(back));
    let setup = Setup { mtu: Mtu::B256, ack_timeout: 16, log_rq: Some(4), ..Setup::default() };
    let (mut a, mut b) = pair(&x, &y, setup);
    for round in 0..12u64 {
        let len = 1 + 4_000 * round as usize;
        let data = pattern(len, round);
        a.fill(0, &data);
        b.post_receive(700_000, 60_000);
        let (rkey, lkey) = (b.key, a.key);
        let ops = [
            Wqe::Write { raddr: 100_000, rkey, laddr: 0, lkey, len: len as u32 },
            Wqe::FetchAdd { raddr: 8, rkey, laddr: 400_000, lkey, add: 1 },
            Wqe::Read { raddr: 100_000, rkey, laddr: 200_000, lkey, len: len as u32 },
            Wqe::MaskedFetchAdd32 { raddr: 16, rkey, laddr: 400_008, lkey, add: 1, boundary: 0 },
            Wqe::Send { laddr: 0, lkey, len: len as u32 },
        ];
        for op in &ops {
            a.write(op, Flags::SIGNALED);
        }
        a.ring();
        for op in &ops {
            let cqe = a.cq.wait();
            assert!(cqe.as_error().is_none(), "{name}, round {round}, {op:?}: {cqe:?}");
        }
        assert_eq!(b.recv_cq.wait().byte_cnt.get(), len as u32);
        assert!(b.bytes(100_000, len) == data, "{name}: WRITE");
        assert!(a.bytes(200_000, len) == data, "{name}: READ");
        assert!(b.bytes(700_000, len) == data, "{name}: SEND");
        assert_eq!(a.heap.load_u64(400_000), round, "{name}: an atomic ran twice, or not");
        assert_eq!((b.heap.load_u64(8), b.heap.load_u32(16)), (round + 1, round as u32 + 1), "{name}");
    }
    assert!(x.stats().faults + y.stats().faults > 0, "{name}: no fault happened");
    (x, y)
}

#[test]
fn loss() {
    let (x, y) = survives("drop", Faults { drop: 0.05, ..Faults::default() });
    assert!(x.stats().retransmitted + y.stats().retransmitted > 0);
}

#[test]
fn only_lost_packets_are_sent_again() {
    for shared_memory in [true, false] {
        let faults = Faults { drop: 0.02, ..Faults::default() };
        // A busy machine delays acknowledgements, but not by this much.
        let config =
            Config { faults, shared_memory, retransmit: Duration::from_secs(2), ..Config::default() };
        let (x, y) = (wire_nic(config), wire_nic(Config { shared_memory, ..Config::default() }));
        let (mut a, b) = pair(&x, &y, Setup { mtu: Mtu::B256, ack_timeout: 20, ..Setup::default() });
        let data = pattern(500_000, 1);
        a.fill(0, &data);
        for _ in 0..4 {
            a.run(&Wqe::Write { raddr: 8, rkey: b.key, laddr: 0, lkey: a.key, len: 500_000 });
            assert!(b.bytes(8, 500_000) == data);
        }
        let (x, y) = (x.stats(), y.stats());
        assert!(x.faults > 80 && y.out_of_order > x.faults, "{x:?} {y:?}");
        assert!(x.retransmitted < 2 * x.faults, "{x:?}");
    }
}

#[test]
fn only_lost_data_is_asked_for_again() {
    for shared_memory in [true, false] {
        let config = Config { shared_memory, retransmit: Duration::from_secs(2), ..Config::default() };
        let faults = Faults { drop: 0.02, ..Faults::default() };
        let (x, y) = (wire_nic(config.clone()), wire_nic(Config { faults, ..config }));
        let (mut a, b) = pair(&x, &y, Setup { mtu: Mtu::B256, ack_timeout: 20, ..Setup::default() });
        let data = pattern(400_000, 1);
        b.fill(0, &data);
        let (rkey, lkey) = (b.key, a.key);
        for round in 0..4 {
            a.write(&Wqe::Read { raddr: 0, rkey, laddr: 500_000, lkey, len: 400_000 }, Flags::NONE);
            // Each of these waits for its answer, but no message after it does.
            for i in 0..40 {
                a.write(&Wqe::FetchAdd { raddr: 600_000, rkey, laddr: 8 * i, lkey, add: 1 }, Flags::NONE);
            }
            a.run(&Wqe::Read { raddr: 0, rkey, laddr: 500_000, lkey, len: 64 });
            assert!(a.bytes(500_000, 400_000) == data);
            assert_eq!(b.heap.load_u64(600_000), 40 * (round + 1), "an atomic ran twice, or not");
            let old: Vec<u64> = (0..40).map(|i| a.heap.load_u64(8 * i as usize)).collect();
            assert_eq!(old, (40 * round..40 * (round + 1)).collect::<Vec<u64>>());
        }
        let (x, y) = (x.stats(), y.stats());
        assert!(y.faults > 80 && x.retransmitted > 0, "{x:?} {y:?}");
        assert!(x.retransmitted < 2 * y.faults && x.stale < y.faults, "{x:?} {y:?}");
    }
}

#[test]
fn duplication() {
    let (x, y) = survives("duplicate", Faults { duplicate: 0.3, ..Faults::default() });
    assert!(x.stats().duplicates + y.stats().duplicates > 0);
}

#[test]
fn reordering() {
    let (x, y) = survives("reorder", Faults { reorder: 0.1, ..Faults::default() });
    assert!(x.stats().out_of_order + y.stats().out_of_order > 0);
}

#[test]
fn corruption() {
    let (x, y) = survives("corrupt", Faults { corrupt: 0.05, ..Faults::default() });
    assert!(x.stats().dropped + y.stats().dropped > 0, "broken packets must be noticed");
}

#[test]
fn delay() {
    let delay_time = Duration::from_millis(3);
    survives("delay", Faults { delay: 0.05, delay_time, ..Faults::default() });
}

#[test]
fn all_packet_faults_together() {
    survives(
        "all",
        Faults {
            drop: 0.02,
            duplicate: 0.02,
            reorder: 0.02,
            corrupt: 0.02,
            delay: 0.02,
            stall: 0.1,
            stall_time: Duration::from_micros(500),
            split: 0.5,
            late: 0.3,
            late_time: Duration::from_micros(500),
            ..Faults::default()
        },
    );
}

#[test]
fn black_hole_causes_a_timely_error() {
    let y = wire_nic(Config::default());
    let hole = Faults { black_hole: vec![*y.address().ip()], ..Faults::default() };
    let x = wire_nic(faulty(hole));
    // 4.096 us * 2^13, four times: 134 ms.
    let (mut a, b) = pair(&x, &y, Setup { ack_timeout: 13, retry_count: 3, ..Setup::default() });
    let start = Instant::now();
    let wqe = Wqe::WriteInline { raddr: 0, rkey: b.key, data: Inline::from_u32(1) };
    assert_eq!(a.fail(&wqe), Syndrome::TRANSPORT_RETRY_EXC_ERR);
    assert!(start.elapsed() >= Duration::from_millis(134));
    assert!(start.elapsed() < Duration::from_millis(1500), "{:?}", start.elapsed());
    assert!(x.stats().retransmitted > 1, "it tries more than once");
}

#[test]
fn late_completions_keep_their_order() {
    let completion_delay_time = Duration::from_micros(500);
    let faults = Faults { completion_delay: 0.3, completion_delay_time, ..Faults::default() };
    let nic = Nic::start(Config { faults, ..Config::default() }).unwrap();
    let (mut a, b) = pair(&nic, &nic, Setup::default());
    let expected: Vec<u16> = (0..40)
        .map(|i| {
            a.write(&Wqe::WriteInline { raddr: 0, rkey: b.key, data: Inline::from_u32(i) }, Flags::SIGNALED)
        })
        .collect();
    let bad = a.write(&Wqe::Dump { laddr: 0, lkey: 0, len: 1 }, Flags::NONE);
    a.ring();
    let got: Vec<u16> = expected.iter().map(|_| a.cq.wait().tail.wqe_counter.get()).collect();
    assert_eq!(got, expected);
    let cqe = a.cq.wait();
    assert!(cqe.as_error().is_some() && cqe.tail.wqe_counter.get() == bad);
    assert!(nic.stats().faults > 0);
}

#[test]
fn skipped_queues_are_resumed() {
    let faults = Faults { skip_qp: 0.9, ..Faults::default() };
    let nic = Nic::start(Config { faults, ..Config::default() }).unwrap();
    let mut pairs: Vec<(Pe, Pe)> = (0..4).map(|_| pair(&nic, &nic, Setup::default())).collect();
    for i in 0..50 {
        for (a, b) in &mut pairs {
            a.post(&Wqe::WriteInline { raddr: 0, rkey: b.key, data: Inline::from_u32(i) });
        }
        for (a, b) in &mut pairs {
            assert!(a.cq.wait().as_error().is_none());
            assert_eq!(b.heap.load_u32(0), i);
        }
    }
    assert!(nic.stats().faults > 0);
}

#[test]
fn nothing_is_resent_without_faults() {
    let (x, y) = (wire_nic(Config::default()), wire_nic(Config::default()));
    let (mut a, b) = pair(&x, &y, Setup::default());
    for i in 0..200 {
        a.run(&Wqe::WriteInline { raddr: 0, rkey: b.key, data: Inline::from_u32(i) });
    }
    assert_eq!((x.stats().faults, x.stats().dropped, y.stats().dropped), (0, 0, 0));
    assert_eq!(y.stats().out_of_order, 0);
}

/// Returns two connected QPs without posted work, with their adapters. The first adapter injects these faults.
fn ends(faults: Faults) -> ((Nic, Pe), (Nic, Pe)) {
    let (x, y) = (wire_nic(faulty(faults)), wire_nic(Config::default()));
    let (a, b) = pair(&x, &y, Setup { ack_timeout: 12, ..Setup::default() });
    ((x, a), (y, b))
}

fn put(a: &Pe, b: &Pe) -> Wqe {
    Wqe::Write { raddr: 8, rkey: b.key, laddr: 0, lkey: a.key, len: 64 }
}

#[test]
fn a_port_falls_and_returns_with_events() {
    let faults = Faults {
        port_falls: Some(Duration::ZERO),
        port_returns: Some(Duration::from_millis(30)),
        ..Faults::default()
    };
    let ((x, mut a), (_y, b)) = ends(faults);
    until("the port to fall", || x.stats().faults > 0);
    // The QP's retries cover the time without a port.
    a.run(&put(&a, &b));
    let expected = [Event::Port { is_up: false }, Event::Port { is_up: true }];
    assert_eq!(a.context.failures(), expected);
    assert_eq!((a.context.failures(), b.context.failures()), (vec![], vec![]));
    assert_eq!(x.health(), Health::default());
}

#[test]
fn a_failed_port_carries_nothing() {
    for (faults, event) in [
        (Faults { port_falls: Some(Duration::ZERO), ..Faults::default() }, Event::Port { is_up: false }),
        (Faults { address_leaves: Some(Duration::ZERO), ..Faults::default() }, Event::AddressLost),
        (Faults { device_fails: Some(Duration::ZERO), ..Faults::default() }, Event::DeviceFailed),
    ] {
        let ((x, mut a), (_y, b)) = ends(faults);
        until("the failure", || x.health() != Health::default());
        a.post(&put(&a, &b));
        let error = a.cq.wait().as_error().map(|error| error.syndrome);
        assert_eq!(error, Some(Syndrome::TRANSPORT_RETRY_EXC_ERR), "{event:?}");
        assert_eq!(a.context.failures(), [event]);
    }
}

#[test]
fn a_failed_cq_takes_no_completions() {
    let ((x, mut a), (_y, b)) = ends(Faults { cqs_fail: Some(Duration::ZERO), ..Faults::default() });
    until("the failure", || x.stats().faults > 0);
    a.post(&put(&a, &b));
    until("the events", || x.stats().doorbells > 0);
    let syndrome = Syndrome::LOCAL_QP_OP_ERR;
    assert_eq!(
        a.context.failures(),
        [Event::CqError { cqn: a.cqn }, Event::QpError { qpn: a.qpn, syndrome }]
    );
    assert_eq!(x.stats().cqes, 0);
}
