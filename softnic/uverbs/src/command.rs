//! Execution of firmware commands on the software ConnectX.

use crate::errno::Errno;
use rushmem_mlx5::prm::{Command, Response};
use rushmem_softnic::Context;

/// Executes a command in a context of the adapter.
pub(crate) fn execute_on<C: Command>(context: &Context, command: &C) -> Result<C::Output, Errno> {
    let mut output = C::Output::EMPTY;
    context.command(command.encode().as_ref(), output.as_mut());
    C::Output::decode(output.as_ref()).map_err(|error| {
        tracing::debug!(command = %C::OPCODE, %error, "the adapter refuses a command");
        error.into()
    })
}
