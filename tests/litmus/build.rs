//! Builds the PTX of the interpreter of litmus tests.

fn main() {
    rushmem_ptx::Builder::new("kernels").optional().build();
}
