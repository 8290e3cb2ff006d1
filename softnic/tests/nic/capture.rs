//! Tests that Wireshark decodes the packets in a capture file.

use crate::script::{Pe, QKEY, Setup, pair, wire_nic};
use crate::services::{by_gid, run_to};
use rushmem_mlx5::Wqe;
use rushmem_mlx5::prm::qp::ServiceType;
use rushmem_mlx5::wqe::Inline;
use rushmem_softnic::Config;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// A capture file that is removed on drop.
struct Capture(PathBuf);

impl Capture {
    fn new(name: &str) -> Capture {
        Capture(std::env::temp_dir().join(format!("softnic-{name}-{}.pcap", std::process::id())))
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        // The file may be gone already.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Executes every operation of a reliable connection between two adapters, and captures their packets.
fn capture_everything(name: &str) -> Capture {
    let capture = Capture::new(name);
    // On a busy machine, a retransmission would add a packet.
    let config = Config { retransmit: Duration::from_secs(5), ..Config::default() };
    let x = wire_nic(Config { capture: Some(capture.0.clone()), ..config.clone() });
    let y = wire_nic(config);
    let (mut a, mut b) = pair(&x, &y, Setup { log_rq: Some(3), ..Setup::default() });
    for _ in 0..6 {
        b.post_receive(100_000, 5000);
    }
    let (raddr, rkey, laddr, lkey) = (64, b.key, 64, a.key);
    let all = u64::MAX;
    let ops = [
        Wqe::WriteInline { raddr, rkey, data: Inline::from_u8(1) },
        Wqe::Write { raddr, rkey, laddr, lkey, len: 3000 },
        Wqe::WriteImm { raddr, rkey, laddr, lkey, len: 30, imm: 0xcafe_0001 },
        Wqe::WriteImm { raddr, rkey, laddr, lkey, len: 1500, imm: 2 },
        Wqe::Read { raddr, rkey, laddr, lkey, len: 3001 },
        Wqe::Read { raddr, rkey, laddr, lkey, len: 5 },
        Wqe::Send { laddr, lkey, len: 2500 },
        Wqe::SendImm { laddr, lkey, len: 3, imm: 3 },
        Wqe::FetchAdd { raddr, rkey, laddr, lkey, add: 1 },
        Wqe::CompareSwap { raddr, rkey, laddr, lkey, compare: 1, swap: 2 },
        Wqe::MaskedFetchAdd32 { raddr, rkey, laddr, lkey, add: 1, boundary: 0 },
        Wqe::MaskedCompareSwap64 {
            raddr,
            rkey,
            laddr,
            lkey,
            compare: 0,
            swap: 5,
            compare_mask: all,
            swap_mask: all,
        },
        Wqe::Send { laddr, lkey, len: 4 },
        Wqe::SendImm { laddr, lkey, len: 1100, imm: 4 },
    ];
    for op in &ops {
        a.run(op);
    }
    a.fail(&Wqe::WriteInline { raddr, rkey: 0, data: Inline::from_u8(1) });
    capture
}

/// Returns whether tshark is installed. If it is missing, the test is skipped, or fails if tshark is required.
fn tshark_or_skip(test: &str) -> bool {
    let found = Command::new("tshark").arg("--version").output().is_ok_and(|output| output.status.success());
    if !found {
        assert!(std::env::var_os("CI_REQUIRE_ALL").is_none(), "tshark is required here");
        println!("SKIPPED {test}: tshark is not installed");
    }
    found
}

fn tshark(capture: &Capture, fields: &[&str]) -> Vec<Vec<String>> {
    let mut command = Command::new("tshark");
    command.arg("-r").arg(&capture.0).args(["-o", "udp.check_checksum:TRUE", "-T", "fields"]);
    // Ignores user preferences.
    let nowhere = std::env::temp_dir().join("no-preferences");
    command.env("HOME", &nowhere).env("XDG_CONFIG_HOME", &nowhere);
    // The payload must not be dissected.
    command.args(["-E", "separator=|", "--disable-protocol", "rpcordma"]);
    for field in fields {
        command.args(["-e", field]);
    }
    let output = command.output().expect("tshark runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().map(|line| line.split('|').map(str::to_owned).collect()).collect()
}

#[test]
fn tshark_decodes_every_packet() {
    if !tshark_or_skip("tshark_decodes_every_packet") {
        return;
    }
    let capture = capture_everything("decode");
    let fields = ["infiniband.bth.opcode", "_ws.malformed", "_ws.expert", "udp.dstport", "_ws.col.Info"];
    let packets = tshark(&capture, &fields);
    let mut seen = BTreeSet::new();
    for packet in &packets {
        assert_eq!(packet[1..4], ["", "", "4791"], "{packet:?}");
        seen.insert(packet[0].parse::<u8>().expect("an opcode"));
    }
    // All opcodes of a reliable connection, and the two of masked atomics.
    let expected: BTreeSet<u8> = (0..=0x14).chain([0xd4, 0xd5]).collect();
    assert_eq!(seen, expected);
    let last = &packets[packets.len() - 1][4];
    assert!(last.contains("Remote Access Error"), "{last}");
}

#[test]
fn tshark_reads_the_expected_values() {
    if !tshark_or_skip("tshark_reads_the_expected_values") {
        return;
    }
    let capture = capture_everything("values");
    let fields =
        ["infiniband.bth.opcode", "infiniband.reth.dmalen", "infiniband.immdt", "infiniband.bth.psn"];
    let packets = tshark(&capture, &fields);
    let of = |opcode: &str| packets.iter().filter(|packet| packet[0] == opcode).collect::<Vec<_>>();
    assert_eq!(of("6").iter().map(|packet| packet[1].as_str()).collect::<Vec<_>>(), ["3000", "1500"]);
    assert!(of("11")[0][2].contains("cafe0001"), "{:?}", of("11"));
    assert_eq!(of("12").iter().map(|packet| packet[1].as_str()).collect::<Vec<_>>(), ["3001", "5"]);
    // PSNs of requests are consecutive, except for the response packets of a READ.
    let requests = packets.iter().filter(|packet| !(13..=18).contains(&packet[0].parse::<u8>().unwrap()));
    let numbers: Vec<u32> = requests.map(|packet| packet[3].parse().unwrap()).collect();
    assert_eq!(numbers, [0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22]);
}

/// Executes every operation of the unreliable services between two adapters, and captures their packets.
fn capture_unreliable(name: &str) -> (Capture, Pe, Pe) {
    let capture = Capture::new(name);
    let x = wire_nic(Config { capture: Some(capture.0.clone()), ..Config::default() });
    let y = wire_nic(Config::default());
    let setup = |service| Setup { service, log_rq: Some(3), ..Setup::default() };
    let (mut a, mut b) = pair(&x, &y, setup(ServiceType::UC));
    for _ in 0..6 {
        b.post_receive(100_000, 5000);
    }
    let (raddr, rkey, laddr, lkey) = (64, b.key, 64, a.key);
    for len in [8, 3000] {
        a.run(&Wqe::Write { raddr, rkey, laddr, lkey, len });
        a.run(&Wqe::WriteImm { raddr, rkey, laddr, lkey, len, imm: 1 });
        a.run(&Wqe::Send { laddr, lkey, len });
        a.run(&Wqe::SendImm { laddr, lkey, len, imm: 1 });
    }
    let (mut a, mut b) = pair(&x, &y, setup(ServiceType::UD));
    for imm in [None, Some(0xcafe_0001)] {
        b.post_receive(0, 100);
        run_to(&mut a, by_gid(&b), 7, imm);
        b.recv_cq.wait();
    }
    (capture, a, b)
}

#[test]
fn tshark_decodes_unreliable_services() {
    if !tshark_or_skip("tshark_decodes_unreliable_services") {
        return;
    }
    let (capture, a, b) = capture_unreliable("unreliable");
    let fields = [
        "infiniband.bth.opcode",
        "_ws.malformed",
        "_ws.expert",
        "infiniband.bth.destqp",
        "infiniband.deth.q_key",
        "infiniband.deth.srcqp",
        "infiniband.immdt",
    ];
    let packets = tshark(&capture, &fields);
    let number = |text: &str| u32::from_str_radix(text.trim_start_matches("0x"), 16).expect("hexadecimal");
    let mut seen = BTreeSet::new();
    for packet in &packets {
        assert_eq!(packet[1..3], ["", ""], "{packet:?}");
        let opcode = packet[0].parse::<u8>().expect("an opcode");
        seen.insert(opcode);
        if opcode >= 0x60 {
            let expected = (b.qpn, QKEY, a.qpn);
            assert_eq!((number(&packet[3]), number(&packet[4]), number(&packet[5])), expected);
            assert_eq!(packet[6].contains("cafe0001"), opcode == 0x65, "{packet:?}");
        }
    }
    // Unreliable services send no acknowledgements.
    assert_eq!(seen, (0x20..=0x2b).chain([0x64, 0x65]).collect());
}
