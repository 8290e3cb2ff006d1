//! Compiles the runtime's kernels to PTX, or takes the committed PTX if it was built from the same source.

fn main() {
    rushmem_ptx::Builder::new("kernels").bundled("committed/rushmem_runtime_kernels.ptx").build();
    rushmem_ptx::Builder::new("service").bundled("committed/rushmem_service.ptx").build();
}
