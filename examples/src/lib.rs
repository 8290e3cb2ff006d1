//! Code shared by the examples: options, progress, pictures and output files.

mod cli;
mod image;
mod output;
mod progress;

pub use cli::{JobArgs, Result, exit_code, n_pes, need_heap};
pub use image::Image;
pub use output::Output;
pub use progress::Progress;

use rushmem::Pe;

/// Hashes `a` and `b` to a pseudo-random number. The examples fill arrays with it.
pub fn pattern(a: u64, b: u64) -> u32 {
    let mut x = a.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(b).wrapping_add(0x632b_e59b_d9b4_e019);
    x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    (x ^ x >> 31) as u32
}

/// Returns the maximum of `mine` over all PEs. Collective.
///
/// # Errors
/// A PE fails to take part.
pub fn largest(pe: &Pe, mine: f64) -> Result<f64> {
    let all = pe.allgather(&mine.to_le_bytes())?;
    let all = all.iter().filter_map(|bytes| Some(f64::from_le_bytes(bytes.as_slice().try_into().ok()?)));
    Ok(all.fold(mine, f64::max))
}

/// Returns the median of `values`, or 0 if there are none.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}
