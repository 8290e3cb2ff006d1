//! Compares the WQEs of NVIDIA's DOCA GPUNetIO device code with ours, operation by operation:
//!
//! ```sh
//! cargo run --release -p rushmem-gpunetio -- --headers FOLDER
//! ```
//!
//! Without a GPU, nvcc or the headers, it runs our half only and reports what is missing.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use rushmem::native::LaunchConfig;
use rushmem_gpunetio::bed::Shape;
use rushmem_gpunetio::case::CASES;
use rushmem_gpunetio::compare::{Difference, Entry, ONLY_THEIRS, compare, dump};
use rushmem_gpunetio::theirs::{self, Fence, Theirs};
use rushmem_gpunetio::{Case, Error, Result, ours, record};

/// Compares the WQEs of NVIDIA's DOCA GPUNetIO device code with ours, on queues of the software ConnectX.
#[derive(Parser)]
struct Arguments {
    /// Folder with doca_gpunetio_device.h
    #[arg(long, value_name = "FOLDER")]
    headers: Option<PathBuf>,
    /// The CUDA compiler
    #[arg(long, value_name = "PROGRAM", default_value = "nvcc")]
    nvcc: PathBuf,
    /// Precompiled kernels, instead of --headers
    #[arg(long, value_name = "FILE", conflicts_with = "headers")]
    ptx: Option<PathBuf>,
    /// How NVIDIA's code fences entries before the doorbell
    #[arg(long, value_enum, default_value = "system")]
    fence: Fence,
    /// Rounds of the test with many threads; 0 skips it
    #[arg(long, default_value_t = 200)]
    rounds: u32,
    /// Write the WQEs of NVIDIA's code to this file
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Print every difference of every entry
    #[arg(long)]
    all: bool,
}

/// log2 of the send-queue depth used by every case.
const LOG_DEPTH: u8 = 6;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Error::Missing(what)) if std::env::var_os("CI_REQUIRE_ALL").is_none() => {
            println!("SKIPPED NVIDIA's half: {what}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result {
    // Must run before any thread starts: loading the driver may set environment variables.
    let gpu = theirs::gpu();
    let own = ours()?;
    // Compile even without a GPU, to learn whether the kernels still compile.
    let ptx = their_ptx(arguments, gpu.as_ref().map_or((9, 0), |gpu| gpu.attributes().compute_capability))?;
    println!("\nNVIDIA's, compiled: {} lines of PTX", ptx.lines().count());
    let gpu = gpu?;
    let theirs = Theirs::load(&gpu, &ptx, arguments.fence)?;
    let place = format!("NVIDIA's on {}, fence: {:?}", gpu.attributes().name, arguments.fence);
    let mut reasons: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    let mut recorded = Vec::new();
    let mut failed = 0;
    for collapsed in [false, true] {
        let shape = Shape { log_depth: LOG_DEPTH, collapsed };
        println!("\n{place}, {}", kind(shape));
        for case in CASES {
            match side_by_side(&theirs, case, shape, &own[&(collapsed, case.to_string())]) {
                Ok((entries, found)) => {
                    tell(&found, arguments.all);
                    for difference in &found {
                        *reasons
                            .entry((difference.field, difference.why.unwrap_or_default()))
                            .or_default() += 1;
                    }
                    recorded.extend((!collapsed).then_some((case, entries)));
                }
                Err(error) => {
                    println!("    FAILED {error}");
                    failed += 1;
                }
            }
        }
        if let Err(error) = storm(&theirs, collapsed, arguments.rounds) {
            println!("    FAILED {error}");
            failed += 1;
        }
    }
    println!("\ndifferences, all of them known:");
    for ((field, why), count) in &reasons {
        println!("{count:>5} x {field}: {why}");
    }
    for (opcode, why) in ONLY_THEIRS {
        println!("   only theirs, {opcode}: {why}");
    }
    if failed > 0 {
        return Err(Error::Failed(failed));
    }
    if let Some(file) = &arguments.record {
        let head =
            "WQEs of NVIDIA's device code, written by `rushmem-gpunetio --record`: see docs/wqe-compat.md";
        let entries = recorded.iter().map(|(case, entries)| (*case, &entries[..]));
        fs::write(file, record::write(head, entries)).map_err(|error| Error::File(file.clone(), error))?;
    }
    println!("PASS: {} operations, twice", CASES.len());
    Ok(())
}

/// Runs all cases with our code. Returns the posted entries by queue shape (collapsed or not) and case.
fn ours() -> Result<BTreeMap<(bool, String), Vec<Entry>>> {
    let mut own = BTreeMap::new();
    for collapsed in [false, true] {
        let shape = Shape { log_depth: LOG_DEPTH, collapsed };
        println!("ours, natively, {}", kind(shape));
        for case in CASES {
            let entries = ours::run(case, shape)?;
            say(case, &entries);
            own.insert((collapsed, case.to_string()), entries);
        }
    }
    Ok(own)
}

fn their_ptx(arguments: &Arguments, capability: (u32, u32)) -> Result<String> {
    match (&arguments.ptx, &arguments.headers) {
        (Some(file), _) => fs::read_to_string(file).map_err(|error| Error::File(file.clone(), error)),
        (None, Some(headers)) => theirs::compile(headers, &arguments.nvcc, capability),
        (None, None) => Err(Error::Missing(theirs::how_to_get_headers())),
    }
}

fn side_by_side(
    theirs: &Theirs,
    case: &Case,
    shape: Shape,
    own: &[Entry],
) -> Result<(Vec<Entry>, Vec<Difference>)> {
    let (entries, outcomes) = theirs.run(case, shape)?;
    say(case, &entries);
    if let [one] = outcomes[..] {
        let ahead = if one.ahead == 0 { "done" } else { "not yet" };
        println!("    completed; of the entry after it, which nobody posted, polling says: {ahead}");
    }
    let found = compare(case, own, &entries)?;
    Ok((entries, found))
}

/// Posts WQEs from many threads into one send queue.
///
/// If the completion queue is collapsed, the send queue has room for all outstanding WQEs, because in this mode
/// NVIDIA's wait for a free slot returns one WQE too early.
fn storm(theirs: &Theirs, collapsed: bool, rounds: u32) -> Result {
    if rounds == 0 {
        return Ok(());
    }
    let grid = LaunchConfig::new(4, 64);
    let shape = Shape { log_depth: if collapsed { 10 } else { LOG_DEPTH }, collapsed };
    let (wqes, doorbells) = theirs.storm(shape, grid, rounds)?;
    let (blocks, threads) = (grid.blocks(), grid.threads());
    println!(
        "{blocks} x {threads} threads, {rounds} rounds, depth {}: {wqes} WQEs, {doorbells} doorbells seen",
        shape.depth()
    );
    Ok(())
}

fn kind(shape: Shape) -> &'static str {
    if shape.collapsed { "collapsed completion queue" } else { "completion queue as a ring" }
}

fn say(case: &Case, entries: &[Entry]) {
    println!("  {case}: {} WQEs", entries.len());
    let shown = [entries.first(), entries.get(1..).and_then(<[_]>::last)];
    for entry in shown.into_iter().flatten() {
        println!("    {}", dump(entry));
    }
}

fn tell(found: &[Difference], all: bool) {
    let mut told = Vec::new();
    for difference in found {
        if all || !told.contains(&difference.field) {
            println!("    {difference}");
            told.push(difference.field);
        }
    }
}
