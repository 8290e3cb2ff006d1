//! Checks that `rushmem-mlx5` decodes every send WQE written by the installed libmlx5 and encodes it to the same bytes.
//!
//! With `UPDATE_CORPUS=1`, the WQEs replace those in `mlx5/tests/data`.

mod common;
#[path = "../../../mlx5/tests/suite/entries.rs"]
mod entries;
mod program;

use common::{Running, all_there, good_pair, output_text, softnic};
use std::collections::BTreeMap;
use std::path::Path;

/// Programs and arguments that, together with `verbs.c`, make libmlx5 write every kind of WQE.
const PROGRAMS: [&str; 21] = [
    "ibv_rc_pingpong -g 3 -n 20",
    "ibv_uc_pingpong -g 3 -n 20",
    "ibv_ud_pingpong -g 3 -n 20",
    "ib_write_bw -n 20 -q 2 -b -F",
    "ib_write_bw -n 20 -I 200 -s 199 -l 4 -F",
    "ib_write_lat -n 20 -c UC -I 64 -s 61 -F",
    "ib_read_bw -n 20 -F",
    "ib_atomic_bw -n 20 -A FETCH_AND_ADD -F",
    "ib_atomic_bw -n 20 -A CMP_AND_SWAP -F",
    "ib_send_bw -n 20 -e -F",
    "ib_send_bw -n 20 -c UD -s 1024 -l 4 -F",
    "ib_send_lat -n 20 -I 236 -s 236 -F",
    "ib_send_lat -n 20 -c UD -I 140 -s 140 -F",
    "ib_write_lat -n 20 -c DC -I 64 -s 61 -F",
    "ib_read_bw -n 20 -c DC -F",
    "ib_atomic_bw -n 20 -c DC -F",
    "ib_send_bw -n 20 -c DC -F",
    "ibv_xsrq_pingpong -g 3 -n 20",
    "ib_write_lat -n 20 -c XRC -I 64 -s 61 -F",
    "ib_read_bw -n 20 -c XRC -F",
    "ib_atomic_bw -n 20 -c XRC -F",
];

#[test]
#[ignore = "slow: runs with --ignored"]
fn all_that_libmlx5_writes_is_read_and_written_again() {
    let tools =
        ["ibv_rc_pingpong", "ibv_xsrq_pingpong", "ib_write_bw", "ib_read_bw", "ib_atomic_bw", "ib_send_bw"];
    if !all_there("corpus", &tools, "ibverbs-utils or perftest") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    // Keep one WQE of each shape.
    let mut kept = BTreeMap::new();
    let mut count = 0;
    let mut take = |file: &Path| {
        let text = std::fs::read_to_string(file).unwrap();
        let before = count;
        for line in text.lines() {
            if let Some(entry) = entries::check(line) {
                count += 1;
                kept.entry(shape(&entry)).or_insert_with(|| line.to_owned());
            }
        }
        assert!(count > before, "nothing is posted");
    };
    let Some(verbs) = program::verbs_program("corpus") else { return };
    let file = folder.path().join("verbs");
    let options = ["--devices", "2", "--record", file.to_str().unwrap()];
    let output = Running::start(softnic(&options, &[verbs.to_str().unwrap(), "mlx5_0", "mlx5_1"])).end();
    assert!(output.status.success(), "{}", output_text(&output));
    take(&file);
    for (i, program) in PROGRAMS.iter().enumerate() {
        let file = folder.path().join(format!("{i}"));
        let words: Vec<&str> = program.split_whitespace().collect();
        good_pair(&["--record", file.to_str().unwrap()], &words);
        take(&file);
    }
    println!("{count} entries, {} shapes", kept.len());
    if std::env::var_os("UPDATE_CORPUS").is_some_and(|value| value == "1") {
        let head =
            "# Send work-queue entries that libmlx5 wrote, one of each shape: service, index, bytes.\n";
        let lines: String = kept.values().map(|line| format!("{line}\n")).collect();
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../mlx5/tests/data/libmlx5-entries.txt");
        std::fs::write(path, head.to_owned() + &lines).unwrap();
    }
}

/// Returns a WQE's line in the corpus without its numbers: service, opcode, sizes, flags, kinds of data.
fn shape(entry: &str) -> String {
    let words: Vec<&str> = entry.split_whitespace().collect();
    let mut shape = Vec::new();
    for (i, word) in words.iter().enumerate() {
        let before = i.checked_sub(1).map_or("", |before| words[before]);
        // "inline 64 B 0123..": the length matters, but not the bytes. Of pointers not even the length does.
        let payload = before == "B" && i >= 3 && words[i - 3] == "inline";
        let number = word.starts_with("0x") || word.starts_with("[0x") || before == "data";
        if !payload && !number && before != "gid" && before != "mac" {
            shape.push(*word);
        }
    }
    shape.join(" ")
}
