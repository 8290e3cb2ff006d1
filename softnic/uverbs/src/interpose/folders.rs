//! Replacements for C library functions that list, resolve and enter directories, and for `fopen`. Programs see the
//! devices of this library in `/sys`.

use super::next::{self, Filter, Glob, GlobError, Order};
use super::target::Target;
use super::{lstat, open, returned, stat};
use crate::errno::Errno;
use crate::{paths, sys};
use libc::{c_char, c_int, c_void, size_t, ssize_t};
use std::ffi::CStr;
use std::ptr::null_mut;

/// Returns the path in the launcher's tree that replaces `path`, or `path` itself if it is not replaced.
fn placed(path: *const c_char, target: &Target) -> *const c_char {
    target.place().map_or(path, CStr::as_ptr)
}

/// Implements `opendir`. A directory that has devices of this library is read from the launcher's tree.
///
/// # Safety
///
/// The same as for `opendir` of the C library.
pub unsafe fn opendir(path: *const c_char) -> *mut libc::DIR {
    // SAFETY: the caller guarantees the same as for `opendir`.
    unsafe { next::opendir(placed(path, &Target::of(libc::AT_FDCWD, path))) }
}

/// Implements `scandir`, with the same directories as [`opendir`].
///
/// # Safety
///
/// The same as for `scandir` of the C library.
pub unsafe fn scandir(
    path: *const c_char,
    list: *mut *mut *mut libc::dirent,
    filter: Filter,
    order: Order,
) -> c_int {
    // SAFETY: the caller guarantees the same as for `scandir`.
    unsafe { next::scandir(placed(path, &Target::of(libc::AT_FDCWD, path)), list, filter, order) }
}

/// Implements `scandirat`, with the same directories as [`opendir`].
///
/// # Safety
///
/// The same as for `scandirat` of the C library.
pub unsafe fn scandirat(
    at: c_int,
    path: *const c_char,
    list: *mut *mut *mut libc::dirent,
    filter: Filter,
    order: Order,
) -> c_int {
    // SAFETY: the caller guarantees the same as for `scandirat`.
    unsafe { next::scandirat(at, placed(path, &Target::of(at, path)), list, filter, order) }
}

/// Implements `chdir`. A directory that has devices of this library is replaced by that of the launcher's tree.
///
/// # Safety
///
/// The same as for `chdir` of the C library.
pub unsafe fn chdir(path: *const c_char) -> c_int {
    // SAFETY: the caller guarantees the same as for `chdir`.
    match unsafe { Target::of(libc::AT_FDCWD, path) }.place() {
        // SAFETY: a C string.
        Some(place) => unsafe { sys::chdir(place.as_ptr()) },
        // SAFETY: the caller guarantees the same as for `chdir`.
        None => unsafe { next::chdir(path) },
    }
}

/// Implements `getcwd`. If the current directory is in the launcher's tree, returns the path that it replaces.
///
/// # Safety
///
/// The same as for `getcwd` of the C library.
pub unsafe fn getcwd(to: *mut c_char, room: size_t) -> *mut c_char {
    // SAFETY: the caller guarantees the same as for `getcwd`.
    unsafe { original(next::getcwd(to, room)) }
}

/// Implements `getxattr` and `lgetxattr`. Files of this library have no extended attributes.
///
/// # Safety
///
/// The same as for `getxattr` of the C library.
pub unsafe fn getxattr(
    path: *const c_char,
    name: *const c_char,
    to: *mut c_void,
    room: size_t,
    follow: bool,
) -> ssize_t {
    // SAFETY: the caller guarantees the same as for `getxattr`.
    if unsafe { Target::of(libc::AT_FDCWD, path) } != Target::Other {
        return returned(Err(Errno::EOPNOTSUPP)) as ssize_t;
    }
    // SAFETY: the caller guarantees the same as for `getxattr`.
    unsafe {
        if follow { next::getxattr(path, name, to, room) } else { next::lgetxattr(path, name, to, room) }
    }
}

/// Implements `realpath`. A result in the launcher's tree is converted to the kernel path that it replaces.
///
/// # Safety
///
/// The same as for `realpath` of the C library.
pub unsafe fn realpath(path: *const c_char, to: *mut c_char) -> *mut c_char {
    // SAFETY: the caller guarantees the same as for `realpath`.
    unsafe { original(next::realpath(placed(path, &Target::of(libc::AT_FDCWD, path)), to)) }
}

/// Rewrites a path in the launcher's tree to the kernel's path, in place, and returns it.
///
/// # Safety
///
/// `found` is null or a C string that may be written.
unsafe fn original(found: *mut c_char) -> *mut c_char {
    if found.is_null() {
        return null_mut();
    }
    // SAFETY: the caller passes a C string.
    if let Some(original) = paths::original(unsafe { CStr::from_ptr(found) }.to_bytes()) {
        // SAFETY: the kernel's path is shorter than the one found, of which the tree's root is a prefix.
        unsafe {
            std::ptr::copy_nonoverlapping(original.as_ptr(), found.cast(), original.len());
            *found.add(original.len()) = 0;
        }
    }
    found
}

/// Implements `fopen`. For reading, a file of the launcher's tree is opened by [`open`].
///
/// # Safety
///
/// The same as for `fopen` of the C library.
pub unsafe fn fopen(path: *const c_char, mode: *const c_char) -> *mut libc::FILE {
    // SAFETY: the caller guarantees the same as for `fopen`.
    let reads = unsafe { Target::of(libc::AT_FDCWD, path).place().is_some() && *mode.cast::<u8>() == b'r' };
    if !reads {
        // SAFETY: the caller guarantees the same as for `fopen`.
        return unsafe { next::fopen(path, mode) };
    }
    // SAFETY: a C string.
    let fd = unsafe { open(path, libc::O_RDONLY | libc::O_CLOEXEC, 0) };
    if fd < 0 {
        return null_mut();
    }
    // SAFETY: a new descriptor, which the stream owns.
    unsafe { libc::fdopen(fd, c"r".as_ptr()) }
}

/// Implements `glob` with this library's directory functions, unless the caller passes its own.
///
/// # Safety
///
/// The same as for `glob` of the C library.
pub unsafe fn glob(pattern: *const c_char, flags: c_int, error: GlobError, to: *mut Glob) -> c_int {
    if flags & libc::GLOB_ALTDIRFUNC != 0 || to.is_null() {
        // SAFETY: the caller guarantees the same as for `glob`.
        return unsafe { next::glob(pattern, flags, error, to) };
    }
    // SAFETY: the caller provides a `glob_t`. Without the flag, the C library does not read its functions.
    unsafe {
        (*to).closedir = Some(glob_closedir);
        (*to).readdir = Some(glob_readdir);
        (*to).opendir = Some(glob_opendir);
        (*to).lstat = Some(glob_lstat);
        (*to).stat = Some(glob_stat);
        next::glob(pattern, flags | libc::GLOB_ALTDIRFUNC, error, to)
    }
}

unsafe extern "C" fn glob_opendir(path: *const c_char) -> *mut c_void {
    // SAFETY: `glob` passes a C string.
    unsafe { opendir(path) }.cast()
}

unsafe extern "C" fn glob_readdir(folder: *mut c_void) -> *mut libc::dirent {
    // SAFETY: `glob` passes what `glob_opendir` returned.
    unsafe { libc::readdir(folder.cast()) }
}

unsafe extern "C" fn glob_closedir(folder: *mut c_void) {
    // SAFETY: `glob` passes what `glob_opendir` returned, once.
    unsafe { libc::closedir(folder.cast()) };
}

unsafe extern "C" fn glob_lstat(path: *const c_char, to: *mut libc::stat) -> c_int {
    // SAFETY: `glob` passes a C string and room.
    unsafe { lstat(path, to) }
}

unsafe extern "C" fn glob_stat(path: *const c_char, to: *mut libc::stat) -> c_int {
    // SAFETY: `glob` passes a C string and room.
    unsafe { stat(path, to) }
}
