//! The functions of the library that programs preload to find a software ConnectX as `mlx5_0`.
//!
//! This crate defines the C library's functions of [`rushmem_uverbs::interpose`] under their own names, and
//! [`rushmem_uverbs::peer_memory`]'s registration. It is a crate of its own so that nothing that merely links
//! `rushmem-uverbs` gets these names. The package `rushmem-cli` links it into the shared object `rushmem-preload`.

use libc::{c_char, c_int, c_ulong, mode_t};
use rushmem_uverbs::interpose;
use rushmem_uverbs::peer_memory::{self, PeerMemory};

/// Calls [`interpose::open`].
///
/// # Safety
///
/// The same as for `open` of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: passed on as it came.
    unsafe { interpose::open(path, flags, mode) }
}

/// Calls [`interpose::open`]. Rust's standard library calls this function.
///
/// # Safety
///
/// The same as for `open64` of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: passed on as it came.
    unsafe { interpose::open(path, flags, mode) }
}

/// Calls [`interpose::access`].
///
/// # Safety
///
/// The same as for `access` of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn access(path: *const c_char, mode: c_int) -> c_int {
    // SAFETY: passed on as it came.
    unsafe { interpose::access(path, mode) }
}

/// Calls [`interpose::close`].
#[unsafe(no_mangle)]
pub extern "C" fn close(fd: c_int) -> c_int {
    interpose::close(fd)
}

/// Calls [`interpose::stat`].
///
/// # Safety
///
/// The same as for `stat` of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stat(path: *const c_char, to: *mut libc::stat) -> c_int {
    // SAFETY: passed on as it came.
    unsafe { interpose::stat(path, to) }
}

/// Calls [`interpose::fstat`].
///
/// # Safety
///
/// The same as for `fstat` of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fstat(fd: c_int, to: *mut libc::stat) -> c_int {
    // SAFETY: passed on as it came.
    unsafe { interpose::fstat(fd, to) }
}

/// Calls [`interpose::ioctl`]. The C library's function is variadic, but callers pass at most one argument.
///
/// # Safety
///
/// The same as for `ioctl` of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ioctl(fd: c_int, request: c_ulong, argument: usize) -> c_int {
    // SAFETY: passed on as it came.
    unsafe { interpose::ioctl(fd, request, argument) }
}

/// Calls [`interpose::socket`].
#[unsafe(no_mangle)]
pub extern "C" fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    interpose::socket(domain, kind, protocol)
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
