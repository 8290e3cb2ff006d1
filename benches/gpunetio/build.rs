//! Builds the PTX of the benchmarks' kernels.

fn main() {
    rushmem_ptx::Builder::new("../kernels").optional().build();
}
