//! Builds the PTX of the examples' kernels, or uses the committed PTX if it matches the source.

fn main() {
    rushmem_ptx::Builder::new("kernels").fallback("committed/rushmem_example_kernels.ptx").build();
}
