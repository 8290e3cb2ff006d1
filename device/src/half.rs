//! 16-bit floating-point numbers, for reductions.

use bytemuck::{Pod, Zeroable};

/// An IEEE 754 binary16 number, as its bits. Same layout as CUDA's `__half`.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct F16(pub u16);

/// The upper half of a binary32 number, as its bits. Same layout as CUDA's `__nv_bfloat16`.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct Bf16(pub u16);

impl F16 {
    /// Converts a `f32`, rounding to nearest, ties to even.
    pub fn from_f32(value: f32) -> Self {
        let bits = value.to_bits();
        let (sign, magnitude) = ((bits >> 16 & 0x8000) as u16, bits & 0x7fff_ffff);
        let half = if magnitude > 0x7f80_0000 {
            0x7e00
        } else if magnitude >= 0x477f_f000 {
            0x7c00
        } else if magnitude >= 0x3880_0000 {
            // A normal number: the exponent bias changes by 112, and the mantissa loses 13 bits.
            round(magnitude - (112 << 23), 13)
        } else if magnitude >= 0x3300_0000 {
            // A subnormal number, in units of 2^-24.
            let exponent = magnitude >> 23;
            round(magnitude & 0x7f_ffff | 0x80_0000, 126 - exponent)
        } else {
            0
        };
        Self(sign | half)
    }

    /// Returns the number as a `f32`, without loss.
    pub fn to_f32(self) -> f32 {
        let (sign, magnitude) = ((self.0 as u32 & 0x8000) << 16, self.0 as u32 & 0x7fff);
        let bits = if magnitude >= 0x7c00 {
            magnitude << 13 | 0x7f80_0000
        } else if magnitude >= 0x400 {
            (magnitude << 13) + (112 << 23)
        } else {
            // A small multiple of 2^-24, so the product is exact.
            (magnitude as f32 * f32::from_bits(0x3380_0000)).to_bits()
        };
        f32::from_bits(sign | bits)
    }
}

impl Bf16 {
    /// Converts a `f32`, rounding to nearest, ties to even.
    pub fn from_f32(value: f32) -> Self {
        let bits = value.to_bits();
        if bits & 0x7fff_ffff > 0x7f80_0000 {
            return Self((bits >> 16) as u16 | 0x40);
        }
        Self(round(bits, 16))
    }

    /// Returns the number as a `f32`, without loss.
    pub fn to_f32(self) -> f32 {
        f32::from_bits((self.0 as u32) << 16)
    }
}

/// Divides `bits` by `2^by`, rounding to nearest, ties to even. `by` is 1 to 31.
fn round(bits: u32, by: u32) -> u16 {
    let by = by & 31;
    let low = bits & ((1 << by) - 1);
    let (down, middle) = (bits >> by, (1u32 << by) >> 1);
    (down + (low > middle || (low == middle && down & 1 == 1)) as u32) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conversions_round_trip() {
        for bits in 0..=u16::MAX {
            let (half, brain) = (F16(bits), Bf16(bits));
            if half.to_f32().is_nan() {
                assert!(F16::from_f32(half.to_f32()).to_f32().is_nan());
            } else {
                assert_eq!(F16::from_f32(half.to_f32()), half);
            }
            if brain.to_f32().is_nan() {
                assert!(Bf16::from_f32(brain.to_f32()).to_f32().is_nan());
            } else {
                assert_eq!(Bf16::from_f32(brain.to_f32()), brain);
            }
        }
    }

    #[test]
    fn ties_round_to_even() {
        assert_eq!(F16(0x3c00).to_f32(), 1.0);
        assert_eq!(F16(1).to_f32(), 2f32.powi(-24));
        assert_eq!(F16(0x7bff).to_f32(), 65504.0);
        let halves = (0..0x7bffu16).map(|bits| (F16(bits), F16(bits + 1)));
        for (low, high) in halves {
            // The sum of two neighbours needs one more bit, which a binary32 has.
            let middle = (low.to_f32() + high.to_f32()) / 2.0;
            let even = if low.0 & 1 == 0 { low } else { high };
            assert_eq!(F16::from_f32(middle), even, "{middle}");
            assert_eq!(F16::from_f32(f32::from_bits(middle.to_bits() + 1)), high);
            assert_eq!(F16::from_f32(f32::from_bits(middle.to_bits() - 1)), low);
            assert_eq!(F16::from_f32(-middle).0, even.0 | 0x8000);
        }
        assert_eq!(F16::from_f32(65519.9), F16(0x7bff));
        assert_eq!(F16::from_f32(65520.0), F16(0x7c00));
        assert_eq!(F16::from_f32(f32::INFINITY), F16(0x7c00));
        assert_eq!(F16::from_f32(2f32.powi(-25)), F16(0));
        assert_eq!(F16::from_f32(2f32.powi(-25) * 1.001), F16(1));
        assert_eq!(Bf16::from_f32(f32::from_bits(0x3f80_8000)), Bf16(0x3f80));
        assert_eq!(Bf16::from_f32(f32::from_bits(0x3f81_8000)), Bf16(0x3f82));
        assert_eq!(Bf16::from_f32(f32::from_bits(0x3f80_8001)), Bf16(0x3f81));
        assert_eq!(Bf16::from_f32(f32::MAX), Bf16(0x7f80));
    }
}
