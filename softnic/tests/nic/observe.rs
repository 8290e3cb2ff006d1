//! Tests of the observer: doorbells, WQEs, messages and packets.

use crate::script::{Pe, Setup, loopback_nic, pair, until, wire_nic};
use crate::services::{by_gid, run_to};
use rushmem_mlx5::prm::qp::ServiceType;
use rushmem_mlx5::wqe::Inline;
use rushmem_mlx5::{Flags, Opcode, Syndrome, Wqe};
use rushmem_softnic::{Config, Faults, Nic, Observation, Observer, RemoteAddress};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// An observer that keeps all observations.
#[derive(Default)]
struct Log(Mutex<Vec<(Instant, Observation)>>);

impl Observer for Log {
    fn observe(&self, at: Instant, observation: Observation) {
        self.0.lock().unwrap().push((at, observation));
    }
}

impl Log {
    fn of(nic: &Nic) -> Arc<Log> {
        let log = Arc::new(Log::default());
        nic.observe(Arc::clone(&log) as _);
        log
    }

    /// Returns all observations, after checking that their times are in order. The adapter must have been dropped.
    fn all(&self) -> Vec<Observation> {
        let made = self.0.lock().unwrap();
        assert!(made.is_sorted_by_key(|(at, _)| *at));
        for (at, observation) in &*made {
            if let Observation::Arrival { since, .. } = observation {
                assert!(since <= at);
            }
        }
        made.iter().map(|(_, observation)| *observation).collect()
    }

    /// Returns all observations as formatted by [`text`], in order.
    fn texts(&self) -> Vec<String> {
        self.all().iter().map(text).collect()
    }

    /// Returns how often each observation was made, by its [`text`].
    fn counts(&self) -> BTreeMap<String, u64> {
        let mut counts = BTreeMap::new();
        self.texts().into_iter().for_each(|text| *counts.entry(text).or_default() += 1);
        counts
    }
}

/// Formats an observation without QPNs and keys.
fn text(observation: &Observation) -> String {
    let at = |remote: Option<RemoteAddress>| remote.map_or("-".into(), |remote| remote.addr.to_string());
    match *observation {
        Observation::Doorbell { index, blocks, .. } => format!("doorbell {index} {blocks}"),
        Observation::WqeBegins { index, opcode, remote, bytes, .. } => {
            format!("begin {index} {opcode} {} {bytes}", at(remote))
        }
        Observation::WqeEnds { index, opcode, syndrome: None, .. } => format!("end {index} {opcode}"),
        Observation::WqeEnds { index, opcode, syndrome: Some(syndrome), .. } => {
            format!("end {index} {opcode} {syndrome:?}")
        }
        Observation::Cqe { .. } => "cqe".into(),
        Observation::Arrival { opcode, remote, bytes, .. } => {
            format!("arrival {opcode} {} {bytes}", at(remote))
        }
        Observation::PacketSent { psn, opcode, bytes, is_retransmission, .. } => {
            let again = if is_retransmission { " again" } else { "" };
            format!("sent {psn} {opcode} {bytes}{again}")
        }
        Observation::PacketReceived { psn, opcode, bytes, .. } => format!("received {psn} {opcode} {bytes}"),
        Observation::Nak { psn, reason, .. } => format!("nak {psn} {reason}"),
        Observation::Fault { kind, .. } => format!("fault {kind}"),
        _ => "another".into(),
    }
}

/// Posts a WRITE without CQE, an inline WRITE and an atomic with one doorbell, and waits for the last.
fn three_wqes(a: &mut Pe, b: &Pe) {
    let (rkey, laddr, lkey) = (b.key, 64, a.key);
    a.write(&Wqe::Write { raddr: 640, rkey, laddr, lkey, len: 3000 }, Flags::NONE);
    a.write(&Wqe::WriteInline { raddr: 8, rkey, data: Inline::from_u64(1) }, Flags::NONE);
    a.run(&Wqe::FetchAdd { raddr: 16, rkey, laddr, lkey, add: 1 });
}

#[test]
fn loopback_is_observed_in_order() {
    let nic = loopback_nic();
    let log = Log::of(&nic);
    let (mut a, b) = pair(&nic, &nic, Setup::default());
    three_wqes(&mut a, &b);
    drop(nic);
    let expected = [
        "doorbell 0 3",
        "begin 0 RDMA_WRITE 640 3000",
        "arrival RDMA_WRITE 640 3000",
        "end 0 RDMA_WRITE",
        "begin 1 RDMA_WRITE 8 8",
        "arrival RDMA_WRITE 8 8",
        "end 1 RDMA_WRITE",
        "begin 2 ATOMIC_FA 16 8",
        "arrival ATOMIC_FA 16 8",
        "end 2 ATOMIC_FA",
        "cqe",
    ];
    assert_eq!(log.texts(), expected);
    for observation in log.all() {
        match observation {
            Observation::Doorbell { qpn, .. }
            | Observation::WqeEnds { qpn, .. }
            | Observation::Cqe { qpn, .. } => assert_eq!(qpn, a.qpn),
            Observation::WqeBegins { qpn, peer, remote, .. } => {
                assert_eq!((qpn, peer, remote.unwrap().rkey), (a.qpn, None, b.key));
            }
            Observation::Arrival { qpn, remote, .. } => {
                assert_eq!((qpn, remote.unwrap().rkey), (b.qpn, b.key));
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn packets_are_observed_at_both_ends() {
    let (x, y) = (wire_nic(Config::default()), wire_nic(Config::default()));
    let (there, of_x, of_y) = (y.address(), Log::of(&x), Log::of(&y));
    let (mut a, b) = pair(&x, &y, Setup::default());
    three_wqes(&mut a, &b);
    drop((x, y));
    let only = |log: &Log, kinds: &[&str]| -> Vec<String> {
        let chosen = |text: &String| kinds.iter().any(|kind| text.starts_with(kind));
        log.texts().into_iter().filter(chosen).collect()
    };
    let sent = [
        "sent 0 RDMA_WRITE_FIRST 1024",
        "sent 1 RDMA_WRITE_MIDDLE 1024",
        "sent 2 RDMA_WRITE_LAST 952",
        "sent 3 RDMA_WRITE_ONLY 8",
        "sent 4 FETCH_ADD 0",
    ];
    assert_eq!(only(&of_x, &["sent"]), sent);
    assert_eq!(only(&of_y, &["received"]), sent.map(|text| text.replace("sent", "received")));
    let wqes = [
        "doorbell 0 3",
        "begin 0 RDMA_WRITE 640 3000",
        "begin 1 RDMA_WRITE 8 8",
        "begin 2 ATOMIC_FA 16 8",
        "end 0 RDMA_WRITE",
        "end 1 RDMA_WRITE",
        "end 2 ATOMIC_FA",
        "cqe",
    ];
    let mut found = only(&of_x, &["doorbell", "begin", "end", "cqe"]);
    // An early acknowledgement may complete a WQE before the next one starts.
    found.sort_by_key(|text| text.starts_with("end") || text == "cqe");
    assert_eq!(found, wqes);
    let arrivals = ["arrival RDMA_WRITE 640 3000", "arrival RDMA_WRITE 8 8", "arrival ATOMIC_FA 16 8"];
    assert_eq!(only(&of_y, &["arrival"]), arrivals);
    // Each arrival lies between its last packet and the answer.
    let of_y = of_y.texts();
    let place = |text: &str| of_y.iter().position(|found| found == text).unwrap();
    assert!(place("received 4 FETCH_ADD 0") < place(arrivals[2]));
    assert!(place(arrivals[2]) < place("sent 4 ATOMIC_ACKNOWLEDGE 0"));
    let begins = of_x.all().into_iter().filter_map(|observation| match observation {
        Observation::WqeBegins { peer, .. } => Some(peer),
        _ => None,
    });
    assert!(begins.clone().count() == 3 && begins.into_iter().all(|peer| peer == Some(there)));
}

#[test]
fn lost_packets_appear_as_retransmissions() {
    let faults = Faults { drop: 0.2, seed: 3, ..Faults::default() };
    let config = Config { faults, retransmit: Duration::from_millis(2), ..Config::default() };
    let (x, y) = (wire_nic(config.clone()), wire_nic(config));
    let (of_x, of_y) = (Log::of(&x), Log::of(&y));
    let (mut a, b) = pair(&x, &y, Setup::default());
    let (rkey, laddr, lkey) = (b.key, 0, a.key);
    for i in 0..60 {
        a.run(&Wqe::Write { raddr: 8 * i, rkey, laddr, lkey, len: 2000 });
    }
    // The acknowledgement of the last one may be lost and sent again.
    let stats = || x.stats();
    until("the counters", || {
        let before = stats();
        std::thread::sleep(Duration::from_millis(20));
        before == stats()
    });
    let (of_a, of_b) = (x.stats(), y.stats());
    drop((x, y));
    let sum = |log: &Log, what: &str| {
        let counts = log.counts();
        counts.iter().filter(|(text, _)| text.contains(what)).map(|(_, count)| count).sum::<u64>()
    };
    assert!(of_a.retransmitted > 0 && sum(&of_x, " again") == of_a.retransmitted, "{of_a:?}");
    assert!(of_a.faults > 0 && sum(&of_x, "fault drop") == of_a.faults);
    assert_eq!(sum(&of_y, "fault drop"), of_b.faults);
    assert_eq!((sum(&of_x, "begin"), sum(&of_x, "end "), sum(&of_x, "cqe")), (60, 60, 60));
    assert!(sum(&of_x, "nak") > 0 && sum(&of_x, "packet sequence error") == sum(&of_x, "nak"));
    let arrivals = of_y.counts();
    for i in 0..60 {
        assert_eq!(arrivals[&format!("arrival RDMA_WRITE {} 2000", 8 * i)], 1);
    }
}

/// Runs `body` between two QPs of one adapter, then of two adapters. Returns the observations of each run.
fn both(config: &Config, setup: &Setup, body: impl Fn(&mut Pe, &mut Pe)) -> Vec<BTreeMap<String, u64>> {
    let run = |x: Nic, y: Option<Nic>| {
        let to = y.as_ref().unwrap_or(&x);
        let log = Log::of(&x);
        to.observe(Arc::clone(&log) as _);
        let (mut a, mut b) = pair(&x, to, setup.clone());
        body(&mut a, &mut b);
        drop((x, y));
        let mut made = log.0.lock().unwrap();
        made.sort_by_key(|(at, _)| *at);
        drop(made);
        log.counts()
    };
    let one = run(Nic::start(config.clone()).unwrap(), None);
    vec![one, run(wire_nic(config.clone()), Some(wire_nic(config.clone())))]
}

#[test]
fn flushed_wqes_complete_without_starting() {
    let runs = both(&Config::default(), &Setup::default(), |a, b| {
        let data = Inline::from_u64(1);
        a.write(&Wqe::WriteInline { raddr: 0, rkey: b.key ^ 0x100, data }, Flags::NONE);
        a.write(&Wqe::Nop, Flags::NONE);
        a.post(&Wqe::Nop);
        (0..3).for_each(|_| assert!(a.cq.wait().as_error().is_some()));
    });
    let denied = Syndrome::REMOTE_ACCESS_ERR;
    for (counts, is_wire) in runs.iter().zip([false, true]) {
        assert_eq!(counts[&format!("end 0 RDMA_WRITE {denied:?}")], 1, "{counts:?}");
        for index in [1, 2] {
            assert_eq!(counts[&format!("end {index} NOP {:?}", Syndrome::WR_FLUSH_ERR)], 1, "{counts:?}");
        }
        assert!(!counts.keys().any(|text| text.starts_with("arrival")), "{counts:?}");
        assert_eq!(counts.contains_key("nak 0 remote access error"), is_wire, "{counts:?}");
    }
}

#[test]
fn a_receiver_that_is_not_ready_is_observed() {
    let setup = Setup { log_rq: Some(3), rnr_retry: 7, ..Setup::default() };
    let runs = both(&Config::default(), &setup, |a, b| {
        let (laddr, lkey) = (0, a.key);
        a.post(&Wqe::Send { laddr, lkey, len: 8 });
        std::thread::sleep(Duration::from_millis(5));
        b.post_receive(0, 100);
        assert!(a.cq.wait().as_error().is_none());
    });
    for counts in runs {
        assert!(counts.get("nak 0 receiver not ready").is_some_and(|count| *count > 0), "{counts:?}");
        for once in ["begin 0 SEND - 8", "arrival SEND - 8", "end 0 SEND"] {
            assert_eq!(counts[once], 1, "{counts:?}");
        }
    }
}

#[test]
fn faults_repeat_no_observation() {
    let faults = Faults {
        stall: 0.3,
        split: 0.3,
        late: 0.3,
        unordered: 0.3,
        posted: 0.3,
        skip_qp: 0.3,
        completion_delay: 0.3,
        ..Faults::default()
    };
    let config = Config { faults, ..Config::default() };
    let runs = both(&config, &Setup::default(), |a, b| {
        let (rkey, laddr, lkey) = (b.key, 0, a.key);
        for i in 0..50 {
            a.write(&Wqe::Write { raddr: 8 * i, rkey, laddr, lkey, len: 100 }, Flags::NONE);
            a.write(&Wqe::Read { raddr: 8 * i, rkey, laddr, lkey, len: 100 }, Flags::NONE);
            a.run(&Wqe::FetchAdd { raddr: 8 * i, rkey, laddr, lkey, add: 1 });
        }
    });
    for counts in runs {
        for i in 0..50 {
            let (write, read, add) = (3 * i, 3 * i + 1, 3 * i + 2);
            let once = [
                format!("begin {write} RDMA_WRITE {} 100", 8 * i),
                format!("arrival RDMA_WRITE {} 100", 8 * i),
                format!("end {write} RDMA_WRITE"),
                format!("begin {read} RDMA_READ {} 100", 8 * i),
                format!("end {read} RDMA_READ"),
                format!("begin {add} ATOMIC_FA {} 8", 8 * i),
                format!("arrival ATOMIC_FA {} 8", 8 * i),
                format!("end {add} ATOMIC_FA"),
            ];
            once.iter().for_each(|text| assert_eq!(counts.get(text), Some(&1), "{text}: {counts:?}"));
        }
        for kind in ["stall", "split", "late", "unordered", "skip_qp", "completion_delay"] {
            assert!(counts.contains_key(&format!("fault {kind}")), "{kind}: {counts:?}");
        }
    }
}

#[test]
fn datagrams_are_observed() {
    let setup = Setup { service: ServiceType::UD, log_rq: Some(3), ..Setup::default() };
    let runs = both(&Config::default(), &setup, |a, b| {
        b.post_receive(0, 100);
        run_to(a, by_gid(b), 7, None);
        b.recv_cq.wait();
    });
    for (counts, is_wire) in runs.iter().zip([false, true]) {
        for once in ["arrival SEND - 7", "end 0 SEND"] {
            assert_eq!(counts[once], 1, "{counts:?}");
        }
        assert!(counts.keys().any(|text| text.starts_with(&format!("begin 0 {}", Opcode::SEND))));
        assert_eq!(counts.contains_key("sent 0 SEND_ONLY 7"), is_wire, "{counts:?}");
        assert_eq!(counts.contains_key("received 0 SEND_ONLY 7"), is_wire, "{counts:?}");
    }
}
