//! Tests of `rushmem-device`'s side of the comparison with GPUNetIO, and of the comparison itself. They need no GPU.

use std::path::{Path, PathBuf};

use rushmem_gpunetio::bed::{Shape, UNWRITTEN};
use rushmem_gpunetio::case::{CASES, Case, Op};
use rushmem_gpunetio::compare::{Entry, KNOWN, ONLY_THEIRS, compare};
use rushmem_gpunetio::{ours, record};

const RING: Shape = Shape { log_depth: 6, collapsed: false };

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

#[test]
fn device_code_passes_every_case() {
    for case in CASES {
        let entries = ours::run(case, RING).unwrap();
        assert_eq!(entries.len(), case.our_wqes(), "{case}");
        let collapsed = ours::run(case, Shape { collapsed: true, ..RING }).unwrap();
        assert!(entries == collapsed, "{case}: the kind of completion queue changes the entries");
    }
}

#[test]
fn rejects_differences_in_bytes_that_the_nic_reads() {
    for case in CASES.iter().filter(|case| case.our_wqes() == case.their_wqes()) {
        let ours = ours::run(case, RING).unwrap();
        let entry = ours.len() - 1;
        let passes = |at: usize| {
            let mut theirs = ours.clone();
            theirs[entry][at] ^= 0xff;
            compare(case, &ours, &theirs).is_ok()
        };
        // The NIC ignores these here: the signature, the stream channel, the immediate, and the word after the rkey.
        let ignored = [8, 9, 10, 12, 13, 14, 15, 28, 29, 30, 31];
        let found: Vec<usize> = (0..64).filter(|&at| passes(at)).collect();
        assert_eq!(found, ignored, "{case}");
    }
}

#[test]
fn accepts_only_known_differences() {
    let compared = |case: Case, change: fn(&mut [Entry])| {
        let ours = ours::run(&case, RING).unwrap();
        let mut theirs = ours.clone();
        change(&mut theirs);
        compare(&case, &ours, &theirs).map(|found| found.iter().map(|d| d.field).collect::<Vec<_>>())
    };
    let signal = Case { op: Op::Signal, bytes: 8 };
    let put_signal = Case { op: Op::PutSignal, bytes: 300 };
    // The addend may be repeated in the compare field, but another value may not.
    assert_eq!(compared(signal, |e| e[0].copy_within(32..40, 40)).unwrap(), ["compare"]);
    assert!(compared(signal, |e| e[0][47] = 1).is_err());
    // A completion may be requested for the first entry, but must be for the last.
    assert_eq!(compared(put_signal, |e| e[0][11] = 8).unwrap(), ["fm_ce_se"]);
    assert!(compared(put_signal, |e| e[1][11] = 0).is_err());
    assert!(compared(put_signal, |e| e[0][11] = 0x48).is_err());
    // Bytes after the end of the entry may be stale, but only all of them.
    assert_eq!(compared(put_signal, |e| e[0][48..].fill(UNWRITTEN)).unwrap(), ["unused"]);
    assert!(compared(put_signal, |e| e[0][63] = UNWRITTEN).is_err());
    // A missing entry is an error.
    assert!(compare(&signal, &ours::run(&signal, RING).unwrap(), &[]).is_err());
}

#[test]
fn document_explains_every_known_difference() {
    let text = std::fs::read_to_string(here("../../docs/wqe-compat.md")).unwrap();
    let reasons = KNOWN.iter().map(|known| (known.field.to_string(), known.why));
    for (what, why) in reasons.chain(ONLY_THEIRS.iter().map(|(opcode, why)| (opcode.to_string(), *why))) {
        let explained = text.lines().any(|line| line.contains(&format!("`{what}`")) && line.contains(why));
        assert!(explained, "no line of docs/wqe-compat.md has `{what}` and {why:?}");
    }
}

#[test]
fn entries_match_the_record() {
    let file = here("recorded.txt");
    let Ok(text) = std::fs::read_to_string(&file) else {
        let missing = format!("there is no {}: write it on a GPU with --record", file.display());
        assert!(std::env::var_os("CI_REQUIRE_ALL").is_none(), "{missing}");
        eprintln!("SKIPPED entries_match_the_record: {missing}");
        return;
    };
    let recorded = record::read(&text).unwrap();
    assert_eq!(recorded.len(), CASES.len());
    for (case, theirs) in &recorded {
        compare(case, &ours::run(case, RING).unwrap(), theirs).unwrap();
    }
}

#[test]
fn record_round_trips() {
    let entries: Vec<(&Case, Vec<Entry>)> = CASES
        .iter()
        .enumerate()
        .map(|(i, case)| (case, vec![[i as u8 | 0x10; 64]; case.their_wqes()]))
        .collect();
    let text = record::write("a\nb", entries.iter().map(|(case, entries)| (*case, &entries[..])));
    let again = record::read(&text).unwrap();
    assert!(again.iter().map(|(case, entries)| (case, entries)).eq(entries.iter().map(|(c, e)| (*c, e))));
    let error = record::read("# x\nput 1 B\tzz").unwrap_err();
    assert_eq!(error.to_string(), "line 2 of the record: not the digits of 64 bytes");
}
