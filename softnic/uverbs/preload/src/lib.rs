//! The library that programs preload to find a software ConnectX as `mlx5_0`.
//!
//! It exports the C library's functions of [`rushmem_uverbs::interpose`] under their own names, and
//! [`rushmem_uverbs::peer_memory`]'s registration. It is a crate of its own so that nothing that merely links
//! `rushmem-uverbs` gets these names.

use libc::{c_char, c_int, c_ulong, mode_t};
use rushmem_uverbs::interpose;
use rushmem_uverbs::peer_memory::{self, PeerMemory};

/// See [`interpose::open`].
///
/// # Safety
///
/// As for `open` of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: passed on as it came.
    unsafe { interpose::open(path, flags, mode) }
}

/// See [`interpose::open`]; what Rust's standard library calls.
///
/// # Safety
///
/// As for `open64` of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: passed on as it came.
    unsafe { interpose::open(path, flags, mode) }
}

/// See [`interpose::access`].
///
/// # Safety
///
/// As for `access` of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn access(path: *const c_char, mode: c_int) -> c_int {
    // SAFETY: passed on as it came.
    unsafe { interpose::access(path, mode) }
}

/// See [`interpose::close`].
#[unsafe(no_mangle)]
pub extern "C" fn close(fd: c_int) -> c_int {
    interpose::close(fd)
}

/// See [`interpose::stat`].
///
/// # Safety
///
/// As for `stat` of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stat(path: *const c_char, to: *mut libc::stat) -> c_int {
    // SAFETY: passed on as it came.
    unsafe { interpose::stat(path, to) }
}

/// See [`interpose::fstat`].
///
/// # Safety
///
/// As for `fstat` of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fstat(fd: c_int, to: *mut libc::stat) -> c_int {
    // SAFETY: passed on as it came.
    unsafe { interpose::fstat(fd, to) }
}

/// See [`interpose::ioctl`]. The C library's takes a variable number of arguments, of which there is at most one.
///
/// # Safety
///
/// As for `ioctl` of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ioctl(fd: c_int, request: c_ulong, argument: usize) -> c_int {
    // SAFETY: passed on as it came.
    unsafe { interpose::ioctl(fd, request, argument) }
}

/// See [`interpose::socket`].
#[unsafe(no_mangle)]
pub extern "C" fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    interpose::socket(domain, kind, protocol)
}

/// See [`peer_memory`].
///
/// # Safety
///
/// As [`peer_memory::rushmem_uverbs_register_peer_memory`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rushmem_uverbs_register_peer_memory(table: *const PeerMemory) -> i32 {
    // SAFETY: passed on as it came.
    unsafe { peer_memory::rushmem_uverbs_register_peer_memory(table) }
}
