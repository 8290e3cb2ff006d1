//! Compiles the kernels for GPUs. Without a PTX compiler they run natively only.

fn main() {
    rushmem_ptx::Builder::new("src/kernels.rs").or_native().build();
}
