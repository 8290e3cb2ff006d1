//! The command `rushmem explain`, which explains settings and the codes in error messages.

use std::process::ExitCode;

use rushmem_doctor::{explain, suggest};

use crate::error::Error;
use crate::print;

/// Explain a setting, or a number or name from an error message
///
/// Accepts a syndrome such as `0x15`, and the number or name of a status (libibverbs, this library or a kernel's call).
/// Also accepts a check of `rushmem doctor`, and a setting such as `heap_bytes` or `RUSHMEM_HEAP_BYTES`. Prints one
/// line for each meaning.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Number or name, such as 0x15, 12, IBV_WC_RETRY_EXC_ERR, peer_lost, WaitTimeout, N4 or heap_bytes
    #[arg(value_name = "WORD")]
    word: String,
}

pub(crate) fn execute(args: &Args) -> Result<ExitCode, Error> {
    let lines = explain(&args.word);
    if lines.is_empty() {
        let word = &args.word;
        let remedy = suggest(word).map_or_else(
            || "docs/errors.md and docs/settings.md list them".into(),
            |name| format!("did you mean `{name}`?"),
        );
        return Err(Error::Usage(format!(
            "no error, syndrome, check or setting has the number or name `{word}`; {remedy}"
        )));
    }
    print(&(lines.join("\n") + "\n"))?;
    Ok(ExitCode::SUCCESS)
}
