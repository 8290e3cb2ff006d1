//! Error type of the send-entry parser, [`View`](super::View).

use crate::ctrl::Opcode;
use core::fmt;

/// Why bytes are not a valid send work-queue entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Malformed {
    /// The slice is empty or has fewer segments than the entry's `ds`.
    Short {
        /// Number of segments that the entry's `ds` requires.
        need: u8,
        /// Number of segments in the slice.
        have: usize,
    },
    /// The entry's size (`ds`) is not valid for its opcode.
    Ds {
        /// Opcode of the entry.
        opcode: Opcode,
        /// Size in the entry, in 16-byte segments.
        ds: u8,
        /// Minimum `ds` for the opcode.
        least: u8,
        /// Maximum `ds` for the opcode.
        most: u8,
    },
    /// The opcode is not defined.
    UnknownOpcode(Opcode),
    /// The opcode is defined, but this crate does not support it.
    Unsupported(Opcode),
    /// The opcode is defined, but datagram QPs do not support it.
    NotOfDatagrams(Opcode),
    /// The opcode has no such variant. For masked atomics: the operand size is invalid.
    Opmod {
        /// Opcode of the entry.
        opcode: Opcode,
        /// Value of the entry's opmod field.
        opmod: u8,
    },
    /// Bits of the entry that must be zero are set.
    Reserved {
        /// Name of the field that contains the bits.
        field: &'static str,
        /// The set bits that must be zero.
        bits: u32,
    },
    /// The fence mode is not one of the five defined modes.
    FenceMode(u8),
    /// The inline payload is longer than the rest of the entry.
    InlineLength {
        /// Payload length in the inline header, in bytes.
        len: u32,
        /// Number of bytes that the entry has after the inline header.
        room: u32,
    },
    /// The opcode does not allow inline data.
    InlineNotAllowed(Opcode),
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Short { need, have } => write!(f, "entry of {need} segments truncated to {have}"),
            Self::Ds { opcode, ds, least, most } => {
                write!(f, "ds {ds} does not fit {opcode}, which takes {least} to {most}")
            }
            Self::UnknownOpcode(opcode) => write!(f, "unknown {opcode}"),
            Self::Unsupported(opcode) => write!(f, "{opcode} is not supported"),
            Self::NotOfDatagrams(opcode) => write!(f, "{opcode} is not an operation of datagram QPs"),
            Self::Opmod { opcode, opmod } => write!(f, "{opcode} has no opmod {opmod:#04x}"),
            Self::Reserved { field, bits } => write!(f, "reserved bits {bits:#x} set next to {field}"),
            Self::FenceMode(mode) => write!(f, "fence mode {mode} does not exist"),
            Self::InlineLength { len, room } => {
                write!(f, "inline data of {len} bytes, but the entry has room for {room}")
            }
            Self::InlineNotAllowed(opcode) => write!(f, "{opcode} takes no inline data"),
        }
    }
}

impl core::error::Error for Malformed {}
