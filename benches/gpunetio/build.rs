//! Makes the PTX of the benchmarks' kernels, or takes the committed one if it was made from the same source.

fn main() {
    rushmem_ptx::Builder::new("../kernels").fallback("../../ptx/committed/rushmem_bench_kernels.ptx").build();
}
