//! Measures how fast NVIDIA's DOCA GPUNetIO device code and ours post into queues in GPU memory that no NIC executes:
//!
//! ```sh
//! rushmem perf --list post > plan
//! rushmem-gpunetio-posting --plan plan --ours ours.json --headers FOLDER --theirs gpunetio.json
//! rushmem perf --from ours.json --compare gpunetio.json
//! ```

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use rushmem_gpunetio::posting::{Ours, Poster, Row, Theirs};
use rushmem_gpunetio::{Error, Result, theirs};
use serde_json::{Value, json};

/// Measures how fast NVIDIA's DOCA GPUNetIO device code and ours post
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
    /// Write the compiled kernels to this file, and measure nothing
    #[arg(long, value_name = "FILE", requires = "headers")]
    compile: Option<PathBuf>,
    /// The rows to measure, as printed by `rushmem perf --list`
    #[arg(long, value_name = "FILE", required_unless_present = "compile")]
    plan: Option<PathBuf>,
    /// Post to queues without a doorbell record, which newer ConnectX offer
    #[arg(long)]
    no_record: bool,
    /// Output file for our results
    #[arg(long, value_name = "FILE")]
    ours: Option<PathBuf>,
    /// Output file for their results
    #[arg(long, value_name = "FILE")]
    theirs: Option<PathBuf>,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result {
    if let Some(file) = &arguments.compile {
        let capability = theirs::gpu().map_or((9, 0), |gpu| gpu.attributes().compute_capability);
        return write(file, &kernels(arguments, capability)?);
    }
    let Some(plan) = &arguments.plan else { return Ok(()) };
    let rows = Row::read(&read(plan)?)?;
    let gpu = theirs::gpu()?;
    let machine = &gpu.attributes().name;
    if let Some(file) = &arguments.ours {
        write(file, &results(&Ours::load(&gpu)?, machine, &rows, arguments.no_record)?)?;
    }
    if let Some(file) = &arguments.theirs {
        let ptx = kernels(arguments, gpu.attributes().compute_capability)?;
        write(file, &results(&Theirs::load(&gpu, &ptx)?, machine, &rows, arguments.no_record)?)?;
    }
    Ok(())
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).map_err(|error| Error::File(path.into(), error))
}

fn write(path: &Path, text: &str) -> Result {
    fs::write(path, text).map_err(|error| Error::File(path.into(), error))
}

fn kernels(arguments: &Arguments, capability: (u32, u32)) -> Result<String> {
    match (&arguments.ptx, &arguments.headers) {
        (Some(file), _) => read(file),
        (None, Some(headers)) => theirs::compile(headers, &arguments.nvcc, capability),
        (None, None) => Err(Error::Missing(theirs::how_to_get_headers())),
    }
}

fn results(poster: &impl Poster, machine: &str, rows: &[Row], no_record: bool) -> Result<String> {
    let rows: Vec<Value> = rows.iter().map(|row| measure(poster, row, no_record)).collect::<Result<_>>()?;
    let all = json!({ "program": poster.program(), "machine": machine, "rows": rows });
    Ok(format!("{all:#}\n"))
}

fn measure(poster: &impl Poster, row: &Row, no_record: bool) -> Result<Value> {
    let mut rates = poster.measure(row, no_record)?;
    rates.sort_by(f64::total_cmp);
    Ok(json!({
        "bench": row.bench,
        "bytes": row.bytes,
        "blocks": row.blocks,
        "threads": row.threads,
        "pes": row.pes,
        "rounds": row.rounds,
        "unit": "M/s",
        "value": rates[rates.len() / 2],
        "low": rates[0],
        "high": rates[rates.len() - 1],
    }))
}
