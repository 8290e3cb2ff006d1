//! Builds the PTX of the kernels, on request.

fn main() {
    rushmem_ptx::Builder::new("kernels").optional().build();
}
