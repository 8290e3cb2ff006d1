//! Compiles the example's kernel to PTX. Without a PTX compiler, the example runs natively only.

fn main() {
    rushmem_ptx::Builder::new("kernels").or_native().build();
}
