//! The command `rushmem perf`, which measures bandwidth, latency, rates and start-up time.

mod bench;
mod init;
mod measure;
mod pes;
mod plan;
mod plot;
mod recorder;
mod results;
mod table;
mod targets;

use std::path::PathBuf;
use std::process::ExitCode;

use rushmem::config::{Config, ConnectKind, DeviceKind, PeerPath};
use rushmem::{Job, Ptx};

use self::bench::{Bench, JobKind};
use self::pes::Pes;
use self::plan::{Case, Selection};
use self::recorder::Recorder;
use self::results::Results;
use self::targets::Targets;
use crate::error::Error;
use crate::print;

/// Measure bandwidth, latency, rates and start-up time, and verify the data
///
/// Prints the median of several runs; a first run is not counted. PE 0 acts on PE 1, and all PEs take part in barriers.
/// PEs are threads of this process or, under `rushmem run`, processes. Without a GPU, kernels run natively and use the
/// software ConnectX. Such results measure this CPU, not a network.
#[derive(clap::Args)]
#[command(after_help = names())]
pub(crate) struct Args {
    /// Benchmarks to measure: names from the list below, or prefixes of names [default: all]
    #[arg(value_name = "NAME")]
    names: Vec<String>,

    /// Number of PEs, as threads of this process [default: 2]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..))]
    pes: Option<u32>,

    /// Message sizes, such as 8,64K,1M [default: from 8 bytes to --max-bytes]
    #[arg(long, value_name = "BYTES", value_delimiter = ',', value_parser = message)]
    sizes: Vec<u64>,

    /// Largest message size, without --sizes [default: 256M on GPUs, 1M natively; less if the heap is small]
    #[arg(long, value_name = "BYTES", value_parser = message)]
    max_bytes: Option<u64>,

    /// Number of blocks in each grid [default: 1,8,32,64 on GPUs, 1,2 natively]
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=1024))]
    blocks: Vec<u32>,

    /// Number of threads per block [default: 256 on GPUs, 32 natively]
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: Vec<u32>,

    /// Maximum number of rounds of a run [default: no limit]
    #[arg(long, value_name = "N", default_value_t = u32::MAX, hide_default_value = true,
          value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,

    /// Number of runs of each row, at least 7: the spread needs quartiles
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u64).range(7..))]
    runs: u64,

    /// Print the rows for other programs that measure the same work; measure nothing
    #[arg(long)]
    list: bool,

    /// Read the results from this file and measure nothing; the rows of several files are joined
    #[arg(long, value_name = "FILE", conflicts_with_all = ["names", "list"])]
    from: Vec<PathBuf>,

    /// Write the results to this file, after each row; an error keeps them and adds the failed benchmark
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Print the results of another program for the same work, and how many times as fast this one is
    #[arg(long, value_name = "FILE")]
    compare: Vec<PathBuf>,

    /// Plot the benchmarks that were measured with several sizes: a curve for each grid, with its spread
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,

    /// Print whether the ratios reach the targets of this file
    #[arg(long, value_name = "FILE", requires = "compare")]
    targets: Option<PathBuf>,
}

/// Returns the list of benchmarks for the help text.
fn names() -> String {
    let lines: Vec<_> = Bench::ALL
        .iter()
        .map(|b| format!("  {:20} {:5} {}", b.name(), b.unit().name(), b.description()))
        .collect();
    format!("Benchmarks:\n{}", lines.join("\n"))
}

/// Parses a message size: a multiple of 8 bytes.
fn message(text: &str) -> Result<u64, String> {
    let (digits, shift) = match text.to_ascii_uppercase().trim_end_matches("IB") {
        t if t.ends_with('K') => (t[..t.len() - 1].to_owned(), 10),
        t if t.ends_with('M') => (t[..t.len() - 1].to_owned(), 20),
        t if t.ends_with('G') => (t[..t.len() - 1].to_owned(), 30),
        t => (t.to_owned(), 0),
    };
    let number: u64 =
        digits.parse().map_err(|_| "write a number of bytes, such as 8, 64K or 256M".to_owned())?;
    match number.checked_mul(1 << shift) {
        Some(bytes) if bytes >= 8 && bytes.is_multiple_of(8) && bytes <= 64 << 30 => Ok(bytes),
        _ => Err("the size must be a multiple of 8 bytes, at most 64G".into()),
    }
}

pub(crate) fn execute(args: &Args, config: Config) -> Result<ExitCode, Error> {
    // Read all input files first: report errors in them before measuring.
    let others: Vec<Results> =
        args.compare.iter().map(|path| Results::read(path)).collect::<Result<_, _>>()?;
    let targets = args.targets.as_deref().map(Targets::read).transpose()?;
    let (results, failed) = match args.from.split_first() {
        Some((first, more)) => {
            let mut results = Results::read(first)?;
            for path in more {
                results.add(Results::read(path)?);
            }
            (results, None)
        }
        None => match run(args, config)? {
            Some(measured) => measured,
            None => return Ok(ExitCode::SUCCESS),
        },
    };
    if let Some(path) = &args.json {
        results::write(path, &results.to_json()?)?;
    }
    if let Some(path) = &args.plot {
        results::write(path, &plot::svg(&results, &others))?;
    }
    print(&table::table(&results, &others)?)?;
    if let Some(targets) = targets {
        print(&targets.judge(&results, &others))?;
    }
    failed.map_or(Ok(ExitCode::SUCCESS), Err)
}

/// Runs the measurements. Returns `None` after `--list`, or if PE 0, which has the results, is in another process.
fn run(args: &Args, mut config: Config) -> Result<Option<(Results, Option<Error>)>, Error> {
    let ptx = rushmem::ptx!("rushmem_bench_kernels");
    let gpu = has_gpu(&config, ptx)?;
    let pes = Pes::find(args.pes, &mut config)?;
    let Bounds { max_bytes, window, heap_bytes } = bounds(args, gpu, &config)?;
    let pick = |given: &[u32], gpus: &[u32], native: &[u32]| match (given, gpu) {
        ([], true) => gpus.to_vec(),
        ([], false) => native.to_vec(),
        _ => given.to_vec(),
    };
    let selection = Selection {
        gpu,
        names: args.names.clone(),
        sizes: (!args.sizes.is_empty()).then(|| args.sizes.clone()),
        max_bytes,
        blocks: pick(&args.blocks, &[1, 8, 32, 64], &[1, 2]),
        threads: pick(&args.threads, &[256], &[32]),
        max_rounds: args.rounds,
        pes: pes.n,
        launched: pes.is_launched,
    };
    let cases = selection.cases().map_err(Error::Usage)?;
    let runs = args.runs as usize;
    if args.list {
        print(&plan::list(&cases, runs))?;
        return Ok(None);
    }
    let recorder = Recorder::new(args.json.as_deref().filter(|_| pes.has_pe_0));
    let end = JobKind::ALL.into_iter().try_for_each(|kind| {
        let cases: Vec<Case> = cases.iter().filter(|case| case.bench.job_kind() == kind).copied().collect();
        let Some(first) = cases.first() else { return Ok(()) };
        recorder.start(first.bench);
        if kind == JobKind::Init {
            return init::measure(&config, ptx, &cases, runs, &recorder);
        }
        let mut config = settings(&selection, kind, &config)?;
        let mut spread = 4096;
        if kind == JobKind::Main {
            config.heap_bytes.0 = heap_bytes;
            spread = window;
        }
        let job = Job::with_config(config).kernels(ptx);
        Ok(measure::measure(job, &cases, runs, spread, &recorder)?)
    });
    match (recorder.finish(end), pes.has_pe_0) {
        (measured, true) => Ok(Some(measured)),
        ((_, failed), false) => failed.map_or(Ok(None), Err),
    }
}

/// Returns the settings for a job of kind `kind`. Posting is always measured on queues, even if transfers use P2P.
fn settings(selection: &Selection, kind: JobKind, config: &Config) -> Result<Config, Error> {
    let mut config = config.clone();
    if kind != JobKind::Main {
        config.peer_path = PeerPath::Nic;
        config.connect = ConnectKind::Eager;
        config.set("sq_depth", &selection.depth(kind).to_string())?;
        config.exclusive_qps = 1;
        config.block_qps = if kind == JobKind::PerBlock { selection.many() } else { 0 };
    }
    Ok(config)
}

/// Returns whether the job will run on GPUs.
///
/// # Errors
/// [`Error::Usage`] if there is a GPU but no PTX for it: native results could be mistaken for those of the GPU.
fn has_gpu(config: &Config, ptx: Ptx) -> Result<bool, Error> {
    if config.device == DeviceKind::Native || rushmem::inventory(config).gpus.is_empty() {
        return Ok(false);
    }
    if ptx.image.is_empty() {
        return Err(Error::Usage(format!(
            "there is a GPU, but no PTX of {}: {}. RUSHMEM_DEVICE=native measures on the CPU",
            ptx.name, ptx.omitted
        )));
    }
    Ok(true)
}

/// Sizes of messages, data and heap, derived from the largest message.
struct Bounds {
    max_bytes: u64,
    /// Number of bytes over which the data of a case is spread. Exceeds the caches on GPUs.
    window: u64,
    /// Heap size in bytes: as set by the user, or else large enough for the benchmarks.
    heap_bytes: u64,
}

fn bounds(args: &Args, gpu: bool, config: &Config) -> Result<Bounds, Error> {
    const CACHE: u64 = 256 << 20;
    let asked = args.sizes.iter().max().copied().or(args.max_bytes);
    let max_bytes = asked.unwrap_or(if gpu { CACHE } else { 1 << 20 });
    let window = max_bytes.max(if gpu { CACHE } else { 64 << 10 });
    let heap_bytes = config.heap_bytes.0;
    if config.is_default("heap_bytes") {
        let heap_bytes = heap_bytes.max(2 * window + measure::OTHER_BYTES);
        return Ok(Bounds { max_bytes, window, heap_bytes });
    }
    let room = (heap_bytes.saturating_sub(measure::OTHER_BYTES) / 2) & !4095;
    let least = asked.unwrap_or(64 << 10);
    if room < least {
        return Err(Error::Usage(format!(
            "RUSHMEM_HEAP_BYTES={heap_bytes} is too small for messages of {least} bytes; set at least {}",
            2 * least.next_multiple_of(4096) + measure::OTHER_BYTES
        )));
    }
    Ok(Bounds { max_bytes: max_bytes.min(room), window: window.min(room), heap_bytes })
}

#[cfg(test)]
mod tests {
    use super::message;

    #[test]
    fn parses_message_sizes() {
        assert_eq!(
            [message("8"), message("64K"), message("1MiB"), message("1g")].map(Result::unwrap),
            [8, 64 << 10, 1 << 20, 1 << 30]
        );
        for wrong in ["", "K", "7", "12", "1T", "-8", "65G", "99999999999999999999"] {
            assert!(message(wrong).is_err(), "{wrong}");
        }
    }
}
