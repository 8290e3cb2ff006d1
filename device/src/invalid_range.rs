//! Encoding of out-of-range slices in the offsets of invalid handles, for error records to report.

use core::fmt;
use core::ops::Range;

/// Lowest offset of an invalid handle. No heap, segment or local buffer reaches it.
const FIRST: u64 = 3 << 62;

/// Values of bits 60 and 61 of an invalid handle's offset: the kind of range that it encodes.
mod kind {
    /// Kind of a range of elements: start, end and length of the object in three fields.
    pub(super) const ELEMENTS: u64 = 0;
    /// Kind of a range of elements whose indices do not fit into [`FIELD`](super::FIELD) bits.
    pub(super) const MANY_ELEMENTS: u64 = 1;
    /// Kind of a range of the first blocks of a strided object.
    pub(super) const BLOCKS: u64 = 2;
    /// Kind of a range without numbers: [`CAST`](super::InvalidRange::CAST) or [`ADDRESS`](super::InvalidRange::ADDRESS).
    pub(super) const OTHER: u64 = 3;
}

/// Width of a field of an invalid handle's offset, in bits. A small range of elements has three fields; the other kinds
/// have one field, and one of double width.
const FIELD: u32 = 20;

/// A range that exceeds its object, encoded in the offset of an invalid handle.
///
/// Small ranges are encoded exactly. A range with an element at or past 2^20 is encoded by how far it exceeds the
/// object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidRange(u64);

impl InvalidRange {
    /// Encodes that an object was cast to a type that does not fit it.
    pub(crate) const CAST: Self = Self::new(kind::OTHER, 0);
    /// Encodes that an address is in no memory that kernels can name by offset.
    pub(crate) const ADDRESS: Self = Self::new(kind::OTHER, 1);
    /// A value that is no offset: error records use it for "no offset".
    pub(crate) const NO_OFFSET: u64 = u64::MAX;

    const fn new(kind: u64, numbers: u64) -> Self {
        Self(FIRST | kind << (3 * FIELD) | numbers)
    }

    /// Encodes elements `start..end` of an object of `len` elements at `offset`. If `offset` is invalid already,
    /// returns its range.
    ///
    /// Outlined, because only incorrect programs need it.
    #[cold]
    #[inline(never)]
    pub(crate) const fn elements(offset: u64, start: u64, end: u64, len: u64) -> Self {
        if Self::is_bad(offset) {
            Self(offset)
        } else if (start | end | len) >> FIELD == 0 {
            Self::new(kind::ELEMENTS, (start << FIELD | end) << FIELD | len)
        } else {
            // An excess of 0 stands for a range whose end precedes its start.
            let excess = if start <= end { end - len } else { 0 };
            Self::new(kind::MANY_ELEMENTS, bounded(excess, FIELD) << (2 * FIELD) | bounded(len, 2 * FIELD))
        }
    }

    /// Encodes the first `n` of `count` blocks of a strided object at `offset`. If `offset` is invalid already, returns
    /// its range.
    #[cold]
    #[inline(never)]
    pub(crate) const fn blocks(offset: u64, n: u64, count: u64) -> Self {
        if Self::is_bad(offset) {
            return Self(offset);
        }
        Self::new(kind::BLOCKS, bounded(n, FIELD) << (2 * FIELD) | bounded(count, 2 * FIELD))
    }

    /// Decodes the offset of a handle. Returns `None` if the handle is valid.
    pub const fn of_offset(offset: u64) -> Option<Self> {
        if Self::is_bad(offset) && offset != Self::NO_OFFSET { Some(Self(offset)) } else { None }
    }

    /// Returns whether the error is an address that is in no symmetric memory or registered buffer.
    pub const fn is_address(self) -> bool {
        self.0 == Self::ADDRESS.0
    }

    #[inline(always)]
    pub(crate) const fn is_bad(offset: u64) -> bool {
        offset >= FIRST
    }

    #[inline(always)]
    pub(crate) const fn offset(self) -> u64 {
        self.0
    }

    /// Returns the `width` bits from bit `from` on.
    const fn field(self, from: u32, width: u32) -> u64 {
        self.0 >> from & ((1 << width) - 1)
    }
}

/// Returns `value`, or the largest number of `bits` bits if that is less.
const fn bounded(value: u64, bits: u32) -> u64 {
    let most = (1 << bits) - 1;
    if value < most { value } else { most }
}

impl fmt::Display for InvalidRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let many = |value: u64, bits: u32| if value == (1_u64 << bits) - 1 { "at least " } else { "" };
        let (high, low) = (self.field(2 * FIELD, FIELD), self.field(0, 2 * FIELD));
        let (at_least, or_more) = (many(high, FIELD), many(low, 2 * FIELD));
        match self.field(3 * FIELD, 2) {
            kind::ELEMENTS => {
                let Range { start, end } = high..self.field(FIELD, FIELD);
                write!(f, "elements {start}..{end} of an object of {} elements", self.field(0, FIELD))
            }
            kind::MANY_ELEMENTS if high == 0 => {
                write!(f, "a range that ends before it starts, of an object of {or_more}{low} elements")
            }
            kind::MANY_ELEMENTS => write!(
                f,
                "a range that ends {at_least}{high} elements behind the end of an object of {or_more}{low} elements"
            ),
            kind::BLOCKS => write!(f, "the first {at_least}{high} of {or_more}{low} blocks"),
            _ if self.is_address() => {
                f.write_str("an address in no symmetric memory or registered buffer of this PE")
            }
            _ => f.write_str("an object as elements of a type that does not divide or align it"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::InvalidRange;

    #[test]
    fn invalid_offset_encodes_range_and_length() {
        let cases = [
            (InvalidRange::elements(0, 50, 101, 100), "elements 50..101 of an object of 100 elements"),
            (InvalidRange::elements(64, 7, 3, 8), "elements 7..3 of an object of 8 elements"),
            (
                InvalidRange::elements(0, 0, (1 << 20) + 1, 1 << 20),
                "a range that ends 1 elements behind the end of an object of 1048576 elements",
            ),
            (
                InvalidRange::elements(0, 3, u64::MAX, 2),
                "a range that ends at least 1048575 elements behind the end of an object of 2 elements",
            ),
            (
                InvalidRange::elements(0, 1 << 30, 4, 9),
                "a range that ends before it starts, of an object of 9 elements",
            ),
            (InvalidRange::blocks(0, 9, 8), "the first 9 of 8 blocks"),
            (InvalidRange::ADDRESS, "an address in no symmetric memory or registered buffer of this PE"),
            (InvalidRange::CAST, "an object as elements of a type that does not divide or align it"),
        ];
        for (part, text) in cases {
            assert_eq!(part.to_string(), text);
            assert_eq!(InvalidRange::of_offset(part.offset()), Some(part));
            // A part of it stays the same.
            assert_eq!(InvalidRange::elements(part.offset(), 0, 1, 0), part);
            assert_eq!(InvalidRange::blocks(part.offset(), 1, 0), part);
        }
    }

    #[test]
    fn ordinary_offsets_decode_to_none() {
        for offset in [0, 1 << 40, 1 << 63, (3 << 62) - 1, u64::MAX] {
            assert_eq!(InvalidRange::of_offset(offset), None, "{offset:#x}");
        }
    }
}
