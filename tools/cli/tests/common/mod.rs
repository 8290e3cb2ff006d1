//! Functions that several tests of the command `rushmem` share.

use std::process::{Command, Stdio};

/// Returns the command `rushmem`, without the RUSHMEM_* variables of this process.
pub(crate) fn rushmem() -> Command {
    without_settings(Command::new(env!("CARGO_BIN_EXE_rushmem")))
}

pub(crate) fn without_settings(mut command: Command) -> Command {
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("RUSHMEM_") {
            command.env_remove(name);
        }
    }
    command.stdin(Stdio::null());
    command
}
