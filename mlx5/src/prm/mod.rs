//! PRM (DevX) command mailboxes: how a NIC's objects are made, changed and asked about.
//!
//! A command is a struct ([`CreateCq`](cq::CreateCq), ...) that encodes into its input mailbox and decodes from it; so is
//! its response. Both directions are typed, since a driver writes what a NIC model reads. One object a file:
//!
//! | file | commands | structure |
//! |---|---|---|
//! | [`cmd`] | | opcodes, statuses, header, error |
//! | [`caps`] | QUERY_HCA_CAP, QUERY_ROCE_ADDRESS | capability pages |
//! | [`pd`], [`uar`] | ALLOC and DEALLOC | |
//! | [`umem`] | CREATE and DESTROY | umem, MTT |
//! | [`mkey`] | CREATE and DESTROY | memory-key context |
//! | [`counter`] | ALLOC, QUERY and DEALLOC | |
//! | [`lag`] | QUERY | |
//! | [`cq`] | CREATE, MODIFY, QUERY and DESTROY | CQ context |
//! | [`qp`] | CREATE, QUERY, DESTROY, the state transitions | QP context, address path |
//! | [`rmp`] | CREATE, MODIFY, QUERY and DESTROY | work queue, RMP context |
//! | [`dct`] | CREATE, DRAIN, QUERY and DESTROY | DCT context |
//! | [`xrc`] | ALLOC and DEALLOC; CREATE, ARM, QUERY and DESTROY | XRC SRQ context |
//!
//! ```
//! use rushmem_mlx5::prm::{CmdError, CmdStatus, DecodeError, cq};
//!
//! let create = cq::CreateCq { umem_id: 0x56, umem_valid: true, ..Default::default() };
//! let mailbox: [u8; 272] = create.encode();
//! assert_eq!(cq::CreateCq::decode(&mailbox), Ok(create));
//!
//! // A NIC that refuses, and what the driver makes of it.
//! let mut answer = [0; cq::CreateCqOut::LEN];
//! let refusal = CmdError { status: CmdStatus::BAD_PARAM, syndrome: 0x1234 };
//! refusal.write(&mut answer);
//! assert_eq!(cq::CreateCqOut::decode(&answer), Err(DecodeError::Refused(refusal)));
//!
//! // Any command prints on one line, without what is zero.
//! let line = "CreateCq { umem_id: 56, umem_valid: true }";
//! assert_eq!(format!("{create:x?}"), line);
//! ```
//!
//! Decoding never panics and is lenient: bits outside the table are ignored, as firmware mostly does. Where that matters,
//! [`Command::decode_exact`] names the first byte that the table does not explain. Encoding cuts a value to its field's
//! width.

pub mod caps;
pub mod cmd;
pub mod counter;
pub mod cq;
pub mod dct;
pub(crate) mod field;
pub mod lag;
pub(crate) mod layout;
pub mod mkey;
pub mod pd;
pub mod qp;
pub mod rmp;
pub mod uar;
pub mod umem;
pub mod xrc;

pub use cmd::{CmdError, CmdOpcode, CmdStatus, Header};
pub use field::{Bits, Field, FieldInfo, Value};

use core::fmt;

/// A structure with a table of fields.
pub trait Layout: Copy {
    /// Bytes on the wire.
    const LEN: usize;
    /// The table, in its order.
    const FIELDS: &'static [FieldInfo];
}

/// A command and its input mailbox.
pub trait Command: Copy {
    /// The opcode, which [`Command::decode`] demands.
    const OPCODE: CmdOpcode;
    /// `[u8; N]`.
    type Mailbox: AsRef<[u8]> + AsMut<[u8]>;
    /// The NIC's answer.
    type Output: Response;

    /// Returns the mailbox, all bytes.
    fn encode(&self) -> Self::Mailbox;

    /// Reads a mailbox. Bytes behind it and bits outside the table are ignored.
    fn decode(bytes: &[u8]) -> Result<Self, DecodeError>;

    /// Reads a mailbox like [`Command::decode`], but a bit outside the table is an error, because it asks for something
    /// that this crate does not model.
    fn decode_exact(bytes: &[u8]) -> Result<Self, DecodeError> {
        let command = Self::decode(bytes)?;
        let again = command.encode();
        match again.as_ref().iter().zip(bytes).position(|(ours, theirs)| ours != theirs) {
            None => Ok(command),
            Some(byte) => Err(DecodeError::Unexplained { byte }),
        }
    }
}

/// A command's output mailbox.
pub trait Response: Copy {
    /// `[u8; N]`.
    type Mailbox: AsRef<[u8]> + AsMut<[u8]>;
    /// All zero, for a NIC to fill.
    const EMPTY: Self::Mailbox;

    /// Returns the mailbox of a command that succeeded.
    fn encode(&self) -> Self::Mailbox;

    /// Reads a mailbox; a status other than OK is an error.
    fn decode(bytes: &[u8]) -> Result<Self, DecodeError>;
}

/// Why bytes are no such mailbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DecodeError {
    /// The mailbox is too short.
    Length {
        /// Bytes that it has at least.
        need: usize,
        /// Bytes at hand.
        have: usize,
    },
    /// It is another command's.
    Opcode {
        /// The opcode demanded.
        expected: CmdOpcode,
        /// The opcode found.
        found: CmdOpcode,
    },
    /// The NIC refused the command.
    Refused(CmdError),
    /// A byte holds bits outside the table.
    Unexplained {
        /// Offset in the mailbox.
        byte: usize,
    },
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length { need, have } => write!(f, "mailbox of {have} bytes, but {need} are needed"),
            Self::Opcode { expected, found } => write!(f, "mailbox of {found}, but {expected} is expected"),
            Self::Refused(error) => error.fmt(f),
            Self::Unexplained { byte } => {
                write!(f, "reserved or unmodelled bits set in mailbox byte {byte:#x}")
            }
        }
    }
}

impl core::error::Error for DecodeError {}

fn mailbox<const N: usize>(bytes: &[u8]) -> Result<&[u8; N], DecodeError> {
    bytes.first_chunk().ok_or(DecodeError::Length { need: N, have: bytes.len() })
}

fn input_mailbox<const N: usize>(bytes: &[u8], expected: CmdOpcode) -> Result<&[u8; N], DecodeError> {
    let found = Header::decode(bytes)?.opcode;
    if found != expected {
        return Err(DecodeError::Opcode { expected, found });
    }
    mailbox(bytes)
}

fn output_mailbox<const N: usize>(bytes: &[u8]) -> Result<&[u8; N], DecodeError> {
    CmdError::check(bytes)?;
    mailbox(bytes)
}

/// Returns the 8-byte entries of the list behind a mailbox's fixed part of `fixed` bytes: page addresses, or translations.
pub fn list_entries(mailbox: &[u8], fixed: usize) -> impl Iterator<Item = u64> + '_ {
    let list = mailbox.get(fixed..).unwrap_or_default();
    list.as_chunks().0.iter().map(|entry| u64::from_be_bytes(*entry))
}

#[cfg(test)]
mod tests;
