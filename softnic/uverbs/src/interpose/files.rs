//! Replacements for C library functions that open, check and describe files.

use super::target::Target;
use super::{guarded, next, returned};
use crate::errno::Errno;
use crate::process::{self, current};
use crate::{cm, sys, umad};
use libc::{c_char, c_int, c_uint, mode_t, size_t, ssize_t};

/// Implements `open`. For a device node, returns a descriptor of the software ConnectX.
///
/// # Safety
///
/// The same as for `open` of the C library.
pub unsafe fn open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: the caller guarantees the same as for `open`.
    unsafe { opened(libc::AT_FDCWD, path, flags, mode).unwrap_or_else(|| next::open(path, flags, mode)) }
}

/// Implements `openat`. For a device node, returns a descriptor of the software ConnectX.
///
/// # Safety
///
/// The same as for `openat` of the C library.
pub unsafe fn openat(at: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: the caller guarantees the same as for `openat`.
    unsafe { opened(at, path, flags, mode).unwrap_or_else(|| next::openat(at, path, flags, mode)) }
}

/// Opens a device node of this library, or a file of the launcher's tree. Returns `None` for any other file.
///
/// # Safety
///
/// The same as for `openat` of the C library.
unsafe fn opened(at: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> Option<c_int> {
    let close_on_exec = flags & libc::O_CLOEXEC != 0;
    // SAFETY: the caller guarantees the same as for `openat`.
    match unsafe { Target::of(at, path) } {
        Target::Node(node) => Some(returned(guarded(|| node.open(flags)))),
        Target::Live(file, _) => Some(returned(guarded(|| current().read(file, close_on_exec)))),
        // SAFETY: a C string.
        Target::Moved(place) => Some(unsafe { sys::open(at, place.as_ptr(), flags, mode) }),
        Target::Other => None,
    }
}

/// Implements `access`. For a device node, checks that the device exists and may be opened.
///
/// # Safety
///
/// The same as for `access` of the C library.
pub unsafe fn access(path: *const c_char, mode: c_int) -> c_int {
    // SAFETY: the caller guarantees the same as for `access`.
    unsafe { accessible(libc::AT_FDCWD, path, mode, 0).unwrap_or_else(|| next::access(path, mode)) }
}

/// Implements `faccessat`, like [`access`].
///
/// # Safety
///
/// The same as for `faccessat` of the C library.
pub unsafe fn faccessat(at: c_int, path: *const c_char, mode: c_int, flags: c_int) -> c_int {
    // SAFETY: the caller guarantees the same as for `faccessat`.
    unsafe { accessible(at, path, mode, flags).unwrap_or_else(|| next::faccessat(at, path, mode, flags)) }
}

/// Checks access to a file of this library, like `faccessat`. Returns `None` for any other file.
///
/// # Safety
///
/// The same as for `faccessat` of the C library.
unsafe fn accessible(at: c_int, path: *const c_char, mode: c_int, flags: c_int) -> Option<c_int> {
    // SAFETY: the caller guarantees the same as for `faccessat`.
    let target = unsafe { Target::of(at, path) };
    if let Target::Node(node) = target {
        return Some(returned(node.may_open(mode).map(|()| 0)));
    }
    // SAFETY: a C string.
    target.place().map(|place| unsafe { sys::access(at, place.as_ptr(), mode, flags) })
}

/// Implements `readlink`. A link of this library in `/sys` or `/dev` is read from the launcher's tree.
///
/// # Safety
///
/// The same as for `readlink` of the C library.
pub unsafe fn readlink(path: *const c_char, to: *mut c_char, room: size_t) -> ssize_t {
    // SAFETY: the caller guarantees the same as for `readlink`.
    unsafe { link(libc::AT_FDCWD, path, to, room).unwrap_or_else(|| next::readlink(path, to, room)) }
}

/// Implements `readlinkat`, like [`readlink`].
///
/// # Safety
///
/// The same as for `readlinkat` of the C library.
pub unsafe fn readlinkat(at: c_int, path: *const c_char, to: *mut c_char, room: size_t) -> ssize_t {
    // SAFETY: the caller guarantees the same as for `readlinkat`.
    unsafe { link(at, path, to, room).unwrap_or_else(|| next::readlinkat(at, path, to, room)) }
}

/// Reads a symbolic link of this library. Returns `None` for any other file.
///
/// # Safety
///
/// The same as for `readlinkat` of the C library.
unsafe fn link(at: c_int, path: *const c_char, to: *mut c_char, room: size_t) -> Option<ssize_t> {
    // SAFETY: the caller guarantees the same as for `readlinkat`.
    let target = unsafe { Target::of(at, path) };
    if let Target::Node(node) = target {
        let is_no_link = node.device_number().and(Err(Errno::EINVAL));
        return Some(returned(is_no_link) as ssize_t);
    }
    // SAFETY: a C string.
    target.place().map(|place| unsafe { sys::readlink(at, place.as_ptr(), to, room) })
}

/// Implements `stat`. For a device node, returns a character device.
///
/// # Safety
///
/// The same as for `stat` of the C library.
pub unsafe fn stat(path: *const c_char, to: *mut libc::stat) -> c_int {
    // SAFETY: the caller guarantees the same as for `stat`.
    unsafe { described(libc::AT_FDCWD, path, to, 0).unwrap_or_else(|| next::stat(path, to)) }
}

/// Implements `lstat`. For a device node, returns a character device.
///
/// # Safety
///
/// The same as for `lstat` of the C library.
pub unsafe fn lstat(path: *const c_char, to: *mut libc::stat) -> c_int {
    let flags = libc::AT_SYMLINK_NOFOLLOW;
    // SAFETY: the caller guarantees the same as for `lstat`.
    unsafe { described(libc::AT_FDCWD, path, to, flags).unwrap_or_else(|| next::lstat(path, to)) }
}

/// Implements `fstatat`. For a device node, returns a character device.
///
/// # Safety
///
/// The same as for `fstatat` of the C library.
pub unsafe fn fstatat(at: c_int, path: *const c_char, to: *mut libc::stat, flags: c_int) -> c_int {
    // SAFETY: the caller guarantees the same as for `fstatat`.
    unsafe { described(at, path, to, flags).unwrap_or_else(|| next::fstatat(at, path, to, flags)) }
}

/// Describes a file of this library, like `fstatat`. Returns `None` for any other file.
///
/// # Safety
///
/// The same as for `fstatat` of the C library.
unsafe fn described(at: c_int, path: *const c_char, to: *mut libc::stat, flags: c_int) -> Option<c_int> {
    // SAFETY: the caller guarantees the same as for `fstatat`.
    let target = unsafe { Target::of(at, path) };
    if let Target::Node(node) = target {
        // SAFETY: the caller provides room for one.
        let described = node.device_number().map(|number| unsafe { to.write(node_stat(number)) });
        return Some(returned(described.map(|()| 0)));
    }
    // SAFETY: a C string, and the caller's room.
    target.place().map(|place| unsafe { sys::stat(at, place.as_ptr(), to, flags) })
}

/// File mode of a device node: a character device that anyone may read and write.
const NODE_MODE: mode_t = libc::S_IFCHR | 0o666;

/// Returns the `dev_t` of an opened device node, if `fd` is one of this process.
fn open_number(fd: c_int) -> Option<libc::dev_t> {
    let verbs_or_umad = current().device_number(fd).or_else(|| umad::open_number(fd));
    verbs_or_umad.or_else(|| cm::is(fd).then(cm::device_number))
}

/// Builds the `stat` result of a device node with this device number.
fn node_stat(number: libc::dev_t) -> libc::stat {
    // SAFETY: plain numbers, for which zero is a value.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    stat.st_mode = NODE_MODE;
    stat.st_nlink = 1;
    stat.st_rdev = number;
    stat
}

/// Implements `fstat`. For an opened device, returns a character device.
///
/// # Safety
///
/// The same as for `fstat` of the C library.
pub unsafe fn fstat(fd: c_int, to: *mut libc::stat) -> c_int {
    // SAFETY: the caller guarantees the same as for `fstat`.
    let rc = unsafe { next::fstat(fd, to) };
    // The descriptor may be a duplicate.
    if rc == 0
        && process::has_devices()
        && let Some(number) = open_number(fd)
    {
        // SAFETY: the call has just filled it.
        unsafe {
            (*to).st_mode = NODE_MODE;
            (*to).st_rdev = number;
        }
    }
    rc
}

/// Implements `statx`. For a device node or an opened device, returns a character device.
///
/// # Safety
///
/// The same as for `statx` of the C library.
pub unsafe fn statx(
    at: c_int,
    path: *const c_char,
    flags: c_int,
    mask: c_uint,
    to: *mut libc::statx,
) -> c_int {
    // SAFETY: the caller guarantees the same as for `statx`.
    let target = unsafe { Target::of(at, path) };
    if let Target::Node(node) = target {
        // SAFETY: the caller provides room for one.
        let described = node.device_number().map(|number| unsafe { to.write(node_statx(number)) });
        return returned(described.map(|()| 0));
    }
    if let Some(place) = target.place() {
        // SAFETY: a C string, and the caller's room.
        return unsafe { sys::statx(at, place.as_ptr(), flags, mask, to) };
    }
    // SAFETY: the caller guarantees the same as for `statx`.
    let rc = unsafe { next::statx(at, path, flags, mask, to) };
    if rc == 0
        && flags & libc::AT_EMPTY_PATH != 0
        && process::may_be_device(at)
        && let Some(number) = open_number(at)
    {
        // SAFETY: the call has just filled it.
        become_node(unsafe { &mut *to }, number);
    }
    rc
}

/// Builds the `statx` result of a device node with this device number.
fn node_statx(number: libc::dev_t) -> libc::statx {
    // SAFETY: plain numbers, for which zero is a value.
    let mut statx: libc::statx = unsafe { std::mem::zeroed() };
    statx.stx_mask = libc::STATX_TYPE | libc::STATX_MODE | libc::STATX_NLINK;
    statx.stx_nlink = 1;
    become_node(&mut statx, number);
    statx
}

/// Turns a `statx` result into that of a character device.
fn become_node(statx: &mut libc::statx, number: libc::dev_t) {
    statx.stx_mode = NODE_MODE as u16;
    (statx.stx_rdev_major, statx.stx_rdev_minor) = (libc::major(number), libc::minor(number));
}
