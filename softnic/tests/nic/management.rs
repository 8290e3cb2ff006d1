//! Tests of management datagrams between adapters.

use rushmem_softnic::{Config, Faults, Ip, MAD, Mad, Nic};
use std::net::Ipv4Addr;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(30);

/// Starts an adapter. Returns it with its address and the management datagrams that it receives.
fn adapter(faults: Faults) -> (Nic, Ipv4Addr, Receiver<Mad>) {
    let nic = Nic::start(Config { ip: Ip::AnyLoopback, faults, ..Config::default() }).unwrap();
    let ip = *nic.address().ip();
    let (sender, receiver) = channel();
    nic.on_mad(move |mad| sender.send(mad).unwrap());
    (nic, ip, receiver)
}

#[test]
fn datagrams_reach_other_adapters_and_their_own() {
    let (a, ip_a, of_a) = adapter(Faults::default());
    let (b, ip_b, of_b) = adapter(Faults::default());
    let bytes: [u8; MAD] = std::array::from_fn(|i| i as u8);
    let mad = |from| Mad { from, bytes: Box::new(bytes) };
    a.send_mad(ip_b, &bytes);
    assert_eq!(of_b.recv_timeout(TIMEOUT), Ok(mad(ip_a)));
    b.send_mad(ip_a, &bytes);
    assert_eq!(of_a.recv_timeout(TIMEOUT), Ok(mad(ip_b)));
    a.send_mad(ip_a, &bytes);
    assert_eq!(of_a.recv_timeout(TIMEOUT), Ok(mad(ip_a)));
    // A datagram is sent before the call returns, so it is not lost with its adapter.
    a.send_mad(ip_b, &bytes);
    drop(a);
    assert_eq!(of_b.recv_timeout(TIMEOUT), Ok(mad(ip_a)));
}

#[test]
fn faults_affect_management_datagrams() {
    let (a, _, _of_a) = adapter(Faults { drop: 1.0, ..Faults::default() });
    let (b, ip_b, of_b) = adapter(Faults { duplicate: 1.0, ..Faults::default() });
    a.send_mad(ip_b, &[1; MAD]);
    let (_c, ip_c, of_c) = adapter(Faults::default());
    b.send_mad(ip_c, &[2; MAD]);
    for _ in 0..2 {
        assert_eq!(of_c.recv_timeout(TIMEOUT).unwrap().bytes[0], 2);
    }
    assert!(of_b.try_recv().is_err());
}
