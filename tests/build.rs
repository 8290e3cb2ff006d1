//! Builds the PTX of the test kernels and of the examples' kernels.

fn main() {
    rushmem_ptx::Builder::new("kernels").optional().build();
    rushmem_ptx::Builder::new("../examples/kernels")
        .fallback("../examples/committed/rushmem_example_kernels.ptx")
        .build();
}
