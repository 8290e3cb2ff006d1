//! Jacobi example: heat in a solid or a plate, by a 7-point or 5-point stencil whose grid is divided into blocks of
//! cells.

mod args;
mod cpu;
mod dims;
mod field;
mod measure;
mod plot;
mod point;
mod reference;
mod scaling;

use std::process::ExitCode;

use clap::Parser;
use rushmem::Job;
use rushmem_examples::{Output, Result, exit_code, n_pes};

use args::Args;

fn main() -> ExitCode {
    let args = Args::parse();
    exit_code("jacobi", start(&args))
}

fn start(args: &Args) -> Result<()> {
    let mut config = args.job.config()?;
    args.shapes(n_pes(&config)?)?;
    args.need_heap(&mut config)?;
    let is_first = config.pe.is_none_or(|pe| pe == 0);
    let picture = args.plot.as_deref().filter(|_| is_first).map(Output::new).transpose()?;
    let job = Job::with_config(config).kernels(rushmem::ptx!("rushmem_example_kernels"));
    let reports = job.run(|pe| {
        let shapes = args.shapes(pe.n_pes())?;
        match args.scaling[..] {
            [] => scaling::one(pe, args, shapes[0]),
            _ => scaling::several(pe, args, &shapes),
        }
    })?;

    if let Some(report) = reports.into_iter().flatten().next() {
        if let Some(picture) = picture {
            picture.write(report.svg.as_bytes())?;
        }
        println!("PASS jacobi: {}", report.line);
    }
    Ok(())
}
