//! Runs the examples as users do: with PEs as threads and native kernels, and with typical mistakes of users.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use rushmem_examples::{Image, Output as OutputFile, pattern};

fn command(program: &str, arguments: &[&str], settings: &[(&str, &str)]) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("RUSHMEM_") {
            command.env_remove(name);
        }
    }
    command.env("RUSHMEM_DEVICE", "native").envs(settings.iter().copied()).args(arguments);
    command
}

fn run(program: &str, arguments: &[&str], settings: &[(&str, &str)]) -> Output {
    command(program, arguments, settings).output().unwrap()
}

#[track_caller]
fn passes(program: &str, arguments: &[&str]) -> String {
    passes_with(program, arguments, &[])
}

#[track_caller]
fn passes_with(program: &str, arguments: &[&str], settings: &[(&str, &str)]) -> String {
    let output = run(program, arguments, settings);
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{arguments:?}: {out}{err}");
    let last = out.lines().last().unwrap_or_default();
    assert!(last.starts_with("PASS "), "{arguments:?}: {out}{err}");
    last.to_owned()
}

/// Asserts that the program exits with code 1, and returns the single line on its standard error.
#[track_caller]
fn fails(program: &str, arguments: &[&str]) -> String {
    let err = fails_in_the_job(program, arguments);
    assert_eq!(err.lines().count(), 1, "{arguments:?}: {err}");
    err
}

/// Asserts that all PEs of the job exit with code 1. Returns standard error, which may also have warnings about lost
/// PEs.
#[track_caller]
fn fails_in_the_job(program: &str, arguments: &[&str]) -> String {
    let output = run(program, arguments, &[]);
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(1), "{arguments:?}: {out}{err}");
    assert!(!out.contains("PASS"), "{arguments:?}: {out}");
    err.into_owned()
}

const FFT: &str = env!("CARGO_BIN_EXE_fft");
const HELLO: &str = env!("CARGO_BIN_EXE_hello");
const RING: &str = env!("CARGO_BIN_EXE_ring");
const ALLTOALL: &str = env!("CARGO_BIN_EXE_alltoall");
const GUPS: &str = env!("CARGO_BIN_EXE_gups");
const JACOBI: &str = env!("CARGO_BIN_EXE_jacobi");
const KV: &str = env!("CARGO_BIN_EXE_kv");
const SORT: &str = env!("CARGO_BIN_EXE_sort");
const STENCIL: &str = env!("CARGO_BIN_EXE_stencil");

#[test]
fn hello_succeeds() {
    passes(HELLO, &[]);
}

#[test]
fn ring_of_any_size() {
    for (pes, count) in [("1", "1"), ("2", "1000"), ("3", "1"), ("5", "4099")] {
        passes(RING, &["--pes", pes, "--count", count]);
    }
}

#[test]
fn alltoall_of_any_size() {
    for (pes, n) in [("1", "1"), ("1", "33"), ("2", "64"), ("3", "37"), ("3", "3"), ("4", "100")] {
        passes(ALLTOALL, &["--pes", pes, "-n", n]);
    }
    let error = fails(ALLTOALL, &["--pes", "3", "-n", "2"]);
    assert!(error.contains("2 rows") && error.contains("3 PEs"), "{error}");
}

#[test]
fn gups_on_any_number_of_pes() {
    for (pes, log2_words) in [("1", "0"), ("1", "10"), ("2", "9"), ("3", "8"), ("5", "2")] {
        passes(GUPS, &["--pes", pes, "--log2-words", log2_words]);
    }
    passes(GUPS, &["--pes", "2", "--log2-words", "12", "--updates", "7"]);
}

/// Options for a small KV cache with an odd number of pages. The last page of each request is only partly used.
const SMALL_CACHE: [&str; 12] = [
    "--layers",
    "3",
    "--head-dim",
    "8",
    "--page-tokens",
    "4",
    "--requests",
    "3",
    "--tokens",
    "25",
    "--repetitions",
    "1",
];

const P2P: (&str, &str) = ("RUSHMEM_PEER_PATH", "p2p");

#[test]
fn kv_between_any_numbers_of_prefill_and_decode_pes() {
    for (pes, prefill, heads) in [
        ("2", "1", "3"),
        ("4", "2", "8"),
        ("3", "1", "8"),
        ("3", "2", "8"),
        ("6", "4", "8"),
        ("4", "3", "3"),
        ("5", "3", "6"),
    ] {
        let shape = ["--pes", pes, "--prefill", prefill, "--heads", heads];
        let arguments = [&shape[..], &SMALL_CACHE].concat();
        passes(KV, &arguments);
        let line = passes_with(KV, &arguments, &[P2P]);
        assert!(line.contains("3 layers of 21 pages") && line.contains("by p2p"), "{line}");
    }
}

#[test]
fn kv_of_any_size_in_either_memory() {
    passes(KV, &["--pes", "2", "--repetitions", "1"]);
    let one = ["--layers", "1", "--requests", "1", "--tokens", "1", "--page-tokens", "1", "--heads", "2"];
    passes(KV, &[&one[..], &["--pes", "3", "--memory", "symmetric"]].concat());
    // PEs 0 and 1 are P2P peers, and the others are NIC peers of theirs.
    let arguments = [&["--pes", "4", "--prefill", "1", "--heads", "6"][..], &SMALL_CACHE].concat();
    passes_with(KV, &arguments, &[P2P, ("RUSHMEM_P2P_GROUP", "2")]);
}

#[test]
fn kv_sends_several_rounds_in_a_row() {
    let arguments = [&["--pes", "4", "--rounds", "3"][..], &SMALL_CACHE].concat();
    passes(KV, &arguments);
    passes_with(KV, &arguments, &[P2P]);
}

#[test]
fn kv_needs_a_gpu_for_gpu_memory() {
    for memory in ["cuda", "vmm"] {
        let error = fails_in_the_job(KV, &["--pes", "2", "--memory", memory]);
        assert!(error.contains(&format!("--memory {memory} is GPU memory")), "{error}");
        assert!(error.contains("RUSHMEM_DEVICE=gpu"), "{error}");
    }
}

#[test]
fn kv_rejects_sizes_that_do_not_fit() {
    for (arguments, found, remedy) in [
        (&["--pes", "1"][..], "1 PE", "--pes 2"),
        (&["--pes", "3", "--prefill", "3"], "--prefill 3", "1 to 2"),
        (&["--pes", "2", "--prefill", "0"], "--prefill 0", "1 to 1"),
        (
            &["--pes", "4", "--prefill", "3"],
            "8 heads cannot be divided equally among 3 prefill PEs",
            "--heads 9",
        ),
        (
            &["--pes", "4", "--prefill", "1"],
            "8 heads cannot be divided equally among 3 decode PEs",
            "--heads 9",
        ),
        (&["--pes", "2", "--head-dim", "12"], "12 elements has 24 bytes", "--head-dim 16"),
        (&["--pes", "2", "--requests", "4096", "--tokens", "1000000"], "larger than 64 GiB", "fewer layers"),
    ] {
        let error = fails(KV, arguments);
        assert!(error.contains(found) && error.contains(remedy), "{error}");
    }
}

#[test]
fn sort_on_any_number_of_pes() {
    for (pes, log2_keys) in [("1", "0"), ("1", "13"), ("2", "12"), ("3", "1"), ("5", "10")] {
        let arguments = ["--pes", pes, "--log2-keys", log2_keys, "--iterations", "2"];
        passes(SORT, &arguments);
        passes_with(SORT, &arguments, &[P2P]);
    }
    // PEs 0 and 1 are P2P peers, and the others are NIC peers of theirs.
    passes_with(SORT, &["--pes", "4", "--log2-keys", "10"], &[P2P, ("RUSHMEM_P2P_GROUP", "2")]);
    let line = passes(SORT, &["--pes", "2", "--log2-keys", "10", "--capacity", "2048"]);
    assert!(line.contains("2048 keys on 2 PEs"), "{line}");
}

#[test]
fn sort_reports_insufficient_capacity() {
    for capacity in ["1", "900"] {
        let error = fails_in_the_job(SORT, &["--pes", "3", "--log2-keys", "10", "--capacity", capacity]);
        assert!(error.contains(&format!("room for {capacity}: use --capacity")), "{error}");
    }
    let error = fails(SORT, &["--pes", "257"]);
    assert!(error.contains("257 PEs") && error.contains("at most 256"), "{error}");
}

#[test]
fn fft_on_any_number_of_pes() {
    for (pes, log2_n) in [("1", "1"), ("2", "4"), ("3", "2"), ("4", "2"), ("5", "4")] {
        let arguments = ["--pes", pes, "--log2-n", log2_n, "--iterations", "2"];
        passes(FFT, &arguments);
        passes_with(FFT, &arguments, &[P2P]);
    }
    // Several tiles in a plane.
    let arguments = ["--pes", "2", "--log2-n", "6", "--iterations", "1"];
    let line = passes_with(FFT, &arguments, &[P2P]);
    assert!(line.contains("verified after both"), "{line}");
    // PEs 0 and 1 are P2P peers, and the others are NIC peers of theirs.
    passes_with(FFT, &["--pes", "4"], &[P2P, ("RUSHMEM_P2P_GROUP", "2")]);
    let error = fails(FFT, &["--pes", "3", "--log2-n", "1"]);
    assert!(error.contains("2 planes") && error.contains("3 PEs"), "{error}");
}

/// Settings for a network that drops, duplicates and reorders packets.
const BAD_NETWORK: [(&str, &str); 2] =
    [("RUSHMEM_PEER_PATH", "nic"), ("RUSHMEM_SOFTNIC_FAULT", "drop=0.02,duplicate=0.02,reorder=0.02,seed=5")];

#[test]
fn fft_between_processes_on_a_lossy_network() {
    passes_as_processes(FFT, "fft faults", 3, &["--log2-n", "4", "--iterations", "2"], &BAD_NETWORK);
}

#[test]
fn sort_between_processes_on_a_lossy_network() {
    passes_as_processes(SORT, "sort faults", 3, &["--log2-keys", "12", "--iterations", "2"], &BAD_NETWORK);
}

/// Runs a program as processes with torchrun's variables, and returns the last line that PE 0 prints.
///
/// `job` keeps concurrent jobs of this test program apart.
#[track_caller]
fn passes_as_processes(
    program: &str,
    job: &str,
    n: u32,
    arguments: &[&str],
    settings: &[(&str, &str)],
) -> String {
    let start = |i: u32| {
        let mut command = command(program, arguments, settings);
        for (name, value) in [("RANK", i), ("LOCAL_RANK", i), ("WORLD_SIZE", n), ("LOCAL_WORLD_SIZE", n)] {
            command.env(name, value.to_string());
        }
        command.env("MASTER_ADDR", "127.0.0.1").env("MASTER_PORT", "1");
        command.env("TORCHELASTIC_RUN_ID", format!("{job} {}", std::process::id()));
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let processes: Vec<_> = (0..n).map(start).collect();
    let mut lines = Vec::new();
    for (i, process) in processes.into_iter().enumerate() {
        let output = process.wait_with_output().unwrap();
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "PE {i} of {n}, {arguments:?}: {out}{err}");
        assert_eq!(out.contains("PASS "), i == 0, "PE {i} of {n}, {arguments:?}: {out}{err}");
        lines.extend(out.lines().map(str::to_owned));
    }
    lines.pop().unwrap_or_default()
}

#[test]
fn number_of_pes_comes_from_torchrun_variables() {
    let line = passes_as_processes(KV, "kv", 3, &["--heads", "6"], &[]);
    assert!(line.contains("prefill 1 x") && line.contains("decode 2 x"), "{line}");
    passes_as_processes(SORT, "sort", 3, &["--log2-keys", "8"], &[]);
}

/// Options for few steps, so many shapes can be tested quickly. 13 launches of 3 steps make one graph and a remainder.
const FEW_STEPS: [&str; 8] =
    ["--steps", "37", "--launch-steps", "3", "--graph-launches", "10", "--repetitions", "1"];

#[test]
#[ignore = "slow: runs with --ignored"]
fn jacobi_on_any_grid_of_pes() {
    for (pes, dims, size) in [
        ("1", "1,1,1", "1"),
        ("2", "2,1,1", "1"),
        ("3", "1,3,1", "5,4,3"),
        ("4", "1,1,4", "3,1,2"),
        ("8", "2,2,2", "2"),
        ("6", "3,1,2", "17,9,33"),
    ] {
        let arguments = [&["--pes", pes, "--dims", dims, "--size", size][..], &FEW_STEPS].concat();
        for settings in [&[][..], &[P2P], &[P2P, ("RUSHMEM_P2P_GROUP", "2")]] {
            let line = passes_with(JACOBI, &arguments, settings);
            assert!(line.contains("7-point") && line.contains("74 steps equal to the serial"), "{line}");
        }
    }
}

#[test]
fn jacobi_in_two_dimensions() {
    for (pes, dims, size) in [("1", "1,1", "1"), ("4", "2,2", "7"), ("6", "3,2", "70,2"), ("5", "1,5", "1,3")]
    {
        let shape = ["--two-d", "--pes", pes, "--dims", dims, "--size", size];
        let arguments = [&shape[..], &FEW_STEPS].concat();
        for settings in [&[][..], &[P2P]] {
            let line = passes_with(JACOBI, &arguments, settings);
            assert!(line.contains("5-point") && line.contains("74 steps equal to the serial"), "{line}");
        }
    }
}

#[test]
fn jacobi_without_graphs_matches_the_analytic_solution() {
    passes(JACOBI, &["--pes", "4", "--size", "9", "--steps", "20", "--no-graph"]);
    let line = passes(JACOBI, &["--pes", "4", "--size", "11,10,9", "--steps", "40", "--analytic"]);
    assert!(line.contains("of the analytic solution"), "{line}");
}

#[test]
fn jacobi_between_processes_on_a_lossy_network() {
    let faults = ("RUSHMEM_SOFTNIC_FAULT", "drop=0.05,duplicate=0.05,reorder=0.05,seed=5");
    let run = |job: &str, n, shape: &[&str], settings: &[(&str, &str)]| {
        let line = passes_as_processes(JACOBI, job, n, &[shape, &FEW_STEPS].concat(), settings);
        assert!(line.contains("equal to the serial"), "{line}");
        line
    };
    assert!(run("jacobi 8", 8, &["--size", "6,5,4"], &[]).contains("2 x 2 x 2 PEs"));
    assert!(run("jacobi p2p", 4, &["--size", "6,5,4"], &[P2P]).contains("1 x 2 x 2 PEs"));
    assert!(run("jacobi faults", 4, &["--size", "6,5,4"], &[faults]).contains("1 x 2 x 2 PEs"));
    assert!(run("jacobi flat", 4, &["--size", "6,5", "--two-d"], &[faults]).contains("2 x 2 PEs"));
}

#[test]
fn jacobi_plots_weak_scaling() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("scaling.svg");
    let scaling = ["--pes", "4", "--scaling", "1,2,4", "--size", "4", "--plot", file.to_str().unwrap()];
    let line = passes(JACOBI, &[&scaling[..], &FEW_STEPS].concat());
    assert!(line.contains("3 numbers of PEs"), "{line}");
    let svg = fs::read_to_string(&file).unwrap();
    assert!(svg.ends_with("</svg>\n") && svg.contains("4 PEs share the CPU cores"), "{svg}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else is left");
}

#[test]
fn jacobi_rejects_sizes_that_do_not_fit() {
    for (arguments, found, remedy) in [
        (&["--pes", "4", "--dims", "3,1,1"][..], "--dims 3,1,1 is a grid of 3 PEs", "--dims 1,2,2"),
        (&["--pes", "4", "--dims", "2,2"], "--dims 2,2 does not fit 3 dimensions", "--two-d"),
        (&["--two-d", "--dims", "1,1,1"], "--dims 1,1,1 does not fit 2 dimensions", "leave --two-d out"),
        (&["--pes", "4", "--two-d", "--dims", "4,4"], "a grid of 16 PEs", "--dims 2,2"),
        (&["--size", "3,3"], "--size 3,3 does not fit 3 dimensions", "X,Y,Z"),
        (&["--size", "2000"], "8000000000 cells", "2^29"),
        (&["--pes", "2", "--scaling", "1,4"], "4 PEs, but the job has 2", "--pes 4"),
        (&["--scaling", "1", "--plot", "/nowhere/a.svg"], "/nowhere/a.svg", "No such file"),
    ] {
        let error = fails(JACOBI, arguments);
        assert!(error.contains(found) && error.contains(remedy), "{error}");
    }
}

fn picture(path: &Path, width: usize, height: usize, channels: usize) -> Image {
    let value = |i| (pattern(7, i as u64) % 256) as f32 / 255.0;
    let image =
        Image { width, height, channels, values: (0..width * height * channels).map(value).collect() };
    OutputFile::new(path).unwrap().write(&image.to_png().unwrap()).unwrap();
    image
}

#[test]
fn stencil_of_any_picture() {
    let folder = tempfile::tempdir().unwrap();
    let (input, output) = (folder.path().join("in.png"), folder.path().join("out.png"));
    let (input_arg, output_arg) = (input.to_str().unwrap(), output.to_str().unwrap());
    // A single row or column, bands of one row, bands of unequal height, and each number of channels.
    for ([width, height, channels], pes, steps) in [
        ([1, 1, 1], "1", "7"),
        ([1, 5, 2], "5", "61"),
        ([33, 17, 3], "3", "51"),
        ([40, 2, 4], "2", "50"),
        ([9, 7, 1], "4", "3"),
    ] {
        let before = picture(&input, width, height, channels);
        passes(STENCIL, &[input_arg, "-o", output_arg, "--pes", pes, "--steps", steps]);
        let after = Image::read(&output).unwrap();
        assert_eq!((after.width, after.height, after.channels), (width, height, channels));
        if before.values.len() > 1 {
            assert_ne!(after, before, "heat has spread");
        }
    }
    let before = picture(&input, 5, 6, 3);
    passes(STENCIL, &[input_arg, "-o", output_arg, "--pes", "2", "--steps", "0"]);
    assert_eq!(Image::read(&output).unwrap(), before, "no step changes nothing");
}

#[test]
fn stencil_resumes_from_its_checkpoint_on_any_number_of_pes() {
    let folder = tempfile::tempdir().unwrap();
    let [input, output, whole, checkpoint] =
        ["in.png", "out.png", "whole.png", "checkpoint"].map(|name| folder.path().join(name));
    picture(&input, 33, 17, 3);
    let arguments = |output: &Path, steps: &str, more: &[&str]| -> Vec<String> {
        let paths = [&input, output].map(|path| path.to_str().unwrap());
        let arguments = [paths[0], "-o", paths[1], "--steps", steps];
        [&arguments[..], more].concat().into_iter().map(str::to_owned).collect()
    };
    let run =
        |arguments: Vec<String>| passes(STENCIL, &arguments.iter().map(String::as_str).collect::<Vec<_>>());
    let saves = ["--checkpoint", checkpoint.to_str().unwrap(), "--every", "25", "--pes"];
    run(arguments(&output, "60", &[&saves[..], &["3"]].concat()));
    for (pes, from, steps) in
        [("3", "50", "130"), ("2", "125", "155"), ("5", "150", "160"), ("1", "150", "160")]
    {
        let resumed = run(arguments(&output, steps, &[&saves[..], &[pes, "--resume"]].concat()));
        assert!(resumed.contains(&format!("{steps} steps (from step {from}) on {pes} PEs")), "{resumed}");
        run(arguments(&whole, steps, &["--pes", "3"]));
        assert_eq!(Image::read(&output).unwrap(), Image::read(&whole).unwrap());
    }
    for pes in ["2", "3"] {
        let too_late = arguments(&output, "60", &[&saves[..], &[pes, "--resume"]].concat());
        let error = fails(STENCIL, &too_late.iter().map(String::as_str).collect::<Vec<_>>());
        assert!(error.contains("is after step 150 of 60"), "{error}");
    }
}

#[test]
fn stencil_errors_name_the_file_and_leave_no_output() {
    let folder = tempfile::tempdir().unwrap();
    let (input, output) = (folder.path().join("in.png"), folder.path().join("out.png"));
    let (input_arg, output_arg) = (input.to_str().unwrap(), output.to_str().unwrap());
    let error = fails(STENCIL, &[input_arg, "-o", output_arg]);
    assert!(error.contains("in.png: No such file"), "{error}");

    fs::write(&input, "this is no picture").unwrap();
    let error = fails(STENCIL, &[input_arg, "-o", output_arg]);
    assert!(error.contains("in.png: "), "{error}");

    picture(&input, 10, 3, 1);
    let error = fails(STENCIL, &[input_arg, "-o", output_arg, "--pes", "4"]);
    assert!(error.contains("in.png has 3 rows, too few for 4 PEs"), "{error}");

    let nowhere = folder.path().join("none/out.png");
    let error = fails(STENCIL, &[input_arg, "-o", nowhere.to_str().unwrap(), "--pes", "2"]);
    assert!(error.contains("none/out.png: No such file"), "{error}");

    let left: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["in.png"]);
}

#[test]
fn errors_name_unknown_settings_and_a_small_heap() {
    let with = |name: &str, value: &str| {
        let output = Command::new(RING).env(name, value).args(["--pes", "2"]).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let error = with("RUSHMEM_PESS", "4");
    assert!(error.contains("RUSHMEM_PESS") && error.contains("RUSHMEM_PES"), "{error}");
    let error = with("RUSHMEM_HEAP_BYTES", "64KiB");
    assert!(error.contains("RUSHMEM_HEAP_BYTES"), "{error}");
    let error = with("RUSHMEM_HEAP_BYTES", "1000TiB");
    assert!(error.contains("lower RUSHMEM_HEAP_BYTES"), "{error}");
}

#[test]
fn programs_are_clean_under_the_sanitizer() {
    let folder = tempfile::tempdir().unwrap();
    let (input, output) = (folder.path().join("in.png"), folder.path().join("out.png"));
    let (input, output) = (input.to_str().unwrap(), output.to_str().unwrap());
    picture(Path::new(input), 9, 7, 1);
    let steps = ["--steps", "13", "--launch-steps", "3", "--graph-launches", "2", "--repetitions", "1"];
    for (program, arguments) in [
        (HELLO, &[][..]),
        (RING, &["--pes", "3", "--count", "1000"]),
        (ALLTOALL, &["--pes", "3", "-n", "100"]),
        (GUPS, &["--pes", "3", "--log2-words", "6"]),
        (KV, &[&["--pes", "3", "--prefill", "1", "--heads", "6"][..], &SMALL_CACHE].concat()),
        (KV, &[&["--pes", "2", "--heads", "1", "--memory", "symmetric"][..], &SMALL_CACHE].concat()),
        (SORT, &["--pes", "3", "--log2-keys", "8", "--iterations", "2"]),
        (FFT, &["--pes", "2", "--log2-n", "3", "--iterations", "2"]),
        (JACOBI, &[&["--pes", "4", "--size", "3,4,2"][..], &steps].concat()),
        (JACOBI, &[&["--pes", "4", "--size", "7", "--two-d"][..], &steps].concat()),
        (JACOBI, &["--pes", "2", "--size", "3", "--steps", "9", "--no-graph"]),
        (STENCIL, &[input, "-o", output, "--pes", "3", "--steps", "53"]),
    ] {
        passes_with(program, arguments, &[("RUSHMEM_PES", "2"), ("RUSHMEM_SANITIZE", "1")]);
    }
}
