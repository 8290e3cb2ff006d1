//! Tests of sleeping engines, and of notifications of changed memory.

use crate::script::{Pe, Setup, TIMEOUT};
use rushmem_mlx5::{Syndrome, Wqe};
use rushmem_softnic::{Config, Idle, Ip, Nic};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Starts an adapter whose engine sleeps indefinitely when it is idle.
fn sleeper(ip: Ip) -> Nic {
    let idle = Idle::Notified { max_sleep: Duration::from_secs(3600) };
    Nic::start(Config { ip, idle, ..Config::default() }).unwrap()
}

fn put(a: &Pe, b: &Pe) -> Wqe {
    Wqe::Write { raddr: 64, rkey: b.key, laddr: 0, lkey: a.key, len: 8 }
}

/// Counts the notifications of changed memory in the context of `pe`.
fn notices(pe: &Pe) -> Arc<AtomicU32> {
    let count = Arc::new(AtomicU32::new(0));
    let seen = Arc::clone(&count);
    pe.context.on_change(move || {
        seen.fetch_add(1, Ordering::Release);
    });
    count
}

fn wait_for(count: &AtomicU32) {
    let begin = Instant::now();
    while count.load(Ordering::Acquire) == 0 {
        assert!(begin.elapsed() < TIMEOUT, "no notice");
        std::thread::yield_now();
    }
}

#[test]
fn a_waker_and_packets_interrupt_the_sleep_and_notify_both_users() {
    for ip in [Ip::LoopbackOnly, Ip::AnyLoopback] {
        let (first, second) = (sleeper(ip), sleeper(ip));
        let (mut a, b) = match ip {
            Ip::LoopbackOnly => (Pe::new(&first, Setup::default()), Pe::new(&first, Setup::default())),
            _ => (Pe::new(&first, Setup::default()), Pe::new(&second, Setup::default())),
        };
        a.connect(&b);
        b.connect(&a);
        let counts = [notices(&a), notices(&b)];
        for _ in 0..20 {
            counts.iter().for_each(|count| count.store(0, Ordering::Release));
            a.post(&put(&a, &b));
            a.context.waker().wake();
            counts.iter().for_each(|count| wait_for(count));
            assert!(a.cq.wait().as_error().is_none());
            // Long enough for the engines to sleep again.
            std::thread::sleep(Duration::from_micros(200));
        }
    }
}

#[test]
fn commands_and_dropping_the_adapter_interrupt_the_sleep() {
    let nic = sleeper(Ip::LoopbackOnly);
    let mut pe = Pe::new(&nic, Setup { log_rq: Some(2), ..Setup::default() });
    pe.connect_to_itself();
    pe.post_receive(0, 8);
    pe.fail_now();
    let cqe = pe.recv_cq.wait();
    assert_eq!(cqe.as_error().map(|error| error.syndrome), Some(Syndrome::WR_FLUSH_ERR));
    drop(nic);
}
