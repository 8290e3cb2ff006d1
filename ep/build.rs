//! Compiles the kernels of expert parallelism to PTX, if requested.

use std::env;
use std::path::PathBuf;

fn main() {
    let kernels = env::var_os("DEP_RUSHMEM_EP_KERNELS_DIR").unwrap_or_default();
    rushmem_ptx::Builder::new(PathBuf::from(kernels)).optional().build();
}
