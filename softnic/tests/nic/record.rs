//! Tests of the log of executed commands and send WQEs.

use crate::script::{Setup, pair, wire_nic};
use crate::services::{by_gid, run_to};
use rushmem_mlx5::prm::cq::{CreateCq, CreateCqOut};
use rushmem_mlx5::prm::pd::{AllocPd, AllocPdOut};
use rushmem_mlx5::prm::qp::ServiceType;
use rushmem_mlx5::wqe::Inline;
use rushmem_mlx5::{Flags, Segment, Wqe};
use rushmem_softnic::{Config, Error, Nic, Numbers};

#[test]
fn logs_one_wqe_of_each_shape() {
    let path = std::env::temp_dir().join(format!("softnic-record-{}.txt", std::process::id()));
    let config = || Config { record: Some(path.clone()), ..Config::default() };
    let x = wire_nic(config());
    let peer = wire_nic(Config::default());
    let mut expected = Vec::new();
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    // Loopback and packets share the log, so equal shapes count once.
    for to in [&x, &peer] {
        let (mut a, b) = pair(&x, to, Setup::default());
        let entries = [
            Wqe::Nop,
            Wqe::WriteInline { raddr: 0, rkey: b.key, data: Inline::from_u32(1) },
            Wqe::WriteInline { raddr: 8, rkey: b.key, data: Inline::from_u32(2) },
            Wqe::WriteInline { raddr: 0, rkey: b.key, data: Inline::from_u64(1) },
            Wqe::Nop,
        ];
        for (i, entry) in entries.iter().enumerate() {
            let emitted = entry.emit(a.producer, a.qpn, Flags::SIGNALED);
            if matches!(i, 0 | 1 | 3) && expected.len() < 3 {
                let bytes = Segment::bytes_of(emitted.segments());
                expected.push(format!("rc {:04x} {}", a.producer, hex(bytes)));
            }
            a.run(entry);
        }
    }
    let (mut a, b) = pair(&x, &peer, Setup { service: ServiceType::UD, log_rq: Some(3), ..Setup::default() });
    for len in [8, 9] {
        run_to(&mut a, by_gid(&b), len, None);
    }
    drop(x);
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let is_wqe = |line: &&str| !line.starts_with('#') && !line.starts_with("command ");
    let lines: Vec<&str> = text.lines().filter(is_wqe).collect();
    assert_eq!(lines[..3], expected);
    assert!(lines.len() == 4 && lines[3].starts_with("ud 0000 0000000a"), "{text}");
}

#[test]
fn logs_commands_and_refusals() {
    let path = std::env::temp_dir().join(format!("softnic-commands-{}.txt", std::process::id()));
    let nic =
        Nic::start(Config { record: Some(path.clone()), numbers: Numbers::Lowest, ..Config::default() });
    let context = nic.unwrap().open();
    let run = |input: &[u8]| {
        let mut output = [0; 16];
        context.command(input, &mut output);
        output
    };
    let pd = AllocPdOut::decode(&run(&AllocPd { uid: 1 }.encode())).unwrap().pd;
    // The list after a mailbox is not logged.
    let mut long = CreateCq { umem_id: 7, umem_valid: true, ..CreateCq::default() }.encode().to_vec();
    long.extend([0xff; 64]);
    assert!(CreateCqOut::decode(&run(&long)).is_err());
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(lines[0], format!("command ALLOC_PD 08000001 {:0>24}", format!("{pd:x}")), "{text}");
    let words: Vec<&str> = lines[1].split(' ').collect();
    assert_eq!((words[1], words[2].len()), ("CREATE_CQ", 2 * 93), "{text}");
    assert!(!words[3].starts_with("00"), "{text}");
}

#[test]
fn error_names_an_unwritable_file() {
    let config = Config { record: Some("/no/such/folder/file".into()), ..Config::default() };
    match Nic::start(config) {
        Err(error @ Error::Record { .. }) => assert!(error.to_string().contains("/no/such/folder/file")),
        other => panic!("{:?}", other.err()),
    }
}
