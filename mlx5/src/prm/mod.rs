//! PRM (DevX) command mailboxes: how a NIC's objects are created, modified and queried.
//!
//! A command is a struct ([`CreateCq`](cq::CreateCq), ...) that encodes to its input mailbox and decodes from it; its
//! response works the same way. Both directions are typed, because a driver writes what a NIC model reads. There is one
//! file per object:
//!
//! | file | commands | structure |
//! |---|---|---|
//! | [`cmd`] | | opcodes, statuses, header, error |
//! | [`caps`] | QUERY_HCA_CAP, QUERY_ROCE_ADDRESS | capability pages |
//! | [`pd`], [`uar`] | ALLOC and DEALLOC | |
//! | [`uctx`] | CREATE and DESTROY | |
//! | [`umem`] | CREATE and DESTROY | umem, MTT |
//! | [`mkey`] | CREATE and DESTROY | memory-key context |
//! | [`counter`] | ALLOC, QUERY and DEALLOC | |
//! | [`lag`] | QUERY | |
//! | [`mcg`] | ATTACH and DETACH | |
//! | [`cq`] | CREATE, MODIFY, QUERY and DESTROY | CQ context |
//! | [`qp`] | CREATE, QUERY, DESTROY, the state transitions | QP context, address path |
//! | [`rmp`] | CREATE, MODIFY, QUERY and DESTROY | work queue, RMP context |
//! | [`dct`] | CREATE, DRAIN, QUERY and DESTROY | DCT context |
//! | [`hca`] | life cycle of a function | |
//! | [`queue`] | | command-queue entry, mailbox block |
//! | [`eq`] | CREATE and DESTROY | EQ context, EQE |
//! | [`port`] | InfiniBand ports, ACCESS_REG, MAD_IFC | port context, access registers |
//! | [`sq`] | CREATE, MODIFY, QUERY and DESTROY of SQs and RQs | their contexts |
//! | [`tir`] | transport domains, TISs, TIRs and RQTs | their contexts |
//! | [`flow`] | flow tables, groups, entries and counters | their contexts, header fields |
//! | [`vport`] | QUERY and MODIFY of a virtual Ethernet port | port context |
//! | [`registers`] | | access registers of an Ethernet port |
//! | [`xrc`] | ALLOC and DEALLOC; CREATE, ARM, QUERY and DESTROY | XRC SRQ context |
//!
//! ```
//! use rushmem_mlx5::prm::{CmdError, CmdStatus, DecodeError, cq};
//!
//! let create = cq::CreateCq { umem_id: 0x56, umem_valid: true, ..Default::default() };
//! let mailbox: [u8; 272] = create.encode();
//! assert_eq!(cq::CreateCq::decode(&mailbox), Ok(create));
//!
//! // A NIC rejects the command, and the driver sees why.
//! let mut answer = [0; cq::CreateCqOut::LEN];
//! let refusal = CmdError { status: CmdStatus::BAD_PARAM, syndrome: 0x1234 };
//! refusal.write(&mut answer);
//! assert_eq!(cq::CreateCqOut::decode(&answer), Err(DecodeError::Refused(refusal)));
//!
//! // Any command prints on one line, omitting fields that are zero.
//! let line = "CreateCq { umem_id: 56, umem_valid: true }";
//! assert_eq!(format!("{create:x?}"), line);
//! ```
//!
//! Decoding never panics and is lenient: bits outside the table are ignored, as they mostly are by firmware. Where they
//! matter, [`Command::decode_exact`] reports the first byte that the table does not account for. Encoding truncates a
//! value to the width of its field.

pub mod caps;
pub mod cmd;
pub mod counter;
pub mod cq;
pub mod dct;
pub mod eq;
pub(crate) mod field;
pub mod flow;
pub mod hca;
pub mod lag;
pub(crate) mod layout;
pub mod mcg;
pub mod mkey;
pub mod pd;
pub mod port;
pub mod qp;
pub mod queue;
pub mod registers;
pub mod rmp;
pub mod sq;
pub mod tir;
pub mod uar;
pub mod uctx;
pub mod umem;
pub mod vport;
pub mod xrc;

pub use cmd::{CmdError, CmdOpcode, CmdStatus, Header};
pub use field::{Bits, Bytes, Field, FieldInfo, Value};

use core::fmt;

/// A PRM structure that is declared as a list of bit fields.
pub trait Layout: Copy {
    /// Length of the encoded structure, in bytes.
    const LEN: usize;
    /// All known fields, in the order of declaration.
    const FIELDS: &'static [FieldInfo];
}

/// A PRM command that can be encoded as its input mailbox.
pub trait Command: Copy {
    /// The opcode that the mailbox starts with and that [`Command::decode`] requires.
    const OPCODE: CmdOpcode;
    /// The encoded input mailbox, an array `[u8; N]`.
    type Mailbox: AsRef<[u8]> + AsMut<[u8]>;
    /// The decoded output mailbox that the NIC replies with.
    type Output: Response;

    /// Encodes the command as its input mailbox.
    fn encode(&self) -> Self::Mailbox;

    /// Parses an input mailbox. A list that follows it is ignored, and so are bits without a known field.
    fn decode(bytes: &[u8]) -> Result<Self, DecodeError>;

    /// Like [`Command::decode`], but rejects set bits without a known field, because they request something that this
    /// crate does not model.
    fn decode_exact(bytes: &[u8]) -> Result<Self, DecodeError> {
        let command = Self::decode(bytes)?;
        let again = command.encode();
        match again.as_ref().iter().zip(bytes).position(|(ours, theirs)| ours != theirs) {
            None => Ok(command),
            Some(byte) => Err(DecodeError::Unexplained { byte }),
        }
    }
}

/// The output mailbox of a PRM command.
pub trait Response: Copy {
    /// The encoded output mailbox, an array `[u8; N]`.
    type Mailbox: AsRef<[u8]> + AsMut<[u8]>;
    /// A zeroed mailbox, for a NIC to fill in.
    const EMPTY: Self::Mailbox;

    /// Encodes the output mailbox of a command that succeeded.
    fn encode(&self) -> Self::Mailbox;

    /// Parses an output mailbox. A status other than OK is returned as an error.
    fn decode(bytes: &[u8]) -> Result<Self, DecodeError>;
}

/// Why a mailbox could not be decoded, including the NIC's own refusal of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DecodeError {
    /// The mailbox is too short.
    Length {
        /// Minimum length of the mailbox, in bytes.
        need: usize,
        /// Actual length of the mailbox, in bytes.
        have: usize,
    },
    /// The mailbox belongs to another command.
    Opcode {
        /// Opcode of the command being decoded.
        expected: CmdOpcode,
        /// Opcode in the mailbox.
        found: CmdOpcode,
    },
    /// The NIC rejected the command.
    Refused(CmdError),
    /// A byte of the mailbox has set bits that belong to no known field.
    Unexplained {
        /// Offset of the byte in the mailbox.
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

/// Returns the 8-byte entries (page addresses or translations) of the list that follows a mailbox's fixed part of
/// `fixed` bytes.
pub fn list_entries(mailbox: &[u8], fixed: usize) -> impl Iterator<Item = u64> + '_ {
    let list = mailbox.get(fixed..).unwrap_or_default();
    list.as_chunks().0.iter().map(|entry| u64::from_be_bytes(*entry))
}

#[cfg(test)]
mod tests;
