//! Bit fields of PRM structures, addressed as in NVIDIA's programmer's reference manual (PRM), and the types they hold.

/// A bit field in a PRM structure of `LEN` bytes, given by bit offset and width.
///
/// Offsets are those of the manual: bit 0 is the most significant bit of the first byte, and 32-bit words are
/// big-endian.
///
/// ```
/// use rushmem_mlx5::prm::Field;
///
/// const LOG_CQ_SIZE: Field<64> = Field::new(0x63, 5);
/// let mut context = [0; 64];
/// LOG_CQ_SIZE.set(&mut context, 10);
/// assert_eq!(context[12], 0x0a);
/// ```
///
/// A field that crosses a 32-bit word, or the end of the structure, does not compile:
///
/// ```compile_fail
/// use rushmem_mlx5::prm::Field;
///
/// const ACROSS: Field<64> = Field::new(0x1c, 8);
/// ```
///
/// ```compile_fail
/// use rushmem_mlx5::prm::Field;
///
/// const BEYOND: Field<64> = Field::new(0x200, 8);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field<const LEN: usize> {
    offset: usize,
    width: u32,
}

impl<const LEN: usize> Field<LEN> {
    /// Creates a field of 1 to 32 bits within one 32-bit word.
    ///
    /// # Panics
    ///
    /// If it crosses a word or the end of the structure. In a `const`, that is a compile error.
    pub const fn new(offset: usize, width: u32) -> Self {
        assert!(width > 0 && offset % 32 + width as usize <= 32);
        assert!(offset + width as usize <= LEN * 8);
        Self { offset, width }
    }

    const fn shift(self) -> u32 {
        32 - (self.offset % 32) as u32 - self.width
    }

    const fn mask(self) -> u32 {
        u32::MAX >> (32 - self.width)
    }

    /// Extracts the field from `bytes`, shifted down to bit 0.
    pub fn get(self, bytes: &[u8; LEN]) -> u32 {
        let word = bytes.as_chunks().0.get(self.offset / 32).map_or(0, |word| u32::from_be_bytes(*word));
        word >> self.shift() & self.mask()
    }

    /// Sets the field to the low bits of `value`. Other bits are unchanged.
    pub fn set(self, bytes: &mut [u8; LEN], value: u32) {
        if let Some(word) = bytes.as_chunks_mut().0.get_mut(self.offset / 32) {
            let others = u32::from_be_bytes(*word) & !(self.mask() << self.shift());
            *word = (others | (value & self.mask()) << self.shift()).to_be_bytes();
        }
    }
}

/// A type that can be stored at a bit offset of a PRM structure: a number, a byte string or a nested structure.
///
/// The tables in this module check at compile time that offset and width suit the type and the structure.
pub trait Value: Copy {
    /// The widths and bit offsets at which the type can be stored.
    const BITS: Bits;

    /// Reads the value that starts at bit `offset` and is `width` bits wide.
    fn read_at<const LEN: usize>(bytes: &[u8; LEN], offset: usize, width: u32) -> Self;

    /// Stores the value at bit `offset`. Bits beyond `width` are dropped, surrounding bits are unchanged.
    fn write_at<const LEN: usize>(self, bytes: &mut [u8; LEN], offset: usize, width: u32);
}

/// The widths and bit offsets at which a [`Value`] can be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bits {
    /// Any width up to this many bits, within one 32-bit word.
    Upto(u32),
    /// Exactly this many bits, at a byte boundary.
    Exactly(usize),
}

impl Bits {
    /// Panics, which is a compile error in a `const`, unless the type can be stored at `offset` in a structure of `len`
    /// bytes.
    pub(crate) const fn check(self, offset: usize, width: usize, len: usize) {
        assert!(offset + width <= len * 8, "the field lies past the structure's end");
        match self {
            Self::Upto(most) => {
                assert!(width > 0 && width <= most as usize, "the field is too wide for its type");
                assert!(offset % 32 + width <= 32, "the field crosses a 32-bit word");
            }
            Self::Exactly(bits) => {
                assert!(width == bits, "the field does not have its type's width");
                assert!(offset.is_multiple_of(8), "the field does not start at a byte");
            }
        }
    }
}

/// Panics, which is a compile error in a `const`, if two fields of a structure overlap.
pub(crate) const fn check_disjoint(fields: &[FieldInfo]) {
    let mut i = 0;
    while i < fields.len() {
        let mut j = 0;
        while j < i {
            let apart = fields[i].offset + fields[i].width <= fields[j].offset
                || fields[j].offset + fields[j].width <= fields[i].offset;
            assert!(apart, "two fields overlap");
            j += 1;
        }
        i += 1;
    }
}

/// A named field of a PRM structure, for generic printing and checking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldInfo {
    /// Name of the field in the programmer's reference manual.
    pub name: &'static str,
    /// Bit offset from the start of the structure.
    pub offset: usize,
    /// Width of the field, in bits.
    pub width: usize,
}

macro_rules! unsigned {
    ($($ty:ty: $bits:literal, $from:expr, $to:expr;)*) => {$(
        impl Value for $ty {
            const BITS: Bits = Bits::Upto($bits);

            fn read_at<const LEN: usize>(bytes: &[u8; LEN], offset: usize, width: u32) -> Self {
                $from(Field::<LEN> { offset, width }.get(bytes))
            }

            fn write_at<const LEN: usize>(self, bytes: &mut [u8; LEN], offset: usize, width: u32) {
                Field::<LEN> { offset, width }.set(bytes, $to(self));
            }
        }
    )*};
}

unsigned! {
    bool: 1, |bits| bits != 0, u32::from;
    u8: 8, |bits| bits as u8, u32::from;
    u16: 16, |bits| bits as u16, u32::from;
    u32: 32, |bits| bits, u32::from;
}

impl Value for u64 {
    const BITS: Bits = Bits::Exactly(64);

    fn read_at<const LEN: usize>(bytes: &[u8; LEN], offset: usize, width: u32) -> Self {
        Self::from_be_bytes(Value::read_at(bytes, offset, width))
    }

    fn write_at<const LEN: usize>(self, bytes: &mut [u8; LEN], offset: usize, width: u32) {
        self.to_be_bytes().write_at(bytes, offset, width);
    }
}

impl<const N: usize> Value for [u8; N] {
    const BITS: Bits = Bits::Exactly(N * 8);

    fn read_at<const LEN: usize>(bytes: &[u8; LEN], offset: usize, _: u32) -> Self {
        let mut out = [0; N];
        for (to, from) in out.iter_mut().zip(bytes.iter().skip(offset / 8)) {
            *to = *from;
        }
        out
    }

    fn write_at<const LEN: usize>(self, bytes: &mut [u8; LEN], offset: usize, _: u32) {
        for (to, from) in bytes.iter_mut().skip(offset / 8).zip(self) {
            *to = from;
        }
    }
}

/// Bytes without further structure, of any number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bytes<const N: usize>(pub [u8; N]);

impl<const N: usize> Default for Bytes<N> {
    fn default() -> Self {
        Self([0; N])
    }
}

impl<const N: usize> Value for Bytes<N> {
    const BITS: Bits = Bits::Exactly(N * 8);

    fn read_at<const LEN: usize>(bytes: &[u8; LEN], offset: usize, width: u32) -> Self {
        Self(Value::read_at(bytes, offset, width))
    }

    fn write_at<const LEN: usize>(self, bytes: &mut [u8; LEN], offset: usize, width: u32) {
        self.0.write_at(bytes, offset, width);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_leaves_its_neighbours_alone() {
        let mut bytes = [0xa5; 8];
        let field: Field<8> = Field::new(0x23, 5);
        field.set(&mut bytes, 0xff);
        assert_eq!(bytes, [0xa5, 0xa5, 0xa5, 0xa5, 0xbf, 0xa5, 0xa5, 0xa5]);
        assert_eq!(field.get(&bytes), 0x1f);
        field.set(&mut bytes, 0);
        assert_eq!(bytes[4], 0xa0);
    }

    #[test]
    fn whole_words_and_single_bits() {
        let mut bytes = [0; 8];
        Field::<8>::new(0, 32).set(&mut bytes, 0x0102_0304);
        Field::<8>::new(63, 1).set(&mut bytes, 1);
        assert_eq!(bytes, [1, 2, 3, 4, 0, 0, 0, 1]);
        assert_eq!(Field::<8>::new(0, 32).get(&bytes), 0x0102_0304);
    }

    #[test]
    fn long_values_start_at_byte_boundaries() {
        let mut bytes = [0xa5; 16];
        0x0102_0304_0506_0708_u64.write_at(&mut bytes, 32, 64);
        assert_eq!(bytes[..13], [0xa5, 0xa5, 0xa5, 0xa5, 1, 2, 3, 4, 5, 6, 7, 8, 0xa5]);
        assert_eq!(u64::read_at(&bytes, 32, 64), 0x0102_0304_0506_0708);
        [9_u8; 6].write_at(&mut bytes, 80, 48);
        assert_eq!(bytes[10..], [9; 6]);
    }
}
