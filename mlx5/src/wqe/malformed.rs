//! Defects of an entry.

use crate::ctrl::Opcode;
use core::fmt;

/// The reason why bytes are not an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Malformed {
    /// Fewer segments than `ds` were passed, or none.
    Short {
        /// Segments that `ds` requires.
        need: u8,
        /// Segments that were passed.
        have: usize,
    },
    /// `ds` does not fit the opcode.
    Ds {
        /// The operation.
        opcode: Opcode,
        /// The field's value.
        ds: u8,
        /// Minimum of the opcode.
        least: u8,
        /// Maximum of the opcode.
        most: u8,
    },
    /// No operation has this number.
    UnknownOpcode(Opcode),
    /// The operation exists, but not in this crate.
    Unsupported(Opcode),
    /// The operation exists, but not on a datagram QP.
    NotOfDatagrams(Opcode),
    /// The opcode has no such variant (a masked atomic: no such operand size).
    Opmod {
        /// The operation.
        opcode: Opcode,
        /// The field's value.
        opmod: u8,
    },
    /// Bits that must be zero are not.
    Reserved {
        /// Name of the field that they surround.
        field: &'static str,
        /// The bits.
        bits: u32,
    },
    /// The fence mode is not one of the five defined modes.
    FenceMode(u8),
    /// Inline data runs past the end of the entry.
    InlineLength {
        /// The length in the header, bytes.
        len: u32,
        /// Bytes left in the entry.
        room: u32,
    },
    /// The opcode takes no inline data.
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
