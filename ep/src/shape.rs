//! The sizes of a mixture-of-experts exchange, and how much memory it needs.

use crate::{Error, Result, kernels};

/// Maximum number of rows that an expert can get from one PE: a signal word holds their number below the rejection bit.
const MOST_ROWS: usize = (1 << (kernels::WORD_COUNT_BITS - 1)) - 1;

const SCALED: usize = kernels::SCALED as usize;

/// How dispatch sends rows: for low latency, or for high throughput.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Rows are sent immediately, to fixed slots for each expert and source PE.
    LowLatency,
    /// PEs first exchange row counts, and then send rows to their final position.
    Throughput,
}

/// Element type of dispatched rows. Combine always uses bf16.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dtype {
    /// Rows in bf16: the tokens, unchanged.
    Bf16,
    /// e4m3, with a binary32 scale for each 128 elements: their largest magnitude divided by 448.
    ///
    /// If any of these elements is infinite or NaN, all of them become NaN.
    E4m3,
}

/// Form, element type and sizes of a [`Dispatcher`](crate::Dispatcher). They must be the same on all PEs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Whether rows are sent for low latency or for high throughput.
    pub form: Form,
    /// Element type of the rows that dispatch sends.
    pub dtype: Dtype,
    /// Maximum number of tokens per PE in a call.
    pub tokens: usize,
    /// Number of elements per token: a multiple of 128.
    pub hidden: usize,
    /// Number of experts in the job: a multiple of the number of PEs.
    pub experts: usize,
    /// Number of experts that each token chooses: 1 to 8.
    pub top_k: usize,
    /// Low-latency form: maximum number of rows that an expert can get from one PE. The default, `tokens`, is enough if
    /// no token chooses an expert twice.
    pub capacity: usize,
    /// Throughput form: maximum number of rows that a PE can get. The default, `None`, is enough if no token chooses an
    /// expert twice.
    pub max_rows: Option<usize>,
    /// Number of blocks per kernel. The default, `None`, uses the PE's share of the machine.
    pub blocks: Option<u32>,
    /// Number of threads per block: a multiple of 32, at most 512. The default is 512 on a GPU, and 64 natively.
    pub threads: Option<u32>,
}

impl Shape {
    /// Creates a shape in which rows are sent immediately, as suits decode with 1 to 512 tokens per PE. Rows are in
    /// bf16.
    pub fn low_latency(tokens: usize, hidden: usize, experts: usize, top_k: usize) -> Self {
        Self {
            form: Form::LowLatency,
            dtype: Dtype::Bf16,
            tokens,
            hidden,
            experts,
            top_k,
            capacity: tokens,
            max_rows: None,
            blocks: None,
            threads: None,
        }
    }

    /// Creates a shape in which PEs exchange row counts before they send rows, as suits prefill with 4,096 or more
    /// tokens per PE. Rows are in bf16.
    pub fn throughput(tokens: usize, hidden: usize, experts: usize, top_k: usize) -> Self {
        Self { form: Form::Throughput, ..Self::low_latency(tokens, hidden, experts, top_k) }
    }

    /// Returns the size of a dispatched row in bytes, a multiple of 16.
    pub fn row_bytes(&self) -> usize {
        match self.dtype {
            Dtype::Bf16 => 2 * self.hidden,
            Dtype::E4m3 => (self.hidden + self.hidden / SCALED * 4).next_multiple_of(16),
        }
    }

    /// Returns the capacity, in rows, of a PE's receive buffer in a job of `n_pes` PEs.
    pub fn rows(&self, n_pes: u32) -> usize {
        let n_pes = n_pes as usize;
        match self.form {
            Form::LowLatency => self.experts * self.capacity,
            Form::Throughput => {
                let most = self.top_k.min(self.experts / n_pes.max(1));
                self.max_rows.unwrap_or(n_pes * self.tokens * most)
            }
        }
    }

    /// Returns the maximum number of rows that NIC peers can send back to a PE in a combine.
    pub(crate) fn back_rows(&self) -> usize {
        match self.form {
            Form::LowLatency => self.experts * self.capacity,
            Form::Throughput => self.tokens * self.top_k,
        }
    }

    /// Returns an upper bound on the symmetric memory that a [`Dispatcher`](crate::Dispatcher) allocates on each PE, in
    /// bytes.
    ///
    /// Without NIC peers, it allocates less. The application's tokens, results and sums are not included.
    pub fn heap_bytes(&self, n_pes: u32) -> u64 {
        let (row, copies) = (self.row_bytes(), if self.form == Form::LowLatency { 2 } else { 1 });
        let rows = copies * self.rows(n_pes) * row + self.back_rows() * (row + 2 * self.hidden);
        let words = 8 * (2 * self.experts + n_pes as usize) + 4 * self.tokens * self.top_k;
        let tables = 4 * (n_pes as usize + 8) * (self.experts + 4);
        (rows + words + tables) as u64 + (2 << 20)
    }

    /// Checks that all sizes are valid for a job of `n_pes` PEs.
    ///
    /// # Errors
    /// - [`Error::Shape`] with the invalid number and its limits.
    pub fn check(&self, n_pes: u32) -> Result<()> {
        let Self { tokens, hidden, experts, top_k, capacity, .. } = *self;
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
        if tokens == 0 || tokens.saturating_mul(top_k) > MOST_ROWS {
            return refuse(format!("{tokens} tokens with {top_k} choices: use 1 to {MOST_ROWS} pairs"));
        }
        if self.form == Form::LowLatency && !(1..=MOST_ROWS).contains(&capacity) {
            return refuse(format!("a capacity of {capacity} rows: use 1 to {MOST_ROWS}"));
        }
        // Kernels use 32-bit row indices over all experts, as if each had the maximum number of rows.
        let most = if self.form == Form::LowLatency { capacity } else { tokens * top_k };
        if most.saturating_mul(experts) > i32::MAX as usize {
            return refuse(format!("{experts} experts with {most} rows each: use fewer than 2^31 in all"));
        }
        let all = capacity.saturating_mul(n_pes as usize);
        if self.form == Form::LowLatency && all > MOST_ROWS {
            return refuse(format!(
                "a capacity of {capacity} rows on {n_pes} PEs: use at most {MOST_ROWS} in all"
            ));
        }
        let rows = self.rows(n_pes);
        if rows == 0 || u32::try_from(rows.max(self.back_rows())).is_err() {
            return refuse(format!("a buffer of {rows} rows: use 1 to {}", u32::MAX));
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
        let good = Shape::low_latency(128, 7168, 256, 8);
        assert_eq!(error(good), "");
        assert_eq!(error(Shape { form: Form::Throughput, ..good }), "");
        for bad in [
            Shape { hidden: 100, ..good },
            Shape { experts: 6, ..good },
            Shape { top_k: 9, ..good },
            Shape { top_k: 0, ..good },
            Shape { tokens: 0, ..good },
            Shape { tokens: 1 << 22, ..good },
            Shape { capacity: 0, ..good },
            Shape { capacity: 1 << 22, experts: 1 << 12, ..good },
            Shape { threads: Some(48), ..good },
            Shape { blocks: Some(0), ..good },
            Shape { max_rows: Some(0), form: Form::Throughput, ..good },
        ] {
            assert!(error(bad).contains(": use "), "{bad:?}: {}", error(bad));
        }
    }

    #[test]
    fn rows_are_whole_chunks() {
        let shape = Shape { dtype: Dtype::E4m3, ..Shape::low_latency(1, 7168, 8, 8) };
        assert_eq!(shape.row_bytes(), 7168 + 56 * 4);
        assert_eq!(Shape { hidden: 128, ..shape }.row_bytes(), 144);
    }
}
