//! Benchmark of expert parallelism: measures dispatch and combine, after verifying their results.

mod app;
mod args;
mod bed;

use std::process::ExitCode;

use args::Args;
use clap::Parser;
use rushmem::Job;
use rushmem_ep::KERNELS;

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("rushmem-ep-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<(), args::AnyError> {
    let config = args.config()?;
    Job::with_config(config).kernels(KERNELS).run(|pe| app::run(pe, args))?;
    Ok(())
}
