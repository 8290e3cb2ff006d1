//! Builds the PTX of the benchmark kernels, or uses the committed PTX if it comes from the same source.

fn main() {
    rushmem_ptx::Builder::new("../../benches/kernels").optional().build();
}
