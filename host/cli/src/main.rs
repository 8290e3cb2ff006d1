//! The `rushmem` command.

mod doctor;
mod error;
mod explain;
mod id;
mod info;
mod perf;
mod run;
mod softnic;

use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use rushmem::config::Config;

use self::error::Error;

/// GPU-initiated networking: start jobs, and see what they would use
///
/// Settings come from a file named by RUSHMEM_CONFIG, and from RUSHMEM_* variables, which override it; `rushmem info`
/// lists them. Exit codes: that of the program that was run, or 2 for wrong usage or configuration, 3 for something
/// missing on this machine, 4 for an internal error.
#[derive(Parser)]
#[command(name = "rushmem", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Run(run::Args),
    Perf(perf::Args),
    Id(id::Args),
    Softnic(softnic::Args),
    Info(info::Args),
    Doctor(doctor::Args),
    Explain(explain::Args),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let done = execute(cli);
    done.unwrap_or_else(|error| {
        eprintln!("rushmem: {error}");
        ExitCode::from(error.code())
    })
}

fn execute(cli: Cli) -> Result<ExitCode, Error> {
    let config = Config::load()?;
    rushmem::init_log(&config)?;
    match cli.command {
        Command::Run(args) => run::execute(args, config),
        Command::Perf(args) => perf::execute(&args, config),
        Command::Id(args) => id::execute(&args),
        Command::Softnic(args) => softnic::execute(args).map(|never| match never {}),
        Command::Info(args) => info::execute(&args, &config),
        Command::Doctor(args) => doctor::execute(&args, &config),
        Command::Explain(args) => explain::execute(&args),
    }
}

/// Writes to standard output. A reader who has seen enough is no error.
fn print(text: &str) -> Result<(), Error> {
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Error::Environment(format!("cannot write to standard output: {error}")))
        }
        _ => Ok(()),
    }
}
