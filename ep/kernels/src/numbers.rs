//! Conversions between binary32, bf16 and 8-bit e4m3 floating-point numbers, implemented by bit operations.

use rushmem_device::Bf16;

/// Largest finite e4m3 number.
const LARGEST: f32 = 448.0;

/// Smallest magnitude that a scale is computed for, 2^-100. The inverse of a smaller scale would be infinite.
const SMALLEST: f32 = f32::from_bits(27 << 23);

/// Number of consecutive e4m3 elements that share a scale.
pub const SCALED: u32 = 128;

/// Converts a binary32 number to the nearest e4m3 number, with ties to even. Saturates at 448, the largest one.
#[inline(always)]
pub fn e4m3_from_f32(value: f32) -> u8 {
    let bits = value.to_bits();
    let (sign, magnitude) = ((bits >> 24 & 0x80) as u8, bits & 0x7fff_ffff);
    let number = if magnitude > 0x7f80_0000 {
        0x7f
    } else if magnitude >= LARGEST.to_bits() {
        0x7e
    } else if magnitude >= 0x3c80_0000 {
        // Normal: rebias the exponent by 120, and round the mantissa to 3 bits.
        let shifted = magnitude - (120 << 23);
        ((shifted + 0x7_ffff + (shifted >> 20 & 1)) >> 20) as u8
    } else {
        // Subnormal: a multiple of 2^-9. A sum near 2^14 has exactly this precision, so the addition rounds.
        let unit = 16384f32;
        (f32::from_bits(magnitude) + unit).to_bits().wrapping_sub(unit.to_bits()) as u8
    };
    sign | number
}

/// Converts an e4m3 number to binary32, exactly.
#[inline(always)]
pub fn e4m3_to_f32(number: u8) -> f32 {
    let (sign, exponent, mantissa) =
        ((number as u32 & 0x80) << 24, number as u32 >> 3 & 15, number as u32 & 7);
    let magnitude = if number & 0x7f == 0x7f {
        0x7fc0_0000
    } else if exponent == 0 {
        (mantissa as f32 / 512.0).to_bits()
    } else {
        (exponent + 120) << 23 | mantissa << 20
    };
    f32::from_bits(sign | magnitude)
}

/// Returns the e4m3 scale for elements whose largest magnitude is `amax`.
#[inline(always)]
pub fn scale_of(amax: f32) -> f32 {
    floor(amax) / LARGEST
}

/// Returns the factor that maps elements whose largest magnitude is `amax` to the range of e4m3.
#[inline(always)]
pub fn inverse_scale(amax: f32) -> f32 {
    LARGEST / floor(amax)
}

/// Raises magnitudes that are too small for an e4m3 scale. NaN is preserved.
#[inline(always)]
fn floor(amax: f32) -> f32 {
    if amax < SMALLEST { SMALLEST } else { amax }
}

/// Returns the bf16 number represented by an e4m3 number and its scale.
#[inline(always)]
pub fn dequantized(number: u8, scale: f32) -> Bf16 {
    Bf16::from_f32(e4m3_to_f32(number) * scale)
}

/// Unpacks the 8 bf16 elements of a 16-byte chunk.
#[inline(always)]
pub(crate) fn elements(chunk: u128) -> [f32; 8] {
    let at = |i: u32| Bf16((chunk >> (16 * i)) as u16).to_f32();
    [at(0), at(1), at(2), at(3), at(4), at(5), at(6), at(7)]
}

/// Packs 8 numbers into a 16-byte chunk, each rounded to bf16.
#[inline(always)]
pub(crate) fn chunk([a, b, c, d, e, f, g, h]: [f32; 8]) -> u128 {
    let word = |low: f32, high: f32| bf16_bits(low) | bf16_bits(high) << 16;
    join([word(a, b), word(c, d), word(e, f), word(g, h)])
}

/// Returns the bits of `Bf16::from_f32(value)`, without a branch.
#[inline(always)]
fn bf16_bits(value: f32) -> u32 {
    let bits = value.to_bits();
    let (quiet, rounded) = (bits | 0x40_0000, bits.wrapping_add(0x7fff + (bits >> 16 & 1)));
    let is_nan = bits & 0x7fff_ffff > 0x7f80_0000;
    (if is_nan { quiet } else { rounded }) >> 16
}

/// Packs four 32-bit words into a 16-byte chunk, the first one in the low bits.
#[inline(always)]
pub(crate) fn join([a, b, c, d]: [u32; 4]) -> u128 {
    a as u128 | (b as u128) << 32 | (c as u128) << 64 | (d as u128) << 96
}

/// Returns the largest magnitude among the bf16 elements of a chunk, as the bits of a binary32 number.
///
/// Magnitudes compare like their bits. NaN is larger than all numbers.
#[inline(always)]
pub(crate) fn amax_bits(chunk: u128) -> u32 {
    let at = |i: u32| ((chunk >> (16 * i)) as u32 & 0x7fff) << 16;
    at(0).max(at(1)).max(at(2).max(at(3))).max(at(4).max(at(5)).max(at(6).max(at(7))))
}

/// Multiplies the 8 bf16 elements of a chunk by `factor`, and converts them to e4m3.
#[inline(always)]
pub(crate) fn quantized(chunk: u128, factor: f32) -> u64 {
    let [a, b, c, d, e, f, g, h] = elements(chunk).map(|x| e4m3_from_f32(x * factor) as u64);
    a | b << 8 | c << 16 | d << 24 | e << 32 | f << 40 | g << 48 | h << 56
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_e4m3_number_survives_a_round_trip() {
        for number in 0..=u8::MAX {
            let value = e4m3_to_f32(number);
            if value.is_nan() {
                assert_eq!(number & 0x7f, 0x7f);
                assert_eq!(e4m3_from_f32(value) & 0x7f, 0x7f);
            } else {
                assert_eq!(e4m3_from_f32(value), number, "{value}");
            }
        }
        assert_eq!((e4m3_to_f32(0x7e), e4m3_to_f32(1), e4m3_to_f32(0x38)), (448.0, 1.0 / 512.0, 1.0));
    }

    #[test]
    fn conversion_rounds_to_nearest_with_ties_to_even() {
        for number in 0..0x7e_u8 {
            let (low, high) = (e4m3_to_f32(number), e4m3_to_f32(number + 1));
            let middle = (low + high) / 2.0;
            let even = if number & 1 == 0 { number } else { number + 1 };
            assert_eq!(e4m3_from_f32(middle), even, "{middle}");
            assert_eq!(e4m3_from_f32(f32::from_bits(middle.to_bits() + 1)), number + 1);
            assert_eq!(e4m3_from_f32(f32::from_bits(middle.to_bits() - 1)), number);
            assert_eq!(e4m3_from_f32(-middle), even | 0x80);
        }
        assert_eq!(e4m3_from_f32(f32::INFINITY), 0x7e);
        assert_eq!(e4m3_from_f32(1e9), 0x7e);
    }

    #[test]
    fn rounding_without_a_branch_gives_the_same_bf16() {
        for high in 0..=u16::MAX {
            for low in [0, 1, 0x7fff, 0x8000, 0x8001, 0xffff] {
                let value = f32::from_bits(u32::from(high) << 16 | low);
                assert_eq!(bf16_bits(value), u32::from(Bf16::from_f32(value).0), "{:#x}", value.to_bits());
            }
        }
    }

    #[test]
    fn scale_of_zeros_is_finite() {
        assert!(inverse_scale(0.0).is_finite() && scale_of(0.0) > 0.0);
        assert_eq!(scale_of(448.0), 1.0);
        assert!(scale_of(f32::NAN).is_nan());
    }
}
