//! `rushmem explain`.

use std::process::ExitCode;

use rushmem_doctor::explain;

use crate::error::Error;
use crate::print;

/// Explain a number or name from an error message
///
/// Accepts a syndrome such as `0x15`, the number or name of a status (libibverbs, this library or a kernel's call), or a check
/// of `rushmem doctor`. Prints one line for each meaning.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Number or name, such as 0x15, 12, IBV_WC_RETRY_EXC_ERR, peer_lost, WaitTimeout or N4
    #[arg(value_name = "WORD")]
    word: String,
}

pub(crate) fn execute(args: &Args) -> Result<ExitCode, Error> {
    let lines = explain(&args.word);
    if lines.is_empty() {
        let word = &args.word;
        return Err(Error::Usage(format!(
            "no error, syndrome or check has the number or name `{word}`; docs/errors.md lists all"
        )));
    }
    print(&(lines.join("\n") + "\n"))?;
    Ok(ExitCode::SUCCESS)
}
