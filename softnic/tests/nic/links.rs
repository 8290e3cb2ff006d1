//! Tests of link MTUs and addresses, in a network namespace created by the test.
//!
//! Covers links that cannot carry the requested path MTU, adapters that share an address, and addresses with LIDs.

use crate::script::{Pe, Setup, call, pair, pattern, wire_nic};
use rushmem_mlx5::prm::qp::{AddressPath, Mtu};
use rushmem_mlx5::wqe::Inline;
use rushmem_mlx5::{Syndrome, Wqe};
use rushmem_softnic::{Config, Ip, Nic, PACKET_TOO_LONG, reason};
use std::process::Command;
use std::time::{Duration, Instant};

/// Environment variable that is set when the test runs inside its network namespace.
const INSIDE: &str = "SOFTNIC_TEST_INSIDE";

#[test]
fn links_and_addresses_in_a_namespace() {
    if std::env::var_os(INSIDE).is_some() {
        short_link();
        shared_address();
        strangers();
        return shrunken_link();
    }
    let test = "links::links_and_addresses_in_a_namespace";
    let program = std::env::current_exe().expect("a test has a program");
    let namespace = |script: &str| {
        let mut unshare = Command::new("unshare");
        unshare.args(["--map-root-user", "--net", "sh", "-c", script]).arg(&program).arg(test);
        unshare.env(INSIDE, "1").output()
    };
    let short =
        "ip link set lo mtu 1500 up && ip addr add 10.9.9.1/32 dev lo && ip addr add 10.9.9.2/32 dev lo";
    if !namespace(short).is_ok_and(|output| output.status.success()) {
        assert!(std::env::var_os("CI_REQUIRE_ALL").is_none(), "network namespaces are required here");
        println!("SKIPPED {test}: no network namespace can be made (unshare, ip)");
        return;
    }
    let output = namespace(&format!("{short} && exec \"$0\" --exact \"$1\"")).expect("it worked just now");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

fn by_udp() -> Config {
    Config { shared_memory: false, ..Config::default() }
}

/// Connects a QP with an address path that `change` has modified.
fn connect_by(from: &Pe, to: &Pe, change: impl FnOnce(AddressPath) -> AddressPath) {
    from.to_init();
    let mut command = from.init2rtr(to);
    command.context.primary_address_path = change(command.context.primary_address_path);
    call(&from.context, &command).unwrap();
    from.to_rts();
}

fn short_link() {
    let (x, y) = (wire_nic(by_udp()), wire_nic(by_udp()));
    assert_eq!(x.path_mtu(*y.address().ip()), Some(1024));
    let (mut a, b) = pair(&x, &y, Setup { mtu: Mtu::B4096, ..Setup::default() });
    assert_eq!((a.query().mtu, b.query().mtu), (Mtu::B1024, Mtu::B1024));
    let data = pattern(100_000, 1);
    a.fill(0, &data);
    a.run(&Wqe::Write { raddr: 8, rkey: b.key, laddr: 0, lkey: a.key, len: 100_000 });
    assert!(b.bytes(8, 100_000) == data);
    a.run(&Wqe::Read { raddr: 8, rkey: b.key, laddr: 200_000, lkey: a.key, len: 100_000 });
    assert!(a.bytes(200_000, 100_000) == data);
    assert_eq!((x.stats().send_failures, y.stats().send_failures), (0, 0));
}

/// Checks that a second adapter on the same address outside 127/8 takes the next port, and that its MAC address
/// contains the port.
fn shared_address() {
    let nic = || Nic::start(Config { ip: Ip::Addr([10, 9, 9, 1].into()), ..Config::default() }).unwrap();
    let (x, y) = (nic(), nic());
    assert_eq!([x.address().port(), y.address().port()], [4791, 4792]);
    assert_eq!((x.gid(), x.mac()[5].wrapping_add(1)), (y.gid(), y.mac()[5]));
    let (mut a, mut b) = pair(&x, &y, Setup::default());
    a.run(&Wqe::WriteInline { raddr: 0, rkey: b.key, data: Inline::from_u32(7) });
    b.run(&Wqe::WriteInline { raddr: 0, rkey: a.key, data: Inline::from_u32(8) });
    assert_eq!((a.heap.load_u32(0), b.heap.load_u32(0)), (8, 7));
}

/// Checks that adapters on different addresses recognize each other as software adapters, so several packets share a
/// message.
fn strangers() {
    let nic = |last| Nic::start(Config { ip: Ip::Addr([10, 9, 9, last].into()), ..by_udp() }).unwrap();
    let (x, y) = (nic(1), nic(2));
    let (mut a, b) = (Pe::new(&x, Setup::default()), Pe::new(&y, Setup::default()));
    for (from, to) in [(&a, &b), (&b, &a)] {
        connect_by(from, to, |path| AddressPath { rmac: [0; 6], ..path });
    }
    let data = pattern(100_000, 3);
    a.fill(0, &data);
    let write = Wqe::Write { raddr: 8, rkey: b.key, laddr: 0, lkey: a.key, len: 100_000 };
    let end = Instant::now() + Duration::from_secs(30);
    while x.stats().segmented == 0 {
        assert!(Instant::now() < end, "each packet still travels alone");
        a.run(&write);
    }
    assert!(b.bytes(8, 100_000) == data);
}

/// Checks that the error of a QP names the cause if the link's MTU has decreased since the QP was connected.
fn shrunken_link() {
    let (x, y) = (wire_nic(by_udp()), wire_nic(by_udp()));
    let (mut a, b) = pair(&x, &y, Setup { ack_timeout: 12, ..Setup::default() });
    let put = |a: &Pe, len| Wqe::Write { raddr: 8, rkey: b.key, laddr: 0, lkey: a.key, len };
    a.run(&put(&a, 1024));
    let shrink = Command::new("ip").args(["link", "set", "lo", "mtu", "900"]).status().unwrap();
    assert!(shrink.success());
    a.run(&put(&a, 512));
    let wqe = put(&a, 1024);
    a.post(&wqe);
    let cqe = a.cq.wait();
    let error = cqe.as_error().expect("the packet does not fit");
    let found = (error.syndrome, error.vendor_err_synd);
    assert_eq!(found, (Syndrome::TRANSPORT_RETRY_EXC_ERR, PACKET_TOO_LONG));
}

#[test]
fn adapters_of_one_machine_connect_by_lid() {
    let (x, y) = (wire_nic(Config::default()), wire_nic(Config::default()));
    for to in [&x, &y] {
        let (mut a, b) = (Pe::new(&x, Setup::default()), Pe::new(to, Setup::default()));
        for (from, to, lid) in [(&a, &b, to.lid()), (&b, &a, x.lid())] {
            let rlid = lid.expect("127/8 has LIDs");
            connect_by(from, to, |_| AddressPath { rlid, ..AddressPath::default() });
        }
        a.run(&Wqe::WriteInline { raddr: 0, rkey: b.key, data: Inline::from_u32(77) });
        assert_eq!(b.heap.load_u32(0), 77);
        assert_eq!(x.stats().packets_sent != 0, to.lid() != x.lid(), "its own LID needs no packets");
    }
    let [a, b, high, low] = x.address().ip().octets();
    assert_eq!(([a, b], Some(u16::from_be_bytes([high, low]))), ([127, 64], x.lid()));
}

#[test]
fn multicast_and_unused_lids_are_refused() {
    let x = wire_nic(Config::default());
    let a = Pe::new(&x, Setup::default());
    a.to_init();
    let mut command = a.init2rtr(&a);
    for (rlid, says) in [(0xc000, "LID"), (0xffff, "LID"), (0, "GID")] {
        command.context.primary_address_path = AddressPath { rlid, ..AddressPath::default() };
        let refusal = call(&a.context, &command).unwrap_err();
        assert!(reason(refusal.syndrome).unwrap().contains(says), "{refusal}");
    }
    assert_eq!(Nic::start(Config::default()).unwrap().lid(), None, "127.0.0.1 has no LID");
}
