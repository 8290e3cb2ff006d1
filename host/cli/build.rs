//! Builds the PTX of the benchmark kernels for `rushmem perf`, and has the program `rushmem-preload` linked as a library.

use std::env;
use std::fs;
use std::io;
use std::path::PathBuf;

/// The functions that the library exports. The crate `rushmem-uverbs-preload` defines them.
const EXPORTS: [&str; 9] = [
    "open",
    "open64",
    "access",
    "close",
    "stat",
    "fstat",
    "ioctl",
    "socket",
    "rushmem_uverbs_register_peer_memory",
];

fn main() -> io::Result<()> {
    let kernels = env::var_os("DEP_RUSHMEM_BENCH_KERNELS_DIR").unwrap_or_default();
    rushmem_ptx::Builder::new(PathBuf::from(kernels)).optional().build();

    let script = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default()).join("exports");
    fs::write(&script, format!("{{ global: {}; local: *; }};\n", EXPORTS.join("; ")))?;
    println!("cargo::rustc-link-arg-bin=rushmem-preload=-shared");
    println!("cargo::rustc-link-arg-bin=rushmem-preload=-Wl,--version-script={}", script.display());
    Ok(())
}
