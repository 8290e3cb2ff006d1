//! The command `rushmem trace`, which joins the timelines of PEs and summarizes them.

mod parts;

use std::path::PathBuf;
use std::process::ExitCode;

use rushmem_trace::{Summary, Trace};

use crate::error::Error;
use crate::print;

pub(crate) use self::parts::{Joined, all_parts, join};

/// Join the timelines of PEs, and print tables of waits, traffic and late PEs
///
/// RUSHMEM_TRACE=FILE makes a job write its timeline. PEs that are processes write FILE.pe0, FILE.pe1 and so on.
/// `rushmem run` joins these files at the end of the job, and this command joins them after other launchers. Open the
/// joined file at https://ui.perfetto.dev.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// FILE of RUSHMEM_TRACE, or some of its parts
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,

    /// Write the joined timeline to this file [default: FILE]
    #[arg(short = 'o', long = "out", value_name = "OUT")]
    out: Option<PathBuf>,

    /// Print the tables as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn execute(args: &Args) -> Result<ExitCode, Error> {
    let (sources, target) = parts::resolve(&args.files, args.out.as_deref())?;
    let mut trace = Trace::default();
    for source in &sources {
        trace.merge(parts::read(source)?);
    }
    if let Some(target) = target {
        parts::write(&trace, &target)?;
        let pes = parts::pes_of(&trace);
        eprintln!("rushmem: {} has the timeline of {pes}; ui.perfetto.dev opens it", target.display());
    }
    let summary = Summary::new(&trace);
    if args.json {
        let text = serde_json::to_string_pretty(&summary);
        print(&(text.map_err(|error| Error::Internal(error.to_string()))? + "\n"))?;
    } else {
        print(&summary.to_string())?;
    }
    Ok(ExitCode::SUCCESS)
}
