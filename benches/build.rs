//! Builds the PTX of the benchmarks' kernels, or takes the committed one.

fn main() {
    rushmem_ptx::Builder::new("kernels").fallback("../ptx/committed/rushmem_bench_kernels.ptx").build();
}
