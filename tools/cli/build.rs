//! Builds the PTX of the benchmark kernels for `rushmem perf`, and links the program `rushmem-preload` as a library.

use std::env;
use std::fs;
use std::io;
use std::path::PathBuf;

/// Functions that the library exports, as defined by the crate `rushmem-uverbs-preload`.
const EXPORTS: [&str; 60] = [
    "open",
    "open64",
    "__open_2",
    "__open64_2",
    "openat",
    "openat64",
    "__openat_2",
    "__openat64_2",
    "fopen",
    "fopen64",
    "access",
    "eaccess",
    "euidaccess",
    "faccessat",
    "stat",
    "stat64",
    "lstat",
    "lstat64",
    "fstat",
    "fstat64",
    "fstatat",
    "fstatat64",
    "__xstat",
    "__xstat64",
    "__lxstat",
    "__lxstat64",
    "__fxstat",
    "__fxstat64",
    "__fxstatat",
    "__fxstatat64",
    "statx",
    "opendir",
    "scandir",
    "scandir64",
    "scandirat",
    "scandirat64",
    "glob",
    "glob64",
    "chdir",
    "getcwd",
    "__getcwd_chk",
    "getxattr",
    "lgetxattr",
    "realpath",
    "__realpath_chk",
    "canonicalize_file_name",
    "readlink",
    "__readlink_chk",
    "readlinkat",
    "__readlinkat_chk",
    "close",
    "ioctl",
    "read",
    "__read_chk",
    "send",
    "sendmsg",
    "sendto",
    "socket",
    "write",
    "rushmem_uverbs_register_peer_memory",
];

/// C library functions that the library's own code replaces by direct system calls, as defined by the crate
/// `rushmem-uverbs-preload`.
const DIRECT: [&str; 6] = ["close", "madvise", "mmap", "mmap64", "munmap", "socket"];

fn main() -> io::Result<()> {
    let kernels = env::var_os("DEP_RUSHMEM_BENCH_KERNELS_DIR").unwrap_or_default();
    rushmem_ptx::Builder::new(PathBuf::from(kernels)).optional().build();

    let script = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default()).join("exports");
    fs::write(&script, format!("{{ global: {}; local: *; }};\n", EXPORTS.join("; ")))?;
    println!("cargo::rustc-link-arg-bin=rushmem-preload=-shared");
    // Without an entry point, running the library would cause a segmentation fault.
    println!("cargo::rustc-link-arg-bin=rushmem-preload=-Wl,--entry=rushmem_preload_start");
    println!("cargo::rustc-link-arg-bin=rushmem-preload=-Wl,--version-script={}", script.display());
    for name in DIRECT {
        println!("cargo::rustc-link-arg-bin=rushmem-preload=-Wl,--wrap={name}");
    }
    Ok(())
}
