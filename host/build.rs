//! Makes the PTX of the runtime's kernels, or takes the committed one if it was made from the same source.

fn main() {
    rushmem_ptx::Builder::new("kernels").bundled("committed/rushmem_runtime_kernels.ptx").build();
    rushmem_ptx::Builder::new("service").bundled("committed/rushmem_service.ptx").build();
}
