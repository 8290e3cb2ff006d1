//! `rushmem explain`.

use std::process::ExitCode;

use rushmem::doctor::explain;

use crate::error::Error;
use crate::print;

/// Tell what a number or a name in an error message means
///
/// A syndrome as in `0x15`, a status of libibverbs, of this library or of a kernel's call by its number or name, or a check of
/// `rushmem doctor`. A number that stands for several things has a line for each.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// What to explain, such as 0x15, 12, IBV_WC_RETRY_EXC_ERR, peer_lost, WaitTimeout or N4
    #[arg(value_name = "WORD")]
    word: String,
}

pub(crate) fn execute(args: &Args) -> Result<ExitCode, Error> {
    let lines = explain(&args.word);
    if lines.is_empty() {
        let word = &args.word;
        return Err(Error::Usage(format!(
            "no error, syndrome or check is called {word}; docs/errors.md lists all"
        )));
    }
    print(&(lines.join("\n") + "\n"))?;
    Ok(ExitCode::SUCCESS)
}
