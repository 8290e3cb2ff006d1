//! Exported functions of the `LD_PRELOAD` library with which a program finds a software ConnectX as `mlx5_0`.
//!
//! This crate exports the C library functions that [`rushmem_uverbs::interpose`] replaces, under their own names, and
//! the registration function of [`rushmem_uverbs::peer_memory`]. It is a separate crate to keep these names out of
//! programs that merely link `rushmem-uverbs`. The package `rushmem-cli` links it into the shared object
//! `rushmem-preload`.

use libc::{
    c_char, c_int, c_uint, c_ulong, c_void, mode_t, msghdr, off_t, size_t, sockaddr, socklen_t, ssize_t,
};
use rushmem_uverbs::interpose::{self, Filter, Glob, GlobError, Order};
use rushmem_uverbs::peer_memory::{self, PeerMemory};

/// Defines functions of the C library. Functions with several names are the same on a 64-bit machine.
macro_rules! functions {
    ($([$($name:ident)*] $arguments:tt -> $result:ty $body:block)*) => {
        $(functions!(@names [$($name)*] $arguments -> $result $body);)*
    };
    (@names [$($name:ident)*] $arguments:tt -> $result:ty $body:block) => {
        $(functions!(@one $name $arguments -> $result $body);)*
    };
    (@one $name:ident($($argument:ident: $type:ty),*) -> $result:ty $body:block) => {
        /// Replaces the C library's function.
        ///
        /// # Safety
        ///
        /// The same as for the C library's function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> $result {
            // SAFETY: the arguments are passed on as they came.
            unsafe { $body }
        }
    };
}

type Path = *const c_char;

// Opening, and what the checked variants of a C library's headers call.
functions! {
    [open open64](path: Path, flags: c_int, mode: mode_t) -> c_int { interpose::open(path, flags, mode) }
    [__open_2 __open64_2](path: Path, flags: c_int) -> c_int { interpose::open(path, flags, 0) }
    [openat openat64](at: c_int, path: Path, flags: c_int, mode: mode_t) -> c_int {
        interpose::openat(at, path, flags, mode)
    }
    [__openat_2 __openat64_2](at: c_int, path: Path, flags: c_int) -> c_int {
        interpose::openat(at, path, flags, 0)
    }
    [fopen fopen64](path: Path, mode: Path) -> *mut libc::FILE { interpose::fopen(path, mode) }
}

// Checking and describing. Programs built for an older C library call the functions with a version.
functions! {
    [access](path: Path, mode: c_int) -> c_int { interpose::access(path, mode) }
    [eaccess euidaccess](path: Path, mode: c_int) -> c_int {
        interpose::faccessat(libc::AT_FDCWD, path, mode, libc::AT_EACCESS)
    }
    [faccessat](at: c_int, path: Path, mode: c_int, flags: c_int) -> c_int {
        interpose::faccessat(at, path, mode, flags)
    }
    [stat stat64](path: Path, to: *mut libc::stat) -> c_int { interpose::stat(path, to) }
    [lstat lstat64](path: Path, to: *mut libc::stat) -> c_int { interpose::lstat(path, to) }
    [fstat fstat64](fd: c_int, to: *mut libc::stat) -> c_int { interpose::fstat(fd, to) }
    [fstatat fstatat64](at: c_int, path: Path, to: *mut libc::stat, flags: c_int) -> c_int {
        interpose::fstatat(at, path, to, flags)
    }
    [__xstat __xstat64](_version: c_int, path: Path, to: *mut libc::stat) -> c_int { interpose::stat(path, to) }
    [__lxstat __lxstat64](_version: c_int, path: Path, to: *mut libc::stat) -> c_int { interpose::lstat(path, to) }
    [__fxstat __fxstat64](_version: c_int, fd: c_int, to: *mut libc::stat) -> c_int { interpose::fstat(fd, to) }
    [__fxstatat __fxstatat64](_version: c_int, at: c_int, path: Path, to: *mut libc::stat, flags: c_int) -> c_int {
        interpose::fstatat(at, path, to, flags)
    }
    [statx](at: c_int, path: Path, flags: c_int, mask: c_uint, to: *mut libc::statx) -> c_int {
        interpose::statx(at, path, flags, mask, to)
    }
}

// Listing, resolving and entering folders.
functions! {
    [opendir](path: Path) -> *mut libc::DIR { interpose::opendir(path) }
    [scandir scandir64](path: Path, list: *mut *mut *mut libc::dirent, filter: Filter, order: Order) -> c_int {
        interpose::scandir(path, list, filter, order)
    }
    [scandirat scandirat64](at: c_int, path: Path, list: *mut *mut *mut libc::dirent, filter: Filter, order: Order) -> c_int {
        interpose::scandirat(at, path, list, filter, order)
    }
    [glob glob64](pattern: Path, flags: c_int, error: GlobError, to: *mut Glob) -> c_int {
        interpose::glob(pattern, flags, error, to)
    }
    [getcwd](to: *mut c_char, room: size_t) -> *mut c_char { interpose::getcwd(to, room) }
    [__getcwd_chk](to: *mut c_char, room: size_t, _all: size_t) -> *mut c_char { interpose::getcwd(to, room) }
    [getxattr](path: Path, name: Path, to: *mut c_void, room: size_t) -> ssize_t {
        interpose::getxattr(path, name, to, room, true)
    }
    [lgetxattr](path: Path, name: Path, to: *mut c_void, room: size_t) -> ssize_t {
        interpose::getxattr(path, name, to, room, false)
    }
    [chdir](path: Path) -> c_int { interpose::chdir(path) }
    [realpath](path: Path, to: *mut c_char) -> *mut c_char { interpose::realpath(path, to) }
    [__realpath_chk](path: Path, to: *mut c_char, _room: size_t) -> *mut c_char { interpose::realpath(path, to) }
    [canonicalize_file_name](path: Path) -> *mut c_char { interpose::realpath(path, std::ptr::null_mut()) }
    [readlink](path: Path, to: *mut c_char, room: size_t) -> ssize_t { interpose::readlink(path, to, room) }
    [__readlink_chk](path: Path, to: *mut c_char, room: size_t, _all: size_t) -> ssize_t {
        interpose::readlink(path, to, room)
    }
    [readlinkat](at: c_int, path: Path, to: *mut c_char, room: size_t) -> ssize_t {
        interpose::readlinkat(at, path, to, room)
    }
    [__readlinkat_chk](at: c_int, path: Path, to: *mut c_char, room: size_t, _all: size_t) -> ssize_t {
        interpose::readlinkat(at, path, to, room)
    }
}

// Opened devices. The C library's `ioctl` is variadic, but callers pass at most one argument.
functions! {
    [ioctl](fd: c_int, request: c_ulong, argument: usize) -> c_int { interpose::ioctl(fd, request, argument) }
}

/// Calls [`interpose::write`]. A thread may be cancelled in it.
///
/// # Safety
///
/// The same as for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn write(fd: c_int, from: *const c_void, len: size_t) -> ssize_t {
    // SAFETY: the arguments are passed on as they came.
    unsafe { interpose::write(fd, from, len) }
}

/// Calls [`interpose::read`]. A thread may be cancelled in it.
///
/// # Safety
///
/// The same as for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn read(fd: c_int, to: *mut c_void, len: size_t) -> ssize_t {
    // SAFETY: the arguments are passed on as they came.
    unsafe { interpose::read(fd, to, len) }
}

/// Replaces the variant of `read` that programs call if they are built with `_FORTIFY_SOURCE`.
///
/// # Safety
///
/// The same as for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __read_chk(
    fd: c_int,
    to: *mut c_void,
    len: size_t,
    _room: size_t,
) -> ssize_t {
    // SAFETY: the arguments are passed on as they came.
    unsafe { interpose::read(fd, to, len) }
}

/// Calls [`interpose::send`]. A thread may be cancelled in it.
///
/// # Safety
///
/// The same as for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn send(fd: c_int, from: *const c_void, len: size_t, flags: c_int) -> ssize_t {
    // SAFETY: the arguments are passed on as they came.
    unsafe { interpose::send(fd, from, len, flags) }
}

/// Calls [`interpose::sendto`]. A thread may be cancelled in it.
///
/// # Safety
///
/// The same as for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn sendto(
    fd: c_int,
    from: *const c_void,
    len: size_t,
    flags: c_int,
    to: *const sockaddr,
    to_len: socklen_t,
) -> ssize_t {
    // SAFETY: the arguments are passed on as they came.
    unsafe { interpose::sendto(fd, from, len, flags, to, to_len) }
}

/// Calls [`interpose::sendmsg`]. A thread may be cancelled in it.
///
/// # Safety
///
/// The same as for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
    // SAFETY: the arguments are passed on as they came.
    unsafe { interpose::sendmsg(fd, message, flags) }
}

/// Calls [`interpose::close`].
#[unsafe(no_mangle)]
pub extern "C" fn close(fd: c_int) -> c_int {
    interpose::close(fd)
}

/// Calls [`interpose::socket`].
#[unsafe(no_mangle)]
pub extern "C" fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    interpose::socket(domain, kind, protocol)
}

/// Defines functions that make a system call directly. The linker's `--wrap` option makes the library's own code call
/// them instead of the C library.
///
/// A call by name may not reach the C library. `librspreload.so` turns the adapter's own sockets into RDMA sockets,
/// which would need the adapter. libfabric and UCX patch the first instructions of `mmap`, `munmap` and `madvise`, and
/// restore them when the process exits, without stopping the adapter's thread. Their functions take locks that another
/// thread may hold while it waits for the adapter. A direct system call avoids all of these.
macro_rules! direct {
    ($($name:ident = $number:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {$(
        /// Invokes the system call.
        ///
        /// # Safety
        ///
        /// The same as for the C library's function.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($argument: $type),*) -> $result {
            // SAFETY: the arguments are passed on as they came.
            unsafe { libc::syscall(libc::$number, $($argument),*) as $result }
        }
    )*};
}

direct! {
    __wrap_close = SYS_close(fd: c_int) -> c_int;
    __wrap_madvise = SYS_madvise(at: *mut c_void, len: size_t, advice: c_int) -> c_int;
    __wrap_mmap = SYS_mmap(at: *mut c_void, len: size_t, access: c_int, flags: c_int, fd: c_int, offset: off_t) -> *mut c_void;
    __wrap_mmap64 = SYS_mmap(at: *mut c_void, len: size_t, access: c_int, flags: c_int, fd: c_int, offset: off_t) -> *mut c_void;
    __wrap_munmap = SYS_munmap(at: *mut c_void, len: size_t) -> c_int;
    __wrap_socket = SYS_socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int;
}

/// Path of the dynamic linker, without which the library cannot be run as a program.
#[used]
#[unsafe(link_section = ".interp")]
static INTERPRETER: [u8; 28] = *b"/lib64/ld-linux-x86-64.so.2\0";

// The start of the library as a program. Only the first function of a process has to align the stack.
std::arch::global_asm!(
    ".globl rushmem_preload_start",
    "rushmem_preload_start:",
    "and rsp, -16",
    "call {explain}",
    "ud2",
    explain = sym explain,
);

/// Prints what the library is for and exits. Runs if the library is started as a program: `cargo install` puts it
/// beside programs, and `cargo test --bins` mistakes it for one.
extern "C" fn explain() -> ! {
    println!("rushmem-preload is the library that `rushmem softnic -- PROGRAM` preloads.");
    std::process::exit(0)
}

/// Calls [`peer_memory::rushmem_uverbs_register_peer_memory`].
///
/// # Safety
///
/// The same as for [`peer_memory::rushmem_uverbs_register_peer_memory`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rushmem_uverbs_register_peer_memory(table: *const PeerMemory) -> i32 {
    // SAFETY: passed on as it came.
    unsafe { peer_memory::rushmem_uverbs_register_peer_memory(table) }
}
