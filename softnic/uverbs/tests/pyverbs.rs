//! rdma-core's own tests, which Debian installs with pyverbs. Both ends live in one process.

mod common;

use common::{Running, all_there, output_text, softnic};
use std::path::Path;
use std::process::Command;

/// Tests that must pass. Others need features that this device lacks, and some draw lots whether they can run.
const LEAST: usize = 128;

/// Tests that cannot pass: a forked child must open the device again.
const FAILING: &[&str] = &["test_multi_process_alloc_dm"];

/// The place of the tests in Debian's package, which compresses most of them.
const SUITE: &str = "/usr/share/doc/rdma-core/tests";

#[test]
fn the_suite_of_rdma_core() {
    if !all_there("the_suite_of_rdma_core", &["/usr/bin/python3"], "python3-pyverbs") {
        return;
    }
    if !Path::new(SUITE).is_dir() {
        assert!(std::env::var_os("CI_REQUIRE_ALL").is_none(), "{SUITE} is missing: install python3-pyverbs");
        eprintln!("skipped: no {SUITE}");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let unpack = "cp -r \"$0\" \"$1\" && find \"$1\" -name '*.gz' -exec gunzip {} +";
    let unpacked = Command::new("sh").args(["-c", unpack, SUITE]).arg(folder.path()).status().unwrap();
    assert!(unpacked.success());
    let suite = folder.path().join("tests/run_tests.py");
    let suite = suite.to_str().unwrap();
    let command = ["/usr/bin/python3", "-B", suite, "--dev", "mlx5_0", "--gid", "3"];
    let output = Running::start(softnic(&[], &command)).end();
    let text = output_text(&output);
    let number = |after: &str| {
        let rest = text.rsplit_once(after).map_or("0", |(_, rest)| rest);
        rest.chars().take_while(char::is_ascii_digit).collect::<String>().parse::<usize>().unwrap_or(0)
    };
    let failed: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("FAIL: ").or(line.strip_prefix("ERROR: ")))
        .filter(|line| !FAILING.iter().any(|name| line.starts_with(name)))
        .collect();
    assert_eq!(failed, Vec::<&str>::new(), "{text}");
    let passed = number("\nRan ").saturating_sub(number("skipped=") + FAILING.len());
    assert!(passed >= LEAST, "only {passed} tests pass:\n{text}");
}
