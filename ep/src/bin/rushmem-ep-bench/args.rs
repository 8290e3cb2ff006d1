//! Command-line options of the benchmark, and the runtime settings that they require.

use std::num::NonZeroU32;

use clap::{Parser, ValueEnum};
use rushmem::config::{Bytes, Config};
use rushmem_ep::{Dtype, Layout, Partials, Shape};

pub(crate) type AnyError = Box<dyn std::error::Error + Send + Sync>;

/// Measures dispatch and combine of a mixture of experts, and verifies every sum first.
///
/// The defaults are the shape of DeepSeek-V3. PEs as processes are started by `rushmem run -n N`.
#[derive(Parser, Debug)]
#[command(name = "rushmem-ep-bench")]
pub(crate) struct Args {
    /// Number of PEs, as threads of this process
    #[arg(long, value_name = "N")]
    pes: Option<NonZeroU32>,
    /// Number of tokens per PE
    #[arg(long, value_name = "T", default_value = "128")]
    pub(crate) tokens: usize,
    /// Number of elements per token
    #[arg(long, value_name = "H", default_value = "7168")]
    pub(crate) hidden: usize,
    /// Number of experts, over all PEs
    #[arg(long, value_name = "E", default_value = "256")]
    pub(crate) experts: usize,
    /// Number of experts that each token chooses
    #[arg(long, value_name = "K", default_value = "8")]
    pub(crate) top_k: usize,
    /// Where experts find their rows: a row per choice, or a row per token and an index
    #[arg(long, value_enum, default_value = "rows")]
    layout: LayoutArg,
    /// Element type of dispatched rows
    #[arg(long, value_enum, default_value = "bf16")]
    dtype: DtypeArg,
    /// Element type of the partial sums that combine sends
    #[arg(long, value_enum, default_value = "f32")]
    partials: PartialsArg,
    /// Routing of the tokens
    #[arg(long, value_enum, default_value = "uniform")]
    pub(crate) routing: RoutingArg,
    /// Room for rows of a PE; enough for every routing by default
    #[arg(long, value_name = "ROWS")]
    max_rows: Option<usize>,
    /// Number of blocks per kernel; the PE's share of the machine by default
    #[arg(long, value_name = "B")]
    blocks: Option<u32>,
    /// Number of threads per block
    #[arg(long, value_name = "N")]
    threads: Option<u32>,
    /// Number of repetitions of each measurement
    #[arg(long, value_name = "N", default_value = "20", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) repetitions: u32,
    /// Print the result as a line of JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(ValueEnum, Clone, Copy, Debug)]
enum LayoutArg {
    Rows,
    Tokens,
}

#[derive(ValueEnum, Clone, Copy, Debug)]
enum DtypeArg {
    Bf16,
    Fp8,
}

#[derive(ValueEnum, Clone, Copy, Debug)]
enum PartialsArg {
    F32,
    Bf16,
}

/// How the benchmark assigns experts to tokens.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RoutingArg {
    /// Each token chooses different experts at random.
    Uniform,
    /// All tokens choose the first experts.
    Skewed,
}

impl Args {
    pub(crate) fn shape(&self) -> Shape {
        let shape = Shape::new(self.tokens, self.hidden, self.experts, self.top_k);
        let layout = match self.layout {
            LayoutArg::Rows => Layout::Rows,
            LayoutArg::Tokens => Layout::Tokens,
        };
        let partials = match self.partials {
            PartialsArg::F32 => Partials::F32,
            PartialsArg::Bf16 => Partials::Bf16,
        };
        let dtype = match self.dtype {
            DtypeArg::Bf16 => Dtype::Bf16,
            DtypeArg::Fp8 => Dtype::E4m3,
        };
        let (max_rows, blocks, threads) = (self.max_rows, self.blocks, self.threads);
        Shape { layout, partials, dtype, max_rows, blocks, threads, ..shape }
    }

    /// Loads the runtime's settings. Makes the symmetric heap large enough, unless the user has set its size.
    pub(crate) fn config(&self) -> Result<Config, AnyError> {
        let mut config = Config::load()?;
        if let Some(pes) = self.pes {
            if let (Some(pe), Some(n_pes)) = (config.pe, config.n_pes) {
                return Err(format!(
                    "--pes {pes} asks for PEs as threads, but this process is PE {pe} of {n_pes}: leave it out"
                )
                .into());
            }
            config.set("pes", &pes.to_string())?;
        }
        let told = rushmem::bootstrap::n_pes(&config)?;
        let n_pes =
            told.ok_or("the launcher does not tell the number of PEs: use Open MPI, Slurm or `rushmem run`")?;
        let shape = self.shape();
        shape.check(n_pes)?;
        if self.top_k > self.experts {
            return Err(format!("{} choices among {} experts: use fewer", self.top_k, self.experts).into());
        }
        let own = (shape.rows(n_pes) + 2 * self.tokens) * self.hidden * 2 + self.tokens * self.top_k * 8;
        let needed = (shape.heap_bytes(n_pes) + own as u64).next_multiple_of(1 << 21) + (4 << 20);
        if config.is_default("heap_bytes") {
            config.heap_bytes = Bytes(config.heap_bytes.0.max(needed));
        }
        config.check()?;
        rushmem::init_log(&config)?;
        Ok(config)
    }
}
