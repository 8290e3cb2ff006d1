//! Command-line options of the KV cache example, and the dimensions derived from them.

use clap::{Parser, ValueEnum};
use rushmem::config::Config;
use rushmem_example_kernels::KvShape;
use rushmem_examples::{JobArgs, Result, need_heap};

/// Size of an element of the KV cache, in bytes.
const ELEMENT: u32 = 2;

/// Size of a chunk, the unit in which kernels copy the KV cache, in bytes.
pub(crate) const CHUNK: u32 = 16;

/// Sends the KV cache of some requests from prefill PEs to decode PEs, layer by layer, and verifies every page.
///
/// The first PEs are prefill PEs, the others are decode PEs. Each side divides the heads among its PEs.
#[derive(Parser)]
#[command(name = "kv")]
pub(crate) struct Args {
    /// Number of prefill PEs [default: half of the PEs]
    #[arg(long, value_name = "N")]
    prefill: Option<u32>,
    /// Number of layers of the model
    #[arg(long, value_name = "N", default_value = "4", value_parser = clap::value_parser!(u32).range(1..=1024))]
    layers: u32,
    /// Number of KV heads of the model
    #[arg(long, value_name = "N", default_value = "8", value_parser = clap::value_parser!(u32).range(1..=1024))]
    heads: u32,
    /// Elements per head, of 2 bytes each
    #[arg(long, value_name = "N", default_value = "64", value_parser = clap::value_parser!(u32).range(1..=1024))]
    head_dim: u32,
    /// Tokens per page
    #[arg(long, value_name = "N", default_value = "16", value_parser = clap::value_parser!(u32).range(1..=1024))]
    page_tokens: u32,
    /// Number of requests
    #[arg(long, value_name = "N", default_value = "3", value_parser = clap::value_parser!(u32).range(1..=4096))]
    requests: u32,
    /// Tokens per request
    #[arg(long, value_name = "N", default_value = "100", value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    tokens: u32,
    /// Memory for the pages [default: symmetric on GPUs, registered natively]
    #[arg(long, value_enum)]
    memory: Option<MemoryArg>,
    /// Transfers in a row per measurement of bandwidth [default: 8 on GPUs, 1 natively]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: Option<u32>,
    /// Repetitions of each measurement; the median is reported
    #[arg(long, value_name = "N", default_value = "3", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) repetitions: u32,
    #[command(flatten)]
    pub(crate) job: JobArgs,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MemoryArg {
    /// Host memory of the application, registered as a window.
    Registered,
    /// The symmetric heap, which is in GPU memory on a GPU.
    Symmetric,
    /// GPU memory of the application from cudaMalloc, registered as a window.
    Cuda,
    /// GPU memory of the application from cuMemCreate, in several allocations that are mapped one after the other,
    /// registered as a window.
    Vmm,
}

impl MemoryArg {
    /// Returns the name of the option's value.
    pub(crate) fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }
}

impl Args {
    /// Returns the dimensions of the KV caches for a job of `n_pes` PEs.
    pub(crate) fn shape(&self, n_pes: u32) -> Result<KvShape> {
        if n_pes < 2 {
            return Err("1 PE cannot be on both sides: use --pes 2 or more, or `rushmem run -n 2 kv`".into());
        }
        let prefill = self.prefill.unwrap_or(n_pes / 2);
        if prefill == 0 || prefill >= n_pes {
            return Err(format!(
                "--prefill {prefill} leaves a side of the {n_pes} PEs empty: use 1 to {}, or more PEs",
                n_pes - 1
            )
            .into());
        }
        for (side, width) in [("prefill", prefill), ("decode", n_pes - prefill)] {
            if !self.heads.is_multiple_of(width) {
                return Err(format!(
                    "{} heads cannot be divided equally among {width} {side} PEs: use --heads {} or another number of PEs",
                    self.heads,
                    self.heads.next_multiple_of(width)
                )
                .into());
            }
        }
        let head_bytes = self.head_dim * ELEMENT;
        if !head_bytes.is_multiple_of(CHUNK) {
            return Err(format!(
                "a head of {} elements has {head_bytes} bytes, no multiple of {CHUNK}: use --head-dim {}",
                self.head_dim,
                self.head_dim.next_multiple_of(CHUNK / ELEMENT)
            )
            .into());
        }
        let pages = u64::from(self.requests) * u64::from(self.tokens.div_ceil(self.page_tokens));
        let page_bytes = u128::from(2 * self.page_tokens * self.heads) * u128::from(head_bytes);
        let bytes = u128::from(pages) * u128::from(self.layers) * page_bytes;
        // Kernels index the chunks of all pages with 32 bits.
        let fits = bytes / u128::from(CHUNK) < 1 << 32;
        let pages = u32::try_from(pages).ok().filter(|_| fits).ok_or_else(|| {
            format!("a cache of {bytes} bytes is larger than 64 GiB: use fewer layers, requests or tokens")
        })?;
        Ok(KvShape {
            prefill,
            decode: n_pes - prefill,
            layers: self.layers,
            heads: self.heads,
            head_chunks: head_bytes / CHUNK,
            rows: 2 * self.page_tokens,
            pages,
            // A few pages belong to no request. The transfer must leave them untouched.
            pool_pages: pages + pages / 8 + 1,
        })
    }

    /// Returns the kind of memory to use for pages. Unless the user chose, kernels on a GPU get GPU memory.
    pub(crate) fn memory(&self, is_gpu: bool) -> MemoryArg {
        self.memory.unwrap_or(if is_gpu { MemoryArg::Symmetric } else { MemoryArg::Registered })
    }

    /// Returns the number of transfers in a row per measurement of bandwidth.
    pub(crate) fn rounds(&self, is_gpu: bool) -> u32 {
        self.rounds.unwrap_or(if is_gpu { 8 } else { 1 })
    }

    /// Raises the symmetric heap size in `config` as needed for `shape`.
    pub(crate) fn need_heap(&self, config: &mut Config, shape: KvShape) {
        let n_pes = u64::from(shape.prefill + shape.decode);
        let (layers, pages) = (u64::from(shape.layers), u64::from(shape.pages));
        let words = 4 * n_pes * pages + 8 * layers * (u64::from(shape.prefill) + pages + 1);
        let pools = match self.memory {
            Some(MemoryArg::Registered | MemoryArg::Cuda | MemoryArg::Vmm) => 0,
            // Whether kernels run on a GPU is not known yet, so assume the symmetric heap. Unused native memory costs
            // nothing.
            Some(MemoryArg::Symmetric) | None => 2 * pool_chunks(&shape) as u64 * u64::from(CHUNK),
        };
        need_heap(config, words + pools, 6);
    }
}

/// Returns the size of the largest pool of pages on any PE, in chunks. Every PE allocates this much: a window has the
/// same length on all PEs.
pub(crate) fn pool_chunks(shape: &KvShape) -> usize {
    let page = shape.page_chunks(0).max(shape.page_chunks(shape.prefill));
    shape.layers as usize * shape.pool_pages as usize * page as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_default_to_gpu_memory_on_gpus() {
        let memory = |args: &[&str], is_gpu| Args::parse_from([&["kv"], args].concat()).memory(is_gpu);
        assert_eq!(memory(&[], true), MemoryArg::Symmetric);
        assert_eq!(memory(&[], false), MemoryArg::Registered);
        assert_eq!(memory(&["--memory", "registered"], true), MemoryArg::Registered);
    }
}
