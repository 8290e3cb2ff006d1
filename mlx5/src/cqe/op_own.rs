//! The last byte of a completion-queue entry: its kind and owner bit.

use bytemuck::{Pod, Zeroable};
use core::fmt;

/// The kind of a completion-queue entry: bits 7:4 of its last byte.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct CqeOpcode(pub u8);

impl CqeOpcode {
    /// A send work-queue entry completed.
    pub const REQ: Self = Self(0);
    /// An RDMA WRITE with immediate data arrived and consumed a receive.
    pub const RESP_WR_IMM: Self = Self(1);
    /// A SEND arrived and consumed a receive.
    pub const RESP_SEND: Self = Self(2);
    /// A SEND with immediate data arrived and consumed a receive.
    pub const RESP_SEND_IMM: Self = Self(3);
    /// A SEND with invalidate arrived and consumed a receive.
    pub const RESP_SEND_INV: Self = Self(4);
    /// The completion queue was resized; later entries are in its new buffer.
    pub const RESIZE_CQ: Self = Self(5);
    /// Placeholder entry that reports no received packet.
    pub const NO_PACKET: Self = Self(6);
    /// A data-integrity (signature) check failed.
    pub const SIG_ERR: Self = Self(12);
    /// A send work-queue entry failed.
    pub const REQ_ERR: Self = Self(13);
    /// A receive failed.
    pub const RESP_ERR: Self = Self(14);
    /// Never written by the NIC. Software uses it to mark an empty slot.
    pub const INVALID: Self = Self(15);

    /// Returns whether a completion of this kind reports a failure, so it is laid out as [`ErrCqe`](super::ErrCqe).
    #[inline(always)]
    pub const fn is_error(self) -> bool {
        self.0 == Self::REQ_ERR.0 || self.0 == Self::RESP_ERR.0
    }

    /// Returns the constant's name, such as `"REQ_ERR"`, or `None` for an unknown kind.
    pub const fn name(self) -> Option<&'static str> {
        Some(match self {
            Self::REQ => "REQ",
            Self::RESP_WR_IMM => "RESP_WR_IMM",
            Self::RESP_SEND => "RESP_SEND",
            Self::RESP_SEND_IMM => "RESP_SEND_IMM",
            Self::RESP_SEND_INV => "RESP_SEND_INV",
            Self::RESIZE_CQ => "RESIZE_CQ",
            Self::NO_PACKET => "NO_PACKET",
            Self::SIG_ERR => "SIG_ERR",
            Self::REQ_ERR => "REQ_ERR",
            Self::RESP_ERR => "RESP_ERR",
            Self::INVALID => "INVALID",
            _ => return None,
        })
    }
}

impl fmt::Debug for CqeOpcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "CQE opcode {}", self.0),
        }
    }
}

impl fmt::Display for CqeOpcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// The last byte of a completion-queue entry: kind (bits 7:4), format (3:2), solicited event (1), owner (0).
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Pod, Zeroable)]
#[repr(transparent)]
pub struct OpOwn(pub u8);

impl OpOwn {
    /// An empty slot for a consumer that checks the kind: INVALID, owner 0.
    pub const EMPTY: Self = Self(0xf0);
    /// An empty slot for a consumer that checks only the owner bit: INVALID, owner 1.
    pub const EMPTY_OWNED_BY_NIC: Self = Self(0xf1);

    /// Creates the byte for an entry in the plain format (0). `owner` is the bit from [`owner_bit`].
    #[inline(always)]
    pub const fn new(opcode: CqeOpcode, solicited: bool, owner: bool) -> Self {
        Self(opcode.0 << 4 | (solicited as u8) << 1 | owner as u8)
    }

    /// Returns the kind of the completion-queue entry.
    #[inline(always)]
    pub const fn opcode(self) -> CqeOpcode {
        CqeOpcode(self.0 >> 4)
    }

    /// Returns the entry's format: 0 plain, 1 with up to 32 bytes of data inside the entry, 2 with up to 64 bytes
    /// before it, 3 compressed.
    #[inline(always)]
    pub const fn format(self) -> u8 {
        self.0 >> 2 & 3
    }

    /// Returns whether the sender requested an event.
    #[inline(always)]
    pub const fn is_solicited(self) -> bool {
        self.0 & 2 != 0
    }

    /// Returns the phase bit: the parity of the NIC's lap around the ring.
    #[inline(always)]
    pub const fn owner(self) -> bool {
        self.0 & 1 != 0
    }

    /// Returns whether the slot holds completion `consumer` (a free-running count) of a ring of `entries` slots, a
    /// power of two.
    #[inline(always)]
    pub const fn is_ready(self, consumer: u32, entries: u32) -> bool {
        self.opcode().0 != CqeOpcode::INVALID.0 && self.owner() == owner_bit(consumer, entries)
    }
}

impl fmt::Debug for OpOwn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} owner {}", self.opcode(), self.owner() as u8)
    }
}

/// Returns the owner bit that the NIC writes with completion `index` (a free-running count) to a ring of `entries`
/// slots, a power of two. It flips on every lap.
#[inline(always)]
pub const fn owner_bit(index: u32, entries: u32) -> bool {
    index & entries != 0
}
