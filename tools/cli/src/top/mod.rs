//! The command `rushmem top`, which shows the running jobs.

mod look;
mod text;

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;

use rushmem_trace::all_live;

use self::look::Look;
use crate::error::Error;
use crate::print;

/// Time between two snapshots.
const INTERVAL: Duration = Duration::from_secs(1);

/// Escape sequence that clears a terminal.
const CLEAR: &str = "\x1b[H\x1b[J";

/// Show the running jobs of this user on this machine: traffic, waits and the slowest PE
///
/// Only jobs that run with RUSHMEM_STATS=1 are visible. Traffic and times count from the previous refresh or, in the
/// first one, from the start of the job. Waits of several threads add up.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Print the current state and exit
    #[arg(long)]
    once: bool,
}

pub(crate) fn execute(args: &Args) -> Result<ExitCode, Error> {
    let is_terminal = std::io::stdout().is_terminal();
    let mut before = Look::default();
    loop {
        let live = all_live().map_err(|error| {
            Error::Environment(format!("cannot read the state of the running jobs: {error}"))
        })?;
        let look = Look::new(live);
        let text = look.to_text(&before);
        if is_terminal && !args.once {
            print(&format!("{CLEAR}{text}"))?;
        } else {
            print(&text)?;
        }
        if args.once {
            return Ok(ExitCode::SUCCESS);
        }
        before = look;
        std::thread::sleep(INTERVAL);
    }
}
