//! Remote atomics of a ConnectX: what each operation does to the word in memory.

/// Operand width of a remote atomic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    /// A 4-byte operation, which uses the low half of each operand.
    Four,
    /// An 8-byte operation.
    Eight,
}

impl Width {
    /// Returns the operand width in bytes: 4 or 8.
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
    /// Fetch-and-add on independent bit fields. A set bit in `boundary` is the top bit of a field: no carry propagates
    /// out of it. A `boundary` of 0 makes this a plain add, all ones an exclusive or.
    Add {
        /// The addend, one value per field.
        add: u64,
        /// Mask with the top bit of each field set. Carries stop there.
        boundary: u64,
    },
    /// Masked compare-and-swap: replaces the bits in `swap_mask` by those of `swap` if `(old ^ compare) & compare_mask`
    /// is 0.
    CompareSwap {
        /// Value that memory must hold in the bits of `compare_mask`.
        compare: u64,
        /// Value to store in the bits of `swap_mask`.
        swap: u64,
        /// Mask of the bits that take part in the comparison.
        compare_mask: u64,
        /// Mask of the bits that a successful swap replaces.
        swap_mask: u64,
    },
}

impl AtomicOp {
    /// Returns the value to store in place of `old`, or `None` if the comparison failed and memory stays unchanged.
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
