//! A link that carries less than the path MTU that drivers ask for, in a network namespace of the test's own.

use crate::script::{Setup, pair, pattern, wire_nic};
use rushmem_mlx5::Wqe;
use rushmem_mlx5::prm::qp::Mtu;
use rushmem_softnic::Config;
use std::process::Command;

/// Tells the test that it runs within the namespace.
const INSIDE: &str = "SOFTNIC_TEST_INSIDE";

#[test]
fn a_short_link_makes_short_packets() {
    if std::env::var_os(INSIDE).is_some() {
        return inside();
    }
    let test = "links::a_short_link_makes_short_packets";
    let program = std::env::current_exe().expect("a test has a program");
    let namespace = |script: &str| {
        let mut unshare = Command::new("unshare");
        unshare.args(["--map-root-user", "--net", "sh", "-c", script]).arg(&program).arg(test);
        unshare.env(INSIDE, "1").output()
    };
    let short = "ip link set lo mtu 1500 up";
    if !namespace(short).is_ok_and(|output| output.status.success()) {
        assert!(std::env::var_os("RUSHMEM_CI_REQUIRE").is_none(), "network namespaces are required here");
        println!("SKIPPED {test}: no network namespace can be made (unshare, ip)");
        return;
    }
    let output = namespace(&format!("{short} && exec \"$0\" --exact \"$1\"")).expect("it worked just now");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

fn inside() {
    let (x, y) = (wire_nic(Config::default()), wire_nic(Config::default()));
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
