//! Runs `rushmem-ep-bench` with small shapes.

use std::net::Ipv4Addr;
use std::process::{Command, Output, Stdio};

use rushmem::bootstrap::UniqueId;
use rushmem_base::free_port;

fn command(args: &str) -> Command {
    let small = "--hidden 256 --experts 8 --top-k 4 --repetitions 2";
    let mut command = Command::new(env!("CARGO_BIN_EXE_rushmem-ep-bench"));
    command.args(small.split(' ').chain(args.split(' '))).env("RUSHMEM_TIMEOUT", "60s");
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn result(output: Output) -> (bool, String) {
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

fn run(args: &str) -> (bool, String) {
    result(command(args).output().unwrap())
}

fn run_processes(args: &str, settings: &[(&str, &str)]) -> (bool, String) {
    let address = free_port(Ipv4Addr::LOCALHOST.into()).unwrap();
    let id = UniqueId::at(address).unwrap().to_hex();
    let start = |pe: &str| {
        let mut command = command(args);
        command.env("RUSHMEM_ID", &id).env("RUSHMEM_N_PES", "2").env("RUSHMEM_PE", pe);
        command.envs(settings.iter().copied()).spawn().unwrap()
    };
    let pes = ["0", "1"].map(start).map(|pe| result(pe.wait_with_output().unwrap()));
    let [(first, text), (second, other)] = pes;
    (first && second, text + &other)
}

#[test]
fn results_survive_packet_loss() {
    let loss = ("RUSHMEM_SOFTNIC_FAULT", "drop=0.05,duplicate=0.05,reorder=0.05,seed=5");
    for args in ["--tokens 8", "--tokens 16 --layout tokens --partials bf16 --dtype fp8"] {
        let (is_success, text) = run_processes(args, &[loss, ("RUSHMEM_PEER_PATH", "nic")]);
        assert!(is_success && text.contains("PASS rushmem-ep-bench: "), "{args}: {text}");
    }
}

#[test]
fn processes_store_to_each_other() {
    let (is_success, text) = run_processes("--tokens 8 --dtype fp8", &[("RUSHMEM_PEER_PATH", "p2p")]);
    assert!(is_success && text.contains("peers by p2p"), "{text}");
}

#[test]
fn verifies_and_measures_each_shape() {
    for args in [
        "--pes 2 --tokens 8",
        "--pes 2 --tokens 8 --dtype fp8 --routing skewed",
        "--pes 2 --tokens 32 --layout tokens",
        "--pes 2 --tokens 32 --partials bf16 --dtype fp8 --blocks 3",
    ] {
        let (is_success, text) = run(args);
        assert!(is_success && text.starts_with("PASS rushmem-ep-bench: "), "{args}: {text}");
        for line in ["dispatch receive", "combine ", "rows that must cross", "from a graph", "WQEs"] {
            assert!(text.contains(line), "{args}: {line}: {text}");
        }
    }
}

#[test]
fn reports_an_invalid_shape() {
    let (is_success, text) = run("--pes 3 --tokens 8");
    assert!(!is_success && text.contains("8 experts on 3 PEs"), "{text}");
}
