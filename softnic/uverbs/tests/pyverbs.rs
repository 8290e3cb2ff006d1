//! rdma-core's own tests, which Debian installs with pyverbs. Client and server run in one process.
//!
//! `docs/softnic.md` lists what skipped tests lack. `UPDATE_DOCS=1 cargo test -p rushmem-uverbs --test pyverbs` writes
//! that part.

mod common;

use common::{Running, all_there, output_text, skip, softnic};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

/// Minimum number of tests that must pass, of 273. Others need features that this device or this machine lacks.
const MIN_PASSED: usize = 137;

/// Location of the tests in Debian's package, which compresses most of them.
const SUITE: &str = "/usr/share/doc/rdma-core/tests";

/// Seeds the suite's random choice of sizes and queue pairs.
const SEEDED: &str = "\
import os, random, runpy, sys
random.seed(1)
sys.argv = sys.argv[1:]
sys.path.insert(0, os.path.dirname(sys.argv[0]))
runpy.run_path(sys.argv[0], run_name='__main__')
";

/// Features that this device lacks: the prefix of a skip reason, and its explanation.
const LACKING: &[(&str, &str)] = &[
    ("Create QP type 8", "raw packet queue pairs, which send and receive whole Ethernet frames"),
    ("Create Raw Packet QP", "raw packet queue pairs, which send and receive whole Ethernet frames"),
    ("SkipTest occurred on passive side", "a reserved QP number, for an external queue pair of rdma_cm"),
    ("Alloc reserved QP number", "reserved QP numbers"),
    ("Some object imports", "importing device memory from another process"),
    ("Device caps doesn't support Support CQE 128B", "compression and padding of 128-byte completions"),
    ("Mapping AH to QP", "address handles of DC that map to a queue pair"),
    ("DCI caps", "streams of DC initiators"),
    ("ODP is not supported using DC", "on-demand paging with DC"),
    ("ODP implicit", "implicit on-demand paging, of a whole address space"),
    ("MEMIC atomic operations", "operations of device memory itself"),
    ("Create Mlx5DV QP", "queue pairs for memory copies and for pipelined signatures"),
    (
        "Create Mkey",
        "keys over lists of memory, with patterns or signatures, which a work request configures",
    ),
    ("NIC flow table does not support reformat", "flow steering that rewrites packets"),
    ("Set LAG affinity", "changing the port of a bond. (`--fault bond` gives a bond.)"),
    ("Packet pacing entry", "packet pacing"),
    ("Create schedule elements", "scheduling of send queues"),
    ("Creation or usage of schedule elements", "scheduling of send queues"),
    ("mlx5dv_query_port()", "ports of an embedded switch"),
    ("Modifying a QP UDP sport", "choosing the UDP source port of a queue pair"),
    ("VAR allocation", "doorbells of virtio queues"),
    ("Reg MR with MW access", "memory windows"),
    ("Create memory window", "memory windows"),
    ("Create custom mr with additional access flags 18", "memory windows"),
    ("Tag matching", "tag matching in receive queues"),
    ("Device mlx5_0 must be in switchdev mode", "an embedded switch"),
];

/// Other devices, packages and settings that tests need from the machine: the prefix of a skip reason, and its
/// explanation.
const ELSEWHERE: &[(&str, &str)] = &[
    ("Can not run the test over non EFA device", "an adapter of Amazon (EFA)"),
    ("Allocating dmabuf is not supported", "a graphics card that exports its memory"),
    ("Crypto login details", "credentials of an adapter's encryption"),
    ("PCI device must be passed by the user", "a PCI device for VFIO"),
    ("cuda-python", "a GPU"),
    ("scapy package", "the package scapy of Python"),
    ("Extended QP is not supported on this device", "atomic WRITE, which libmlx5 does not offer"),
    ("There are no huge pages", "huge pages, which the administrator reserves"),
];

/// Outcome of a run: names of tests, and reasons of skipped ones.
struct Outcome {
    text: String,
    passed: usize,
    failed: Vec<String>,
    skipped: BTreeMap<String, String>,
}

impl Outcome {
    /// Parses the report of `run_tests.py -v`: the name of a test, then its result on the same line or a later one.
    fn read(text: String) -> Outcome {
        let (mut name, mut passed) = ("", 0);
        let (mut failed, mut skipped) = (Vec::new(), BTreeMap::new());
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("FAIL: ").or(line.strip_prefix("ERROR: ")) {
                failed.push(full_name(rest).unwrap_or(rest).to_owned());
                continue;
            }
            name = full_name(line).unwrap_or(name);
            if line == "ok" || line.ends_with("... ok") {
                passed += 1;
            } else if let Some((_, reason)) = line.split_once("skipped ") {
                let reason = reason.trim_matches(['\'', '"']);
                skipped.insert(name.to_owned(), reason.to_owned());
            }
        }
        Outcome { text, passed, failed, skipped }
    }
}

/// Returns `module.Class.test` from a line `test (tests.module.Class.test) ...`.
fn full_name(line: &str) -> Option<&str> {
    let (test, rest) = line.split_once(" (tests.")?;
    test.starts_with("test_").then_some(rest.split_once(')')?.0)
}

fn explanation(table: &'static [(&str, &str)], reason: &str) -> Option<&'static str> {
    table.iter().find(|(begin, _)| reason.starts_with(begin)).map(|(_, why)| *why)
}

/// Returns the part of the page between the markers, without anything that depends on the machine.
fn section(outcome: &Outcome) -> String {
    let mut rows: BTreeMap<&str, usize> = BTreeMap::new();
    for reason in outcome.skipped.values() {
        if let Some(why) = explanation(LACKING, reason) {
            *rows.entry(why).or_default() += 1;
        }
    }
    let mut section = String::from("| feature that this device lacks | tests |\n|---|---|\n");
    for (why, tests) in rows {
        writeln!(section, "| {why} | {tests} |").unwrap();
    }
    section += "\nThe other skipped tests need:\n\n";
    for (_, what) in ELSEWHERE {
        writeln!(section, "- {what}").unwrap();
    }
    section
}

/// Runs the suite, if it is installed.
fn outcome() -> Option<Outcome> {
    let test = "the_suite_of_rdma_core";
    if !all_there(test, &["/usr/bin/python3"], "python3-pyverbs") {
        return None;
    }
    if !Path::new(SUITE).is_dir() {
        skip(test, &format!("{SUITE} of the package python3-pyverbs"));
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    let unpack = "cp -r \"$0\" \"$1\" && find \"$1\" -name '*.gz' -exec gunzip {} +";
    let unpacked = Command::new("sh").args(["-c", unpack, SUITE]).arg(folder.path()).status().unwrap();
    assert!(unpacked.success());
    let suite = folder.path().join("tests/run_tests.py");
    let suite = suite.to_str().unwrap();
    let command = ["/usr/bin/python3", "-B", "-c", SEEDED, suite, "-v", "--dev", "mlx5_0", "--gid", "3"];
    Some(Outcome::read(output_text(&Running::start(softnic(&[], &command)).end())))
}

#[test]
fn the_suite_of_rdma_core() {
    let Some(outcome) = outcome() else { return };
    let Outcome { text, passed, failed, skipped } = &outcome;
    assert!(failed.is_empty(), "{failed:?} fail:\n{text}");
    assert!(*passed >= MIN_PASSED, "only {passed} tests pass:\n{text}");
    assert!(!text.contains("does not start"), "{text}");
    // Check that the parser has missed no test.
    assert!(text.contains(&format!("\nRan {} tests", passed + failed.len() + skipped.len())), "{text}");
    for (test, reason) in skipped {
        let explained = explanation(LACKING, reason).or(explanation(ELSEWHERE, reason));
        assert!(explained.is_some(), "{test} is skipped for a reason that no table explains: {reason}");
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/softnic.md");
    let found = std::fs::read_to_string(&path).unwrap();
    let (before, rest) =
        found.split_once("<!-- pyverbs -->\n\n").expect("docs/softnic.md has the first marker");
    let (_, after) =
        rest.split_once("\n<!-- end of pyverbs -->").expect("docs/softnic.md has the last marker");
    let page = format!("{before}<!-- pyverbs -->\n\n{}\n<!-- end of pyverbs -->{after}", section(&outcome));
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    assert!(found == page, "docs/softnic.md is out of date; update it as the head of this file says");
}
