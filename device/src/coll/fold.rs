//! The element loops of reductions.

use super::element::{ElementKind, Located, Reduce};
use super::half::{Bf16, F16};
use crate::arch;

/// `out = a op b`, element by element, each thread of a group its share. All threads of a group take the same elements
/// in every call, so that several calls need no barrier between them.
///
/// One function for all types and reductions: `op` and `kind` are [`Reduce`] and [`ElementKind`], as numbers for which
/// [`is_defined`](super::element::is_defined) holds. Others do nothing.
///
/// # Safety
/// All three are valid for `bytes` bytes, a whole number of elements, and aligned for them. `out` may be `a` or `b`.
#[inline(never)]
#[allow(clippy::too_many_arguments)] // plain words: see `call`
pub(super) unsafe fn fold(
    op: u32,
    kind: u32,
    out: *mut u8,
    a: *const u8,
    b: *const u8,
    bytes: u64,
    rank: u32,
    size: u32,
) {
    macro_rules! each {
        ($t:ty, $f:expr) => {{
            let f = $f;
            let (out, a, b) = (out.cast::<$t>(), a.cast::<$t>(), b.cast::<$t>());
            let len = bytes as usize / size_of::<$t>();
            let mut i = rank as usize;
            while i < len {
                // SAFETY: the caller's promise.
                unsafe { arch::write(out.add(i), f(arch::read(a.add(i)), arch::read(b.add(i)))) };
                i += size as usize;
            }
        }};
    }
    // What has no sign.
    macro_rules! unsigned {
        ($t:ty) => {
            match op {
                SUM => each!($t, |a: $t, b: $t| a.wrapping_add(b)),
                PROD => each!($t, |a: $t, b: $t| a.wrapping_mul(b)),
                AND => each!($t, |a: $t, b: $t| a & b),
                OR => each!($t, |a: $t, b: $t| a | b),
                XOR => each!($t, |a: $t, b: $t| a ^ b),
                MIN => each!($t, |a: $t, b: $t| if b < a { b } else { a }),
                MAX => each!($t, |a: $t, b: $t| if b > a { b } else { a }),
                _ => {}
            }
        };
    }
    macro_rules! signed {
        ($t:ty, $unsigned:ty) => {
            match op {
                MIN => each!($t, |a: $t, b: $t| if b < a { b } else { a }),
                MAX => each!($t, |a: $t, b: $t| if b > a { b } else { a }),
                _ => unsigned!($unsigned),
            }
        };
    }
    macro_rules! float {
        ($t:ty, $up:expr, $down:expr) => {
            match op {
                SUM => each!($t, |a: $t, b: $t| $down($up(a) + $up(b))),
                PROD => each!($t, |a: $t, b: $t| $down($up(a) * $up(b))),
                MIN => each!($t, |a: $t, b: $t| if $up(b) < $up(a) || $up(a).is_nan() { b } else { a }),
                MAX => each!($t, |a: $t, b: $t| if $up(b) > $up(a) || $up(a).is_nan() { b } else { a }),
                _ => {}
            }
        };
    }
    match kind {
        U8 => unsigned!(u8),
        I8 => signed!(i8, u8),
        U16 => unsigned!(u16),
        I16 => signed!(i16, u16),
        U32 => unsigned!(u32),
        I32 => signed!(i32, u32),
        U64 => unsigned!(u64),
        I64 => signed!(i64, u64),
        HALF => float!(F16, F16::to_f32, F16::from_f32),
        BRAIN => float!(Bf16, Bf16::to_f32, Bf16::from_f32),
        F32 => float!(f32, core::convert::identity::<f32>, core::convert::identity::<f32>),
        F64 => float!(f64, core::convert::identity::<f64>, core::convert::identity::<f64>),
        LOCATED => each!(Located, |a: Located, b: Located| {
            let better = if op == MIN { b.value < a.value } else { b.value > a.value };
            let tie = b.value == a.value && b.index < a.index;
            if better || tie || a.value.is_nan() && !b.value.is_nan() { b } else { a }
        }),
        _ => {}
    }
}

const SUM: u32 = Reduce::Sum as u32;
const PROD: u32 = Reduce::Prod as u32;
const MIN: u32 = Reduce::Min as u32;
const MAX: u32 = Reduce::Max as u32;
const AND: u32 = Reduce::And as u32;
const OR: u32 = Reduce::Or as u32;
const XOR: u32 = Reduce::Xor as u32;

const U8: u32 = ElementKind::U8 as u32;
const I8: u32 = ElementKind::I8 as u32;
const U16: u32 = ElementKind::U16 as u32;
const I16: u32 = ElementKind::I16 as u32;
const U32: u32 = ElementKind::U32 as u32;
const I32: u32 = ElementKind::I32 as u32;
const U64: u32 = ElementKind::U64 as u32;
const I64: u32 = ElementKind::I64 as u32;
const HALF: u32 = ElementKind::F16 as u32;
const BRAIN: u32 = ElementKind::Bf16 as u32;
const F32: u32 = ElementKind::F32 as u32;
const F64: u32 = ElementKind::F64 as u32;
const LOCATED: u32 = ElementKind::Located as u32;
