//! Compiles the kernel for GPUs. Without a PTX compiler it runs natively only.

fn main() {
    rushmem_ptx::Builder::new("kernels").or_native().build();
}
