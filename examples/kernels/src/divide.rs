//! Division without a panic path.

/// Returns the quotient and the remainder of `a / b`. If `b` is 0, the quotient is 0.
#[inline(always)]
pub(crate) fn divided(a: u32, b: u32) -> (u32, u32) {
    let quotient = a.checked_div(b).unwrap_or(0);
    (quotient, a - quotient * b)
}
