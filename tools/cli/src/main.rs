//! The command `rushmem`: creates projects, starts jobs, measures them and checks machines.

mod completions;
mod doctor;
mod error;
mod explain;
mod id;
mod info;
mod new;
mod perf;
mod report;
mod run;
mod scale;
mod softnic;
mod terminal;
mod top;
mod trace;

use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use rushmem::config::Config;

use self::error::Error;

/// GPU-initiated networking: create projects, start jobs, measure them and check machines
///
/// Settings come from the file that RUSHMEM_CONFIG names and from RUSHMEM_* variables. Variables take precedence.
/// `rushmem info` lists the settings by group, and `rushmem explain` describes one. The exit code is 2 for invalid
/// usage or configuration, 3 if this machine lacks something, and 4 for an internal error. Otherwise it is the exit
/// code of the program that was run.
#[derive(Parser)]
#[command(name = "rushmem", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    New(new::Args),
    Run(run::Args),
    #[command(hide = true)]
    RunAgent(run::agent::Args),
    Perf(perf::Args),
    Scale(scale::Args),
    Id(id::Args),
    Trace(trace::Args),
    Top(top::Args),
    Softnic(softnic::Args),
    Info(info::Args),
    Doctor(doctor::Args),
    Explain(explain::Args),
    Completions(completions::Args),
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
        Command::New(args) => new::execute(&args),
        Command::Run(args) => run::execute(args, config),
        Command::RunAgent(args) => run::agent::execute(&args),
        Command::Perf(args) => perf::execute(&args, config),
        Command::Scale(args) => scale::execute(&args, config),
        Command::Id(args) => id::execute(&args),
        Command::Top(args) => top::execute(&args),
        Command::Trace(args) => trace::execute(&args),
        Command::Softnic(args) => softnic::execute(args).map(|never| match never {}),
        Command::Info(args) => info::execute(&args, &config),
        Command::Doctor(args) => doctor::execute(&args, &config),
        Command::Explain(args) => explain::execute(&args),
        Command::Completions(args) => completions::execute(&args, Cli::command()),
    }
}

/// Writes to standard output. A closed pipe is not an error.
fn print(text: &str) -> Result<(), Error> {
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Error::Environment(format!("cannot write to standard output: {error}")))
        }
        _ => Ok(()),
    }
}
