//! The benchmark, with small shapes.

use std::process::Command;

fn run(args: &str) -> (bool, String) {
    let small = "--hidden 256 --experts 8 --top-k 4 --repetitions 2";
    let output = Command::new(env!("CARGO_BIN_EXE_rushmem-ep-bench"))
        .args(small.split(' ').chain(args.split(' ')))
        .env("RUSHMEM_TIMEOUT", "60s")
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

#[test]
fn verifies_and_measures_each_form() {
    for args in [
        "--pes 2 --tokens 8",
        "--pes 2 --tokens 8 --dtype fp8 --routing skewed",
        "--pes 2 --tokens 32 --form throughput",
        "--pes 2 --tokens 32 --form throughput --dtype fp8 --blocks 3",
    ] {
        let (is_success, text) = run(args);
        assert!(is_success && text.starts_with("PASS rushmem-ep-bench: "), "{args}: {text}");
        for line in ["dispatch receive", "combine ", "copy of as much", "from a graph", "WQEs"] {
            assert!(text.contains(line), "{args}: {line}: {text}");
        }
    }
}

#[test]
fn names_a_wrong_shape() {
    let (is_success, text) = run("--pes 3 --tokens 8");
    assert!(!is_success && text.contains("8 experts on 3 PEs"), "{text}");
}
