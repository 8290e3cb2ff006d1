//! Compilation of the C programs that the tests run.
#![allow(dead_code, reason = "each suite uses one of them")]

use crate::common::skip;
use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::ptr::{NonNull, null_mut};

/// A compiler's command, the header that it needs, and the Debian package of the header.
struct Toolchain<'a> {
    compiler: &'a str,
    flags: &'a [&'a str],
    header: &'a str,
    package: &'a str,
}

/// Compiles `verbs.c` for a test, or returns `None` where that is impossible.
pub(crate) fn verbs_program(test: &str) -> Option<PathBuf> {
    with_cc(test, "verbs", "infiniband/verbs.h", "libibverbs-dev", &["-libverbs"])
}

/// Compiles `masked.c` for a test, or returns `None` where that is impossible.
pub(crate) fn masked_program(test: &str) -> Option<PathBuf> {
    with_cc(test, "masked", "infiniband/mlx5dv.h", "libibverbs-dev", &["-libverbs", "-lmlx5"])
}

/// Compiles `clock.c` for a test, or returns `None` where that is impossible.
pub(crate) fn clock_program(test: &str) -> Option<PathBuf> {
    with_cc(test, "clock", "infiniband/mlx5dv.h", "libibverbs-dev", &["-libverbs", "-lmlx5"])
}

/// Compiles `fork.c` for a test, or returns `None` where that is impossible.
pub(crate) fn fork_program(test: &str) -> Option<PathBuf> {
    with_cc(test, "fork", "infiniband/verbs.h", "libibverbs-dev", &["-libverbs"])
}

/// Compiles `xrc.c` for a test, or returns `None` where that is impossible.
pub(crate) fn xrc_program(test: &str) -> Option<PathBuf> {
    with_cc(test, "xrc", "infiniband/verbs.h", "libibverbs-dev", &["-libverbs"])
}

/// Compiles `cuda.c` for a test, or returns `None` where that is impossible.
pub(crate) fn cuda_program(test: &str) -> Option<PathBuf> {
    with_cc(test, "cuda/cuda", "infiniband/verbs.h", "libibverbs-dev", &["-libverbs"])
}

/// Compiles the fake CUDA driver for a test. Returns its directory.
pub(crate) fn cuda_library(test: &str) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cuda/libcuda.c");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("libcuda-{test}"));
    std::fs::create_dir_all(&folder).unwrap();
    let mut compile = Command::new(std::env::var("CC").unwrap_or_else(|_| "cc".into()));
    compile.args(["-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-fvisibility=hidden"]);
    compile.arg("-Wl,-soname,libcuda.so.1").arg("-o").arg(folder.join("libcuda.so.1")).arg(source);
    succeeds(&mut compile);
    folder
}

/// Compiles `listing.c` for a test, or returns `None` where that is impossible.
pub(crate) fn listing_program(test: &str) -> Option<PathBuf> {
    with_cc(test, "listing", "dirent.h", "libc6-dev", &[])
}

/// Compiles `hwloc.c` for a test, or returns `None` where that is impossible.
pub(crate) fn hwloc_program(test: &str) -> Option<PathBuf> {
    with_cc(test, "hwloc", "hwloc.h", "libhwloc-dev", &["-lhwloc"])
}

/// Compiles `gid_table.c` for a test, or returns `None` where that is impossible.
pub(crate) fn gid_table_program(test: &str) -> Option<PathBuf> {
    with_cc(test, "gid_table", "infiniband/verbs.h", "libibverbs-dev", &["-libverbs"])
}

/// Compiles `sockets.c` for a test, or returns `None` where that is impossible.
pub(crate) fn sockets_program(test: &str) -> Option<PathBuf> {
    with_cc(test, "sockets", "sys/socket.h", "libc6-dev", &[])
}

/// Compiles `hooks.c`, a library to preload, for a test, or returns `None` where that is impossible.
pub(crate) fn hooks_library(test: &str) -> Option<PathBuf> {
    with_cc(test, "hooks", "sys/mman.h", "libc6-dev", &["-shared", "-fPIC"])
}

/// Compiles `ucx.c` for a test, or returns `None` where that is impossible.
pub(crate) fn ucx_program(test: &str) -> Option<PathBuf> {
    with_cc(test, "ucx", "ucp/api/ucp.h", "libucx-dev", &["-lucp", "-lucs"])
}

/// Compiles `mpi.c` for a test with an MPI's compiler, or returns `None` where that is impossible.
pub(crate) fn mpi_program(test: &str, compiler: &str, package: &str) -> Option<PathBuf> {
    // MPICH declares status arrays as non-empty, but MPI_STATUSES_IGNORE is empty.
    let flags = &["-Wno-stringop-overflow"];
    compile(test, "mpi", &Toolchain { compiler, flags, header: "mpi.h", package })
}

/// Compiles `shmem.c` for a test, or returns `None` where that is impossible.
pub(crate) fn shmem_program(test: &str) -> Option<PathBuf> {
    // Open MPI only has the collectives of OpenSHMEM 1.4, which its header marks as deprecated.
    let flags = &["-Wno-deprecated-declarations"];
    let toolchain = Toolchain { compiler: "oshcc", flags, header: "shmem.h", package: "libopenmpi-dev" };
    compile(test, "shmem", &toolchain)
}

fn with_cc(test: &str, name: &str, header: &str, package: &str, flags: &[&str]) -> Option<PathBuf> {
    let compiler = &std::env::var("CC").unwrap_or_else(|_| "cc".into());
    compile(test, name, &Toolchain { compiler, flags, header, package })
}

fn compile(test: &str, name: &str, tools: &Toolchain) -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/{name}.c"));
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{}-{test}", name.replace('/', "-")));
    let probe = program.with_extension("c");
    std::fs::write(&probe, format!("#include <{}>\n", tools.header)).unwrap();
    let possible = Command::new(tools.compiler).arg("-fsyntax-only").arg(&probe).output();
    if !possible.is_ok_and(|output| output.status.success()) {
        let Toolchain { compiler, header, package, .. } = tools;
        skip(test, &format!("{compiler}, or {header} of the package {package}"));
        return None;
    }
    let mut compile = Command::new(tools.compiler);
    compile.args(["-O1", "-Wall", "-Wextra", "-Werror", "-o"]).arg(&program).arg(&source).args(tools.flags);
    succeeds(&mut compile);
    Some(program)
}

fn succeeds(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// The fake CUDA driver in this process, with a current context.
pub(crate) struct Cuda {
    library: NonNull<c_void>,
}

impl Cuda {
    pub(crate) fn load(test: &str) -> Cuda {
        let path = cuda_library(test).join("libcuda.so.1");
        let path = CString::new(path.to_str().unwrap()).unwrap();
        // SAFETY: a C string.
        let library = NonNull::new(unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) }).unwrap();
        let cuda = Cuda { library };
        let mut context: *mut c_void = null_mut();
        // SAFETY: functions of the stand-in with these types, and a live variable.
        unsafe {
            let init: unsafe extern "C" fn(c_uint) -> c_int = cuda.function("cuInit");
            let retain: unsafe extern "C" fn(*mut *mut c_void, c_int) -> c_int =
                cuda.function("cuDevicePrimaryCtxRetain");
            let push: unsafe extern "C" fn(*mut c_void) -> c_int = cuda.function("cuCtxPushCurrent_v2");
            assert_eq!((init(0), retain(&raw mut context, 0), push(context)), (0, 0, 0));
        }
        cuda
    }

    /// Returns a function of the fake driver.
    ///
    /// # Safety
    ///
    /// `F` must be the type of that function.
    unsafe fn function<F: Copy>(&self, name: &str) -> F {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
        let name = CString::new(name).unwrap();
        // SAFETY: a loaded library and a C string.
        let found = unsafe { libc::dlsym(self.library.as_ptr(), name.as_ptr()) };
        assert!(!found.is_null(), "{name:?}");
        // SAFETY: promised by the caller.
        unsafe { std::mem::transmute_copy(&found) }
    }

    /// Executes all copies that the adapter has started on the fake GPU.
    pub(crate) fn start_copies(&self) {
        // SAFETY: a function of the stand-in with this type.
        unsafe {
            let start: unsafe extern "C" fn() -> c_int = self.function("standin_start_copies");
            assert_eq!(start(), 0);
        }
    }

    /// Allocates GPU memory and leaks it. Returns its device address and the CPU's mapping.
    pub(crate) fn allocate(&self, len: usize) -> (u64, NonNull<u8>) {
        let mut at = 0;
        // SAFETY: functions of the stand-in with these types, and a live variable.
        unsafe {
            let allocate: unsafe extern "C" fn(*mut u64, usize) -> c_int = self.function("cuMemAlloc_v2");
            let host: unsafe extern "C" fn(u64) -> *mut c_char = self.function("standin_host");
            assert_eq!(allocate(&raw mut at, len), 0);
            (at, NonNull::new(host(at).cast()).unwrap())
        }
    }
}
