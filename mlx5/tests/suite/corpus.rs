//! Checks the parser against send entries that libmlx5 (Debian 12) wrote for ping-pong programs, perftest and a test
//! program of this project.
//!
//! The module `entries` describes the format. The suite `corpus` of `softnic/uverbs` regenerates the file.

use crate::entries::check;
use std::collections::BTreeSet;

const CORPUS: &str = include_str!("../data/libmlx5-entries.txt");

#[test]
fn every_entry_of_libmlx5_is_read_and_written_again() {
    let entries: Vec<String> = CORPUS.lines().filter_map(check).collect();
    assert!(entries.len() >= 400, "{} entries", entries.len());
    // The corpus has every kind of entry that libmlx5 writes for those programs.
    let kinds: BTreeSet<(&str, &str)> = entries
        .iter()
        .map(|entry| {
            let mut words = entry.split_whitespace();
            // "rc qp 0x100 [0x0] RDMA_WRITE ds 3 ..."
            (words.next().expect("a service"), words.nth(3).expect("an opcode"))
        })
        .collect();
    let expected = [
        ("dc", "ATOMIC_FA"),
        ("dc", "RDMA_READ"),
        ("dc", "RDMA_WRITE"),
        ("dc", "SEND"),
        ("rc", "ATOMIC_CS"),
        ("rc", "ATOMIC_FA"),
        ("rc", "RDMA_READ"),
        ("rc", "RDMA_WRITE"),
        ("rc", "RDMA_WRITE_IMM"),
        ("rc", "SEND"),
        ("rc", "SEND_IMM"),
        ("uc", "RDMA_WRITE"),
        ("uc", "RDMA_WRITE_IMM"),
        ("uc", "SEND"),
        ("uc", "SEND_IMM"),
        ("ud", "SEND"),
        ("ud", "SEND_IMM"),
    ];
    assert!(expected.iter().all(|kind| kinds.contains(kind)), "{kinds:?}");
}

#[test]
#[should_panic(expected = "SEND")]
fn an_entry_with_a_reserved_bit_is_not_written_again() {
    let line = "rc 0000 0000000a0001000200000008000000000000000800010000000055cf5c196000";
    assert!(check(line).is_some(), "as it is, it is");
    // The signature, which is zero in everything that we write.
    check(&line.replacen("00000008", "01000008", 1));
}
