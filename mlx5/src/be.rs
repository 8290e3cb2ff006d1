//! Big-endian integers, as mlx5 structures store them. Byte order is part of the type, so a raw word cannot be mistaken
//! for a number.

use bytemuck::{Pod, Zeroable};
use core::fmt;

macro_rules! big_endian {
    ($($(#[$doc:meta])* $name:ident($int:ty);)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Pod, Zeroable)]
        #[repr(transparent)]
        pub struct $name($int);

        impl $name {
            /// Creates the big-endian word that stores the number `host`.
            #[inline(always)]
            pub const fn new(host: $int) -> Self {
                Self(host.to_be())
            }

            /// Creates the word from its bytes in memory, as a plain native load returns them.
            #[inline(always)]
            pub const fn from_raw(raw: $int) -> Self {
                Self(raw)
            }

            /// Returns the stored number in host order.
            #[inline(always)]
            pub const fn get(self) -> $int {
                <$int>::from_be(self.0)
            }

            /// Returns the word's bytes in memory order as a native integer, ready for a plain store.
            #[inline(always)]
            pub const fn raw(self) -> $int {
                self.0
            }
        }

        impl From<$int> for $name {
            #[inline(always)]
            fn from(host: $int) -> Self {
                Self::new(host)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:#x}", self.get())
            }
        }
    )*};
}

big_endian! {
    /// A 16-bit big-endian word.
    Be16(u16);
    /// A 32-bit big-endian word.
    Be32(u32);
    /// A 64-bit big-endian word.
    Be64(u64);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_significant_byte_first() {
        assert_eq!(bytemuck::bytes_of(&Be16::new(0x1234)), [0x12, 0x34]);
        assert_eq!(bytemuck::bytes_of(&Be32::new(0x1234_5678)), [0x12, 0x34, 0x56, 0x78]);
        assert_eq!(bytemuck::bytes_of(&Be64::new(0x0102_0304_0506_0708)), [1, 2, 3, 4, 5, 6, 7, 8]);
    }

    #[test]
    fn get_undoes_new_and_raw_undoes_from_raw() {
        const WORD: Be32 = Be32::new(0xcafe_0001);
        assert_eq!(WORD.get(), 0xcafe_0001);
        assert_eq!(Be32::from_raw(WORD.raw()), WORD);
    }
}
