//! KV cache example: transfers a paged KV cache from prefill PEs to decode PEs, layer by layer.

mod args;
mod cache;
mod gpu_memory;
mod measure;

use std::process::ExitCode;

use clap::Parser;
use rushmem::Job;
use rushmem_examples::{Result, exit_code, n_pes};

use args::Args;

fn main() -> ExitCode {
    let args = Args::parse();
    exit_code("kv", start(&args))
}

fn start(args: &Args) -> Result<()> {
    let mut config = args.job.config()?;
    let shape = args.shape(n_pes(&config)?)?;
    args.need_heap(&mut config, shape);
    Job::with_config(config)
        .kernels(rushmem::ptx!("rushmem_example_kernels"))
        .run(|pe| measure::run(pe, args, shape))?;
    Ok(())
}
