//! Measures how fast NVIDIA's DOCA GPUNetIO device code posts, as `rushmem perf` measures ours:
//!
//! ```sh
//! rushmem perf --list post > plan
//! rushmem-gpunetio-posting --headers FOLDER --plan plan --json gpunetio.json
//! rushmem perf post --beside gpunetio.json
//! ```

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use rushmem_gpunetio::posting::{Poster, Row};
use rushmem_gpunetio::{Error, Result, theirs};
use serde_json::{Value, json};

/// Measures how fast NVIDIA's DOCA GPUNetIO device code posts
#[derive(Parser)]
struct Arguments {
    /// Folder with doca_gpunetio_device.h
    #[arg(long, value_name = "FOLDER", required_unless_present = "ptx")]
    headers: Option<PathBuf>,
    /// The CUDA compiler
    #[arg(long, value_name = "PROGRAM", default_value = "nvcc")]
    nvcc: PathBuf,
    /// Kernels that are compiled already, instead of --headers
    #[arg(long, value_name = "FILE", conflicts_with = "headers")]
    ptx: Option<PathBuf>,
    /// Writes the kernels, compiled, to this file, and measures nothing
    #[arg(long, value_name = "FILE", conflicts_with = "ptx")]
    compile: Option<PathBuf>,
    /// The rows: what `rushmem perf --list` has printed
    #[arg(long, value_name = "FILE", required_unless_present = "compile")]
    plan: Option<PathBuf>,
    /// Where the results go
    #[arg(long, value_name = "FILE", required_unless_present = "compile")]
    json: Option<PathBuf>,
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
    let gpu = theirs::gpu();
    let capability = gpu.as_ref().map_or((9, 0), |gpu| gpu.attributes().compute_capability);
    let read = |path: &PathBuf| fs::read_to_string(path).map_err(|error| Error::File(path.clone(), error));
    let ptx = match (&arguments.ptx, &arguments.headers) {
        (Some(file), _) => read(file)?,
        (None, Some(headers)) => theirs::compile(headers, &arguments.nvcc, capability)?,
        (None, None) => return Err(Error::Missing(theirs::how_to_get_headers())),
    };
    if let Some(file) = &arguments.compile {
        return fs::write(file, ptx).map_err(|error| Error::File(file.clone(), error));
    }
    let (Some(plan), Some(results)) = (&arguments.plan, &arguments.json) else { return Ok(()) };
    let gpu = gpu?;
    let poster = Poster::load(&gpu, &ptx)?;
    let rows = Row::read(&read(plan)?)?;
    let rows: Vec<Value> = rows.iter().map(|row| measure(&poster, row)).collect::<Result<_>>()?;
    let all = json!({ "program": "DOCA GPUNetIO", "machine": gpu.attributes().name, "rows": rows });
    fs::write(results, format!("{all:#}\n")).map_err(|error| Error::File(results.clone(), error))
}

fn measure(poster: &Poster, row: &Row) -> Result<Value> {
    let mut rates = poster.measure(row)?;
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
