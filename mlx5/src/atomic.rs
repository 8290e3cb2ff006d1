//! The atomics of a ConnectX and their effect on a word.

/// Operand width of a remote atomic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    /// 4 bytes.
    Four,
    /// 8 bytes.
    Eight,
}

impl Width {
    /// Returns the width in bytes.
    #[must_use]
    pub fn bytes(self) -> u64 {
        match self {
            Width::Four => 4,
            Width::Eight => 8,
        }
    }
}

/// A remote atomic operation. 4-byte atomics use the low halves of the operands. Memory holds little-endian integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtomicOp {
    /// Adds field by field. A set bit in `boundary` is the top bit of a field, which no carry leaves. With a `boundary`
    /// of 0 this is a plain add, with all ones an exclusive or.
    Add {
        /// The addend.
        add: u64,
        /// Field boundaries.
        boundary: u64,
    },
    /// Replaces the bits in `swap_mask` by those of `swap` if `(old ^ compare) & compare_mask` is 0.
    CompareSwap {
        /// Value to compare with.
        compare: u64,
        /// Value to store.
        swap: u64,
        /// Bits that are compared.
        compare_mask: u64,
        /// Bits that are replaced.
        swap_mask: u64,
    },
}

impl AtomicOp {
    /// Returns the value that replaces `old`, or `None` if the comparison failed.
    #[must_use]
    pub fn apply(self, old: u64, width: Width) -> Option<u64> {
        let bits = if width == Width::Four { 0xffff_ffff } else { u64::MAX };
        let new = match self {
            AtomicOp::Add { add, boundary } => {
                let low = !boundary;
                (old & low).wrapping_add(add & low) ^ ((old ^ add) & boundary)
            }
            AtomicOp::CompareSwap { compare, swap, compare_mask, swap_mask } => {
                if (old ^ compare) & compare_mask & bits != 0 {
                    return None;
                }
                (old & !swap_mask) | (swap & swap_mask)
            }
        };
        Some(new & bits)
    }
}
