//! Functions that list, resolve and enter folders, and `fopen`. They see the devices of this library in `/sys`.

use super::next::{self, Filter, Order};
use super::{CPath, is_cm, moved, node, open, returned};
use crate::errno::Errno;
use crate::{paths, sys};
use libc::{c_char, c_int, c_void, size_t, ssize_t};
use std::ffi::CStr;
use std::ptr::null_mut;

/// Implements `opendir`.
///
/// # Safety
///
/// The same as for `opendir` of the C library.
pub unsafe fn opendir(path: *const c_char) -> *mut libc::DIR {
    // SAFETY: the caller guarantees the same as for `opendir`.
    let place = unsafe { CPath::of(path) };
    // SAFETY: a C string.
    unsafe { next::opendir(place.as_ptr()) }
}

/// Implements `scandir`.
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
    let place = unsafe { CPath::of(path) };
    // SAFETY: a C string, and the caller's other arguments.
    unsafe { next::scandir(place.as_ptr(), list, filter, order) }
}

/// Implements `chdir`.
///
/// # Safety
///
/// The same as for `chdir` of the C library.
pub unsafe fn chdir(path: *const c_char) -> c_int {
    // SAFETY: the caller guarantees the same as for `chdir`.
    let place = unsafe { CPath::of(path) };
    // SAFETY: a C string.
    match unsafe { sys::chdir(place.as_ptr()) } {
        0 => 0,
        _ => returned(Err(Errno::last())),
    }
}

/// Implements `getcwd`. A folder of the launcher's tree has the kernel's path.
///
/// # Safety
///
/// The same as for `getcwd` of the C library.
pub unsafe fn getcwd(to: *mut c_char, room: size_t) -> *mut c_char {
    // SAFETY: the caller guarantees the same as for `getcwd`.
    unsafe { original(next::getcwd(to, room)) }
}

/// Implements `getxattr` and `lgetxattr`. The files of sysfs have no attributes.
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
    if unsafe { moved(path).is_some() || node(path).is_some() || is_cm(path) } {
        return returned(Err(Errno::EOPNOTSUPP)) as ssize_t;
    }
    // SAFETY: the caller guarantees the same as for `getxattr`.
    unsafe {
        if follow { next::getxattr(path, name, to, room) } else { next::lgetxattr(path, name, to, room) }
    }
}

/// Implements `realpath`. A path in the launcher's tree becomes the kernel's path.
///
/// # Safety
///
/// The same as for `realpath` of the C library.
pub unsafe fn realpath(path: *const c_char, to: *mut c_char) -> *mut c_char {
    // SAFETY: the caller guarantees the same as for `realpath`.
    let place = unsafe { CPath::of(path) };
    // SAFETY: a C string, and the caller's room.
    unsafe { original(next::realpath(place.as_ptr(), to)) }
}

/// Replaces a path in the launcher's tree by the kernel's path, and returns it.
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
        // SAFETY: the kernel's path is shorter than the one found, because the tree's root is longer than `/sys`.
        unsafe {
            std::ptr::copy_nonoverlapping(original.as_ptr(), found.cast(), original.len());
            *found.add(original.len()) = 0;
        }
    }
    found
}

/// Implements `fopen`.
///
/// # Safety
///
/// The same as for `fopen` of the C library.
pub unsafe fn fopen(path: *const c_char, mode: *const c_char) -> *mut libc::FILE {
    // SAFETY: the caller guarantees the same as for `fopen`.
    let reads = unsafe { moved(path).is_some() && *mode.cast::<u8>() == b'r' };
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
