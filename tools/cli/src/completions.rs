//! The command `rushmem completions`, which prints completion scripts for shells.

use std::process::ExitCode;

use clap_complete::Shell;

use crate::error::Error;
use crate::print;

/// Print a script that completes this command in a shell
///
/// For bash: rushmem completions bash > ~/.local/share/bash-completion/completions/rushmem
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The shell
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

/// Prints the script with which a shell completes the command line of `command`.
pub(crate) fn execute(args: &Args, mut command: clap::Command) -> Result<ExitCode, Error> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "rushmem", &mut script);
    print(&String::from_utf8_lossy(&script))?;
    Ok(ExitCode::SUCCESS)
}
