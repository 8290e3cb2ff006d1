//! Divides the rows of a matrix among the PEs.

/// The contiguous rows that one PE owns. The bands of two PEs differ by at most one row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Band {
    /// Index of the band's first row in the whole matrix.
    pub first: usize,
    /// Number of rows in the band.
    pub rows: usize,
}

/// Returns the band of PE `pe` if `rows` rows are divided among `n_pes` PEs.
#[inline(always)]
pub fn bands(rows: usize, pe: u32, n_pes: u32) -> Band {
    let cut = |pe: u64| (rows as u64 * pe).checked_div(n_pes as u64).unwrap_or(0) as usize;
    let first = cut(pe as u64);
    Band { first, rows: cut(pe as u64 + 1) - first }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bands_cover_all_rows_once() {
        for (rows, n_pes) in [(300, 4), (7, 3), (5, 5), (1, 1), (1000, 7)] {
            let all: Vec<Band> = (0..n_pes).map(|pe| bands(rows, pe, n_pes)).collect();
            let mut next = 0;
            for band in &all {
                assert_eq!(band.first, next);
                next += band.rows;
            }
            assert_eq!(next, rows);
            let (least, most) = (all.iter().map(|b| b.rows).min(), all.iter().map(|b| b.rows).max());
            assert!(most.unwrap() - least.unwrap() <= 1);
        }
    }
}
