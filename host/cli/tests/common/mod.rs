//! What the tests of the command share.

use std::process::{Command, Stdio};

/// The command, without settings of whoever runs these tests.
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
