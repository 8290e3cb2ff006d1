//! Tests of many busy queues, and of an idle adapter.

use crate::script::{Pe, Setup, pair, pattern, wire_nic};
use rushmem_mlx5::prm::qp::Mtu;
use rushmem_mlx5::{Flags, Wqe};
use rushmem_softnic::{Config, Faults, Nic};
use std::time::Duration;

/// Runs mixed operations of random size on eight connections in both directions, and checks every round.
fn many_queues(x: &Nic, y: &Nic, rounds: u64) {
    // PSNs start shortly before they wrap around.
    let setup = |i: u32| Setup {
        heap: 256 << 10,
        mtu: [Mtu::B256, Mtu::B1024, Mtu::B4096][i as usize % 3],
        ack_timeout: 17,
        psn: 0xff_ffff - 20 * i,
        ..Setup::default()
    };
    let mut pairs: Vec<(Pe, Pe)> = (0..8).map(|i| pair(x, y, setup(i))).collect();
    for round in 0..rounds {
        let mut sizes = Vec::new();
        for (i, (a, b)) in pairs.iter_mut().enumerate() {
            let seed = 100 * round + i as u64;
            let bits = pattern(16, seed + 1);
            let (there, back) = (1 + usize::from(bits[0]) * 200, 1 + usize::from(bits[1]) * 200);
            a.fill(0, &pattern(there, seed));
            b.fill(0, &pattern(back, seed + 50));
            let (key_a, key_b) = (a.key, b.key);
            for (from, rkey, len) in [(a, key_b, there), (b, key_a, back)] {
                let (lkey, len) = (from.key, len as u32);
                from.write(&Wqe::Write { raddr: 65_536, rkey, laddr: 0, lkey, len }, Flags::NONE);
                from.write(&Wqe::Read { raddr: 0, rkey, laddr: 131_072, lkey, len }, Flags::NONE);
                let (raddr, laddr) = (200_000, 200_008);
                from.write(&Wqe::FetchAdd { raddr, rkey, laddr, lkey, add: 3 }, Flags::SIGNALED);
                from.ring();
            }
            sizes.push((seed, there, back));
        }
        for ((a, b), (seed, there, back)) in pairs.iter_mut().zip(sizes) {
            assert!(a.cq.wait().as_error().is_none());
            assert!(b.cq.wait().as_error().is_none());
            let (forth, back_data) = (pattern(there, seed), pattern(back, seed + 50));
            assert!(b.bytes(65_536, there) == forth && a.bytes(65_536, back) == back_data);
            let least = there.min(back);
            assert!(
                a.bytes(131_072, least) == back_data[..least] && b.bytes(131_072, least) == forth[..least]
            );
            assert_eq!((a.heap.load_u64(200_000), b.heap.load_u64(200_000)), (3 * round + 3, 3 * round + 3));
        }
    }
    assert_eq!((x.violations(), y.violations()), (vec![], vec![]));
}

#[test]
fn many_queues_over_loopback() {
    let nic = Nic::start(Config::default()).unwrap();
    many_queues(&nic, &nic, 40);
}

#[test]
fn many_queues_over_the_wire() {
    many_queues(&wire_nic(Config::default()), &wire_nic(Config::default()), 25);
}

#[test]
fn many_queues_over_a_lossy_wire() {
    let config = |seed| Config {
        faults: Faults {
            seed,
            drop: 0.01,
            duplicate: 0.01,
            reorder: 0.02,
            corrupt: 0.01,
            ..Faults::default()
        },
        retransmit: Duration::from_millis(3),
        ..Config::default()
    };
    let (x, y) = (wire_nic(config(3)), wire_nic(config(4)));
    many_queues(&x, &y, 10);
    assert!(x.stats().faults > 0);
}

/// Returns the CPU time of the threads named `softnic-idle`, in nanoseconds.
fn engine_time() -> u64 {
    let tasks = std::fs::read_dir("/proc/self/task").expect("Linux");
    tasks
        .filter_map(|task| {
            let path = task.ok()?.path();
            let name = std::fs::read_to_string(path.join("comm")).ok()?;
            let spent = std::fs::read_to_string(path.join("schedstat")).ok()?;
            (name.trim() == "softnic-idle").then(|| spent.split(' ').next()?.parse::<u64>().ok())?
        })
        .sum()
}

#[test]
fn idle_adapter_uses_little_cpu() {
    let nic = wire_nic(Config { name: "softnic-idle".into(), ..Config::default() });
    let _pe = Pe::new(&nic, Setup::default());
    std::thread::sleep(Duration::from_millis(50));
    let before = engine_time();
    std::thread::sleep(Duration::from_millis(400));
    let spent = Duration::from_nanos(engine_time() - before);
    assert!(spent > Duration::ZERO, "the engine was not found");
    assert!(spent < Duration::from_millis(100), "{spent:?} of 400 ms");
}
