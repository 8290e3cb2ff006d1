//! Builds the PTX of the benchmark kernels, for `rushmem perf`.

fn main() {
    rushmem_ptx::Builder::new("../../benches/kernels").optional().build();
}
