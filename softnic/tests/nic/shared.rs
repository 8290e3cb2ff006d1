//! Tests of shared memory between adapters of one machine: processes, a killed peer, faults, captures, and UDP instead.

use crate::script::{Pe, Setup, call, pair, pattern, until, wire_nic};
use rushmem_mlx5::prm::qp::{AddressPath, Init2Rtr};
use rushmem_mlx5::wqe::Inline;
use rushmem_mlx5::{Syndrome, Wqe};
use rushmem_softnic::{Config, Faults, Nic, Stats};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Environment variable that is set for the child process of a test.
const CHILD: &str = "SOFTNIC_TEST_CHILD";
/// Environment variable that is set for tests that run once more over UDP.
pub(crate) const BY_UDP: &str = "SOFTNIC_TEST_UDP";

fn by_udp() -> Config {
    Config { shared_memory: false, ..Config::default() }
}

/// Runs a WRITE and a READ of `len` bytes, and checks the data.
fn exchange(a: &mut Pe, b: &Pe, len: u32) {
    let data = pattern(len as usize, 7);
    a.fill(0, &data);
    a.run(&Wqe::Write { raddr: 8, rkey: b.key, laddr: 0, lkey: a.key, len });
    assert!(b.bytes(8, len as usize) == data);
    a.run(&Wqe::Read { raddr: 8, rkey: b.key, laddr: 400_000, lkey: a.key, len });
    assert!(a.bytes(400_000, len as usize) == data);
}

fn all_shared(stats: Stats) -> bool {
    stats.packets_sent != 0
        && (stats.shared_sent, stats.shared_received) == (stats.packets_sent, stats.packets_received)
}

#[test]
fn adapters_of_a_machine_use_no_sockets() {
    let (x, y) = (wire_nic(Config::default()), wire_nic(Config::default()));
    // On a busy machine, the peer may take unusually long to acknowledge.
    let (mut a, b) = pair(&x, &y, Setup { ack_timeout: 0, ..Setup::default() });
    exchange(&mut a, &b, 300_000);
    assert!(all_shared(x.stats()) && all_shared(y.stats()), "{:?} {:?}", x.stats(), y.stats());
    assert_eq!((x.stats().retransmitted, y.stats().out_of_order), (0, 0));
}

#[test]
fn an_adapter_without_shared_memory_gets_its_packets_by_udp() {
    for (of_x, of_y) in [(Config::default(), by_udp()), (by_udp(), Config::default())] {
        let (x, y) = (wire_nic(of_x), wire_nic(of_y));
        let (mut a, b) = pair(&x, &y, Setup::default());
        exchange(&mut a, &b, 300_000);
        assert_eq!(y.stats().dropped, 0);
        assert!(x.stats().shared_sent == 0 || x.stats().shared_received == 0);
    }
}

#[test]
fn the_other_tests_pass_over_udp() {
    if std::env::var_os(BY_UDP).is_some() {
        return;
    }
    let filters = ["operations::", "faults::", "services::", "errors::", "ordering::", "capture::"];
    let mut tests = Command::new(std::env::current_exe().expect("a test has a program"));
    let output = tests.args(filters).env(BY_UDP, "1").output().expect("it can run");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && !text.contains(" 0 passed"), "{text}");
}

#[test]
fn faults_act_on_packets_in_shared_memory() {
    for (name, faults) in [
        ("drop", Faults { drop: 0.05, ..Faults::default() }),
        ("corrupt", Faults { corrupt: 0.05, ..Faults::default() }),
        ("reorder", Faults { reorder: 0.05, ..Faults::default() }),
        ("delay", Faults { delay: 0.05, ..Faults::default() }),
    ] {
        let config = Config { faults, retransmit: Duration::from_millis(2), ..Config::default() };
        let (x, y) = (wire_nic(config), wire_nic(Config::default()));
        let (mut a, b) = pair(&x, &y, Setup { ack_timeout: 16, ..Setup::default() });
        exchange(&mut a, &b, 300_000);
        assert!(x.stats().faults > 0 && x.stats().shared_sent > 0, "{name}");
        // The receiver detects each flipped bit.
        assert_eq!(y.stats().dropped > 0, name == "corrupt", "{name}");
    }
}

/// Adapters do not know each other's settings: one captures packets that the other has not sealed.
#[test]
fn a_capture_at_one_side_holds_all_packets() {
    let path = std::env::temp_dir().join(format!("softnic-shared-{}.pcap", std::process::id()));
    let x = wire_nic(Config::default());
    let y = wire_nic(Config { capture: Some(path.clone()), ..Config::default() });
    let (mut a, b) = pair(&x, &y, Setup::default());
    exchange(&mut a, &b, 100_000);
    let packets = y.stats().packets_sent + y.stats().packets_received;
    assert!(all_shared(y.stats()), "{:?}", y.stats());
    drop(y);
    let file = std::fs::read(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let mut rest = &file[24..];
    let mut count = 0;
    while let Some((header, tail)) = rest.split_at_checked(16) {
        let len = u32::from_le_bytes([header[8], header[9], header[10], header[11]]) as usize;
        let (packet, tail) = tail.split_at(len);
        // The invariant CRC is stored least significant byte first, so the CRC over everything is a constant.
        assert_eq!(crc_of(packet), 0xdebb_20e3, "packet {count}");
        (rest, count) = (tail, count + 1);
    }
    assert_eq!(count, packets);
}

/// Returns the CRC register after a captured packet including its CRC, with ones in place of the fields that may change
/// in transit.
fn crc_of(packet: &[u8]) -> u32 {
    let mut bytes = vec![0xff; 8];
    bytes.extend_from_slice(packet);
    for masked in [8 + 1, 8 + 8, 8 + 10, 8 + 11, 8 + 26, 8 + 27, 8 + 28 + 4] {
        bytes[masked] = 0xff;
    }
    bytes.iter().fold(u32::MAX, |register, byte| {
        (0..8).fold(register ^ u32::from(*byte), |bits, _| {
            if bits & 1 == 1 { bits >> 1 ^ 0xedb8_8320 } else { bits >> 1 }
        })
    })
}

/// What a QP in another process needs to know to connect to this QP.
struct Other {
    qpn: u32,
    key: u32,
    gid: [u8; 16],
    mac: [u8; 6],
}

impl Other {
    fn of(pe: &Pe) -> Other {
        Other { qpn: pe.qpn, key: pe.key, gid: pe.gid, mac: pe.mac }
    }

    fn line(&self) -> String {
        let numbers = [u128::from(self.qpn), u128::from(self.key), u128::from_be_bytes(self.gid)];
        let [a, b, c, d, e, f] = self.mac;
        let mac = u64::from_be_bytes([0, 0, a, b, c, d, e, f]);
        format!("peer {} {} {} {mac}\n", numbers[0], numbers[1], numbers[2])
    }

    fn parse(line: &str) -> Option<Other> {
        let mut words = line.trim().strip_prefix("peer ")?.split(' ');
        let (qpn, key) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        let gid = words.next()?.parse::<u128>().ok()?.to_be_bytes();
        let [_, _, a, b, c, d, e, f] = words.next()?.parse::<u64>().ok()?.to_be_bytes();
        Some(Other { qpn, key, gid, mac: [a, b, c, d, e, f] })
    }

    /// Reads the output of a test process up to the line that describes its QP.
    fn read(lines: &mut impl BufRead) -> Other {
        let mut line = String::new();
        loop {
            line.clear();
            assert_ne!(lines.read_line(&mut line).unwrap(), 0, "the other process says nothing");
            // The test harness may have printed something on the same line.
            if let Some(other) = line.find("peer ").and_then(|at| Other::parse(&line[at..])) {
                return other;
            }
        }
    }
}

fn connect(pe: &Pe, other: &Other) {
    pe.to_init();
    let mut command: Init2Rtr = pe.init2rtr(pe);
    command.context.remote_qpn = other.qpn;
    let path = command.context.primary_address_path;
    command.context.primary_address_path = AddressPath { rgid_rip: other.gid, rmac: other.mac, ..path };
    call(&pe.context, &command).unwrap();
    pe.to_rts();
}

/// A child process that keeps writing to the heap of its peer.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // It may have exited already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn child() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let nic = wire_nic(Config::default());
    let mut b = Pe::new(&nic, Setup { ack_timeout: 16, ..Setup::default() });
    print!("{}", Other::of(&b).line());
    std::io::stdout().flush().unwrap();
    let other = Other::read(&mut std::io::stdin().lock());
    connect(&b, &other);
    for count in 1.. {
        let wqe = Wqe::WriteInline { raddr: 900_000, rkey: other.key, data: Inline::from_u32(count) };
        b.post(&wqe);
        if b.cq.wait().as_error().is_some() {
            // The peer has exited.
            return;
        }
    }
}

/// Starts the child process and connects a QP to the child's.
fn start(nic: &Nic) -> (Process, Pe, Other) {
    let mut command = Command::new(std::env::current_exe().expect("a test has a program"));
    command.args(["--exact", "shared::child", "--nocapture"]).env(CHILD, "1");
    let mut process = Process(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap());
    let a = Pe::new(nic, Setup { ack_timeout: 12, ..Setup::default() });
    let other = Other::read(&mut BufReader::new(process.0.stdout.take().unwrap()));
    connect(&a, &other);
    process.0.stdin.take().unwrap().write_all(Other::of(&a).line().as_bytes()).unwrap();
    (process, a, other)
}

#[test]
fn processes_exchange_packets_through_shared_memory() {
    let nic = wire_nic(Config::default());
    let (_process, mut a, other) = start(&nic);
    a.fill(0, &pattern(200_000, 3));
    for _ in 0..20 {
        a.run(&Wqe::Write { raddr: 8192, rkey: other.key, laddr: 0, lkey: a.key, len: 200_000 });
    }
    a.run(&Wqe::Read { raddr: 8192, rkey: other.key, laddr: 300_000, lkey: a.key, len: 200_000 });
    assert!(a.bytes(300_000, 200_000) == pattern(200_000, 3));
    until("100 writes of the other process", || a.heap.load_u32(900_000) > 100);
    assert!(all_shared(nic.stats()), "{:?}", nic.stats());
}

#[test]
fn a_killed_process_harms_only_its_connections() {
    let nic = wire_nic(Config::default());
    let y = wire_nic(Config::default());
    let (mut process, mut a, other) = start(&nic);
    let (mut c, d) = pair(&nic, &y, Setup::default());
    until("some writes of the other process", || a.heap.load_u32(900_000) > 10);
    process.0.kill().unwrap();
    process.0.wait().unwrap();
    let wqe = Wqe::Write { raddr: 8192, rkey: other.key, laddr: 0, lkey: a.key, len: 200_000 };
    a.post(&wqe);
    let error = a.cq.wait().as_error().map(|error| error.syndrome);
    assert_eq!(error, Some(Syndrome::TRANSPORT_RETRY_EXC_ERR));
    exchange(&mut c, &d, 300_000);
    // A new process takes over.
    let (_process, a, _) = start(&nic);
    until("writes of the new process", || a.heap.load_u32(900_000) > 10);
}
