//! The sizes of a mixture-of-experts exchange, and how much memory it needs.

use crate::{Error, Result, kernels};

/// Maximum number of (token, choice) pairs per PE: a fault word has room for their indices.
const MOST_PAIRS: usize = (1 << 23) - 1;

const SCALED: usize = kernels::SCALED as usize;

/// Where experts find the rows that dispatch sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Each (token, choice) has a row of its own. The rows of an expert are contiguous.
    Rows,
    /// Each token that a PE received has one row. Experts gather their rows by [`index`](crate::Dispatcher::index), as
    /// fused grouped GEMMs can, so dispatch copies nothing.
    Tokens,
}

/// Element type of the partial sums that combine sends: a PE adds the results of its experts for a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Partials {
    /// binary32. The sum of a token is rounded once.
    F32,
    /// bf16: half as many bytes, and each partial sum is rounded too.
    Bf16,
}

/// Element type of dispatched rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dtype {
    /// Rows in bf16: the tokens, unchanged.
    Bf16,
    /// e4m3, with a binary32 scale for each 128 elements: their largest magnitude divided by 448.
    ///
    /// If any of these elements is infinite or NaN, all of them become NaN.
    E4m3,
}

/// Layout, element types and sizes of a [`Dispatcher`](crate::Dispatcher). They must be the same on all PEs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Where experts find the dispatched rows.
    pub layout: Layout,
    /// Element type of the rows that dispatch sends.
    pub dtype: Dtype,
    /// Element type of the partial sums that combine sends.
    pub partials: Partials,
    /// Maximum number of tokens per PE in a call.
    pub tokens: usize,
    /// Number of elements per token: a multiple of 128.
    pub hidden: usize,
    /// Number of experts in the job: a multiple of the number of PEs.
    pub experts: usize,
    /// Number of experts that each token chooses: 1 to 8.
    pub top_k: usize,
    /// Maximum number of rows that the experts of a PE can get. The default, `None`, is enough if no token chooses an
    /// expert twice.
    pub max_rows: Option<usize>,
    /// Number of blocks per kernel. The default, `None`, uses the PE's share of the machine.
    pub blocks: Option<u32>,
    /// Number of threads per block: a multiple of 32, at most 512. The default is 512 on a GPU, and 64 natively.
    pub threads: Option<u32>,
}

impl Shape {
    /// Creates a shape with [`Layout::Rows`], [`Dtype::Bf16`] and [`Partials::F32`].
    pub fn new(tokens: usize, hidden: usize, experts: usize, top_k: usize) -> Self {
        Self {
            layout: Layout::Rows,
            dtype: Dtype::Bf16,
            partials: Partials::F32,
            tokens,
            hidden,
            experts,
            top_k,
            max_rows: None,
            blocks: None,
            threads: None,
        }
    }

    /// Returns the size of a dispatched row in bytes, a multiple of 16.
    pub fn row_bytes(&self) -> usize {
        match self.dtype {
            Dtype::Bf16 => 2 * self.hidden,
            Dtype::E4m3 => (self.hidden + self.hidden / SCALED * 4).next_multiple_of(16),
        }
    }

    /// Returns the size of a partial sum in bytes.
    pub fn partial_bytes(&self) -> usize {
        let element = if self.partials == Partials::F32 { 4 } else { 2 };
        element * self.hidden
    }

    /// Returns how many rows the experts of a PE can get in a job of `n_pes` PEs.
    pub fn rows(&self, n_pes: u32) -> usize {
        let n_pes = n_pes as usize;
        let most = self.top_k.min(self.experts / n_pes.max(1));
        self.max_rows.unwrap_or(n_pes * self.tokens * most)
    }

    /// Returns an upper bound on the symmetric memory that a [`Dispatcher`](crate::Dispatcher) allocates on each PE, in
    /// bytes.
    ///
    /// Without NIC peers, it allocates less. The application's tokens, results and sums are not included.
    pub fn heap_bytes(&self, n_pes: u32) -> u64 {
        let (row, rows, n_pes) = (self.row_bytes(), self.rows(n_pes), n_pes as usize);
        let tokens =
            n_pes * self.tokens * (row + 4 * kernels::RECORD_WORDS as usize + 2 * self.partial_bytes());
        let rows = rows * 4 + if self.layout == Layout::Rows { rows * row } else { 0 };
        let words = 16 * n_pes + 4 * self.tokens * self.top_k;
        let tables = 4 * (n_pes + 8) * (self.experts + 8);
        (tokens + rows + words + tables) as u64 + (2 << 20)
    }

    /// Checks that all sizes are valid for a job of `n_pes` PEs.
    ///
    /// # Errors
    /// - [`Error::Shape`] with the invalid number and its limits.
    pub fn check(&self, n_pes: u32) -> Result<()> {
        let Self { tokens, hidden, experts, top_k, .. } = *self;
        let refuse = |what: String| Err(Error::Shape(what));
        if hidden == 0 || hidden % SCALED != 0 {
            return refuse(format!("{hidden} elements a token: use a multiple of {SCALED}"));
        }
        if experts == 0 || experts % n_pes as usize != 0 {
            return refuse(format!("{experts} experts on {n_pes} PEs: use a multiple of the number of PEs"));
        }
        if !(1..=8).contains(&top_k) {
            return refuse(format!("{top_k} choices a token: use 1 to 8"));
        }
        if tokens == 0 || tokens.saturating_mul(top_k) > MOST_PAIRS {
            return refuse(format!("{tokens} tokens with {top_k} choices: use 1 to {MOST_PAIRS} pairs"));
        }
        // Kernels use 32-bit indices of tokens, words of tables and rows.
        let most = i32::MAX as usize;
        if tokens.saturating_mul(n_pes as usize) > most / kernels::RECORD_WORDS as usize {
            return refuse(format!("{tokens} tokens on {n_pes} PEs: use fewer than 2^26 in all"));
        }
        if experts.saturating_mul(n_pes as usize + 8) > most {
            return refuse(format!("{experts} experts on {n_pes} PEs: use fewer"));
        }
        let rows = self.rows(n_pes);
        if !(1..=most).contains(&rows) {
            return refuse(format!("a buffer of {rows} rows: use 1 to {most}"));
        }
        if let Some(threads) = self.threads.filter(|n| *n == 0 || *n > 512 || n % 32 != 0) {
            return refuse(format!("blocks of {threads} threads: use a multiple of 32, at most 512"));
        }
        if self.blocks == Some(0) {
            return refuse("a grid of 0 blocks: use 1 or more".into());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(shape: Shape) -> String {
        shape.check(4).map_or_else(|error| error.to_string(), |()| String::new())
    }

    #[test]
    fn refuses_shapes_that_no_exchange_can_have() {
        let good = Shape::new(128, 7168, 256, 8);
        assert_eq!(error(good), "");
        for bad in [
            Shape { hidden: 100, ..good },
            Shape { experts: 6, ..good },
            Shape { top_k: 9, ..good },
            Shape { top_k: 0, ..good },
            Shape { tokens: 0, ..good },
            Shape { tokens: 1 << 22, ..good },
            Shape { experts: 1 << 28, ..good },
            Shape { threads: Some(48), ..good },
            Shape { blocks: Some(0), ..good },
            Shape { max_rows: Some(0), ..good },
        ] {
            assert!(error(bad).contains(": use "), "{bad:?}: {}", error(bad));
        }
    }

    #[test]
    fn rows_are_whole_chunks() {
        let shape = Shape { dtype: Dtype::E4m3, ..Shape::new(1, 7168, 8, 8) };
        assert_eq!(shape.row_bytes(), 7168 + 56 * 4);
        assert_eq!(Shape { hidden: 128, ..shape }.row_bytes(), 144);
    }
}
