//! Builds the PTX of the litmus-test interpreter.

fn main() {
    rushmem_ptx::Builder::new("kernels").optional().build();
}
