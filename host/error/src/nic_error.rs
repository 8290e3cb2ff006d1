//! Errors of NICs. This module depends on no other one, so all of them can return these errors.

#[cfg(feature = "rdma")]
mod rdma;

use rushmem_mlx5::prm::{CmdError, CmdOpcode, DecodeError};

#[cfg(feature = "rdma")]
pub use self::rdma::RdmaError;
#[cfg(feature = "rdma")]
pub use self::rdma::errno_text;

/// Errors of a NIC, or of a path between NICs.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NicError {
    /// The NIC refused a PRM command.
    #[error("{nic} refused {command}: {error}{}", soft_reason(.error))]
    Refused {
        /// Name of the NIC that refused the command.
        nic: String,
        /// Opcode of the refused command.
        command: CmdOpcode,
        /// Status and syndrome of the output mailbox.
        error: CmdError,
    },
    /// The NIC completed a PRM command with an output mailbox that cannot be decoded.
    #[error("{nic} returned a malformed output mailbox for {command}: {error}")]
    Malformed {
        /// Name of the NIC that returned the mailbox.
        nic: String,
        /// Opcode of the command that the mailbox belongs to.
        command: CmdOpcode,
        /// The first error that the decoder found in the mailbox.
        error: DecodeError,
    },
    /// A call of the software ConnectX other than a PRM command failed.
    #[error("{nic}: {call} failed: {source}")]
    Call {
        /// Name of the software NIC whose call failed.
        nic: String,
        /// Name of the failed call.
        call: &'static str,
        /// Error that the call returned.
        source: rushmem_softnic::Error,
    },
    /// No path leads to the port of a peer.
    #[error("{nic} has no path to the port {peer} of a peer: {why}")]
    NoPath {
        /// Name of the NIC that the path starts at.
        nic: String,
        /// Address of the peer's port.
        peer: String,
        /// Why no path leads to the peer, and what to do about it.
        why: String,
    },
    /// The firmware chose an ordering of messages that kernels cannot work with, or that the settings exclude.
    #[error("{nic} keeps {kept} of a QP in order; set RUSHMEM_ORDERING={remedy}")]
    Order {
        /// Name of the NIC whose firmware chose the ordering.
        nic: String,
        /// Messages of a QP that the NIC keeps in order.
        kept: &'static str,
        /// Value of the setting `ordering` with which kernels can work.
        remedy: &'static str,
    },
    /// The operating system provides no random numbers.
    #[error("cannot choose keys and packet numbers: the operating system has no random numbers: {0}")]
    Random(String),
    /// An RDMA device cannot be used, or a call of libibverbs or libmlx5 failed.
    #[cfg(feature = "rdma")]
    #[error(transparent)]
    Rdma(#[from] RdmaError),
}

impl NicError {
    /// Returns the PRM command that the NIC or Linux refused, if that is the error.
    #[must_use]
    pub fn refused_command(&self) -> Option<CmdOpcode> {
        match self {
            Self::Refused { command, .. } => Some(*command),
            #[cfg(feature = "rdma")]
            Self::Rdma(RdmaError::Command { command, .. }) => Some(*command),
            _ => None,
        }
    }
}

/// Explains a syndrome of the software ConnectX, in parentheses. Empty for syndromes of real firmware.
fn soft_reason(error: &CmdError) -> String {
    rushmem_softnic::reason(error.syndrome).map(|why| format!(" ({why})")).unwrap_or_default()
}
