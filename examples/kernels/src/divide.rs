//! Division that cannot panic.

/// Returns quotient and remainder; a quotient of 0 if `b` is 0.
#[inline(always)]
pub(crate) fn divided(a: u32, b: u32) -> (u32, u32) {
    let quotient = a.checked_div(b).unwrap_or(0);
    (quotient, a - quotient * b)
}
