//! Command-line options of the Jacobi example, and the block sizes derived from them.

use std::path::PathBuf;

use clap::Parser;
use rushmem::config::Config;
use rushmem_example_kernels::{Extent, JacobiShape};
use rushmem_examples::{JobArgs, Result, need_heap};

use crate::dims::balanced;

/// Computes how heat spreads on a regular grid in three or two dimensions, and verifies the result.
///
/// The size of a PE's block is fixed, so more PEs compute a larger grid: weak scaling.
#[derive(Parser)]
#[command(name = "jacobi")]
pub(crate) struct Args {
    /// PEs along x, y and z [default: the most cubic grid of all PEs]
    #[arg(long, value_name = "X,Y,Z", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=65_536))]
    dims: Vec<u32>,
    /// Cells of a PE's block along every axis, or along x, y and z
    #[arg(
        long,
        value_name = "N | X,Y,Z",
        value_delimiter = ',',
        default_value = "32",
        value_parser = clap::value_parser!(u32).range(1..=1 << 20)
    )]
    size: Vec<u32>,
    /// Two dimensions: --dims and --size have no Z
    #[arg(long)]
    two_d: bool,
    /// Steps per repetition
    #[arg(long, value_name = "N", default_value = "100", value_parser = clap::value_parser!(u64).range(1..=1 << 32))]
    pub(crate) steps: u64,
    /// Steps per kernel launch
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u64).range(1..=1 << 32))]
    pub(crate) launch_steps: u64,
    /// Kernel launches per graph
    #[arg(long, value_name = "N", default_value = "10", value_parser = clap::value_parser!(u64).range(1..=1 << 16))]
    pub(crate) graph_launches: u64,
    /// Launch each kernel individually, without graphs
    #[arg(long, conflicts_with = "graph_launches")]
    pub(crate) no_graph: bool,
    /// Number of repetitions, whose median is reported, after one to warm up
    #[arg(long, value_name = "N", default_value = "3", value_parser = clap::value_parser!(u32).range(1..=1 << 16))]
    pub(crate) repetitions: u32,
    /// Compare with the analytic solution even if a serial computation would be fast
    #[arg(long)]
    pub(crate) analytic: bool,
    /// Run with these numbers of PEs in sequence, and print a table
    #[arg(
        long,
        value_name = "N,...",
        value_delimiter = ',',
        conflicts_with = "dims",
        value_parser = clap::value_parser!(u32).range(1..)
    )]
    pub(crate) scaling: Vec<u32>,
    /// Write the table as an SVG plot
    #[arg(long, value_name = "FILE", requires = "scaling")]
    pub(crate) plot: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) job: JobArgs,
}

impl Args {
    /// Returns the shape of each requested run in a job of `n_pes` PEs.
    pub(crate) fn shapes(&self, n_pes: u32) -> Result<Vec<JacobiShape>> {
        let cells = self.cells()?;
        let shape = |pes| JacobiShape { pes, cells, is_flat: self.two_d };
        if self.scaling.is_empty() {
            return Ok(vec![shape(self.grid_of_pes(n_pes)?)]);
        }
        if let Some(most) = self.scaling.iter().find(|&&n| n > n_pes) {
            return Err(format!(
                "--scaling asks for {most} PEs, but the job has {n_pes}: use --pes {most}, or `rushmem run -n {most} jacobi`"
            )
            .into());
        }
        Ok(self.scaling.iter().map(|&n| shape(balanced(n, self.two_d))).collect())
    }

    fn grid_of_pes(&self, n_pes: u32) -> Result<Extent> {
        let found = balanced(n_pes, self.two_d);
        let dims = match (&self.dims[..], self.two_d) {
            ([], _) => return Ok(found),
            (&[x, y], true) => Extent { x, y, z: 1 },
            (&[x, y, z], false) => Extent { x, y, z },
            (numbers, is_flat) => return Err(wrong_count("--dims", numbers, is_flat).into()),
        };
        let count: u128 = self.dims.iter().map(|&n| u128::from(n)).product();
        if count != u128::from(n_pes) {
            return Err(format!(
                "--dims {} is a grid of {count} PEs, but the job has {n_pes}: use --dims {}, or another number of PEs",
                listed(&self.dims),
                listed(&axes(found, self.two_d))
            )
            .into());
        }
        Ok(dims)
    }

    fn cells(&self) -> Result<Extent> {
        let cells = match (&self.size[..], self.two_d) {
            (&[n], true) => Extent { x: n, y: n, z: 1 },
            (&[n], false) => Extent { x: n, y: n, z: n },
            (&[x, y], true) => Extent { x, y, z: 1 },
            (&[x, y, z], false) => Extent { x, y, z },
            (numbers, is_flat) => return Err(wrong_count("--size", numbers, is_flat).into()),
        };
        // Kernels index cells with 32 bits, including the cells of all halos.
        let count = u128::from(cells.x) * u128::from(cells.y) * u128::from(cells.z);
        if count > 1 << 29 {
            return Err(
                format!("--size {} gives a PE {count} cells, more than 2^29", listed(&self.size)).into()
            );
        }
        Ok(cells)
    }

    /// Raises the symmetric heap size in `config` as needed. All shapes need the same amount.
    pub(crate) fn need_heap(&self, config: &mut Config) -> Result<()> {
        let pes = Extent { x: 1, y: 1, z: 1 };
        let shape = JacobiShape { pes, cells: self.cells()?, is_flat: self.two_d };
        let floats = 2 * shape.cells.count() + 5 * shape.halo_cells() as usize;
        need_heap(config, (floats * size_of::<f32>()) as u64, 6);
        Ok(())
    }
}

/// Returns the components of `extent` along the axes in use.
pub(crate) fn axes(extent: Extent, is_flat: bool) -> Vec<u32> {
    if is_flat { vec![extent.x, extent.y] } else { vec![extent.x, extent.y, extent.z] }
}

/// Formats numbers in the syntax that the command-line options accept.
fn listed(numbers: &[u32]) -> String {
    numbers.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
}

fn wrong_count(option: &str, numbers: &[u32], is_flat: bool) -> String {
    let remedy = match is_flat {
        true => "leave --two-d out, or give X,Y",
        false => "give X,Y,Z, or use --two-d",
    };
    let dimensions = if is_flat { 2 } else { 3 };
    format!("{option} {} does not fit {dimensions} dimensions: {remedy}", listed(numbers))
}
