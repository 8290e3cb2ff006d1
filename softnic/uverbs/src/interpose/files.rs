//! Functions that open, check and describe files.

use super::{CPath, guarded, is_cm, node, present_node, returned};
use crate::live::LiveFile;
use crate::process::{self, current};
use crate::{cm, paths, sys};
use libc::{c_char, c_int, c_uint, mode_t, size_t, ssize_t};
use std::ffi::CStr;

/// Implements `open`. For a device node, returns a descriptor of the software ConnectX.
///
/// # Safety
///
/// The same as for `open` of the C library.
pub unsafe fn open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: the caller guarantees the same as for `open`.
    unsafe { openat(libc::AT_FDCWD, path, flags, mode) }
}

/// Implements `openat`. For a device node, returns a descriptor of the software ConnectX.
///
/// # Safety
///
/// The same as for `openat` of the C library.
pub unsafe fn openat(at: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    let close_on_exec = flags & libc::O_CLOEXEC != 0;
    // SAFETY: the caller guarantees the same as for `openat`.
    if unsafe { is_cm(path) } {
        return returned(guarded(|| cm::open(close_on_exec)));
    }
    // SAFETY: the caller guarantees the same as for `openat`.
    if let Some(index) = unsafe { node(path) } {
        return returned(guarded(|| current().open(index, close_on_exec)));
    }
    // SAFETY: as above.
    let place = unsafe { CPath::of(path) };
    // SAFETY: as above.
    let live = unsafe { live(at, path, place.moved.as_deref()) }.filter(|file| current().has(file.device));
    if let Some(file) = live {
        return returned(guarded(|| current().read(file, close_on_exec)));
    }
    // SAFETY: a C string, or what the caller passed.
    unsafe { sys::open(at, place.as_ptr(), flags, mode) }
}

/// Returns the file with contents that change, if the path names one. `place` is the path in the launcher's tree.
///
/// # Safety
///
/// `path` is null or a C string.
unsafe fn live(at: c_int, path: *const c_char, place: Option<&CStr>) -> Option<LiveFile> {
    if let Some(place) = place {
        return LiveFile::find(place.to_bytes());
    }
    if path.is_null() {
        return None;
    }
    // SAFETY: the caller passes a C string.
    let path = unsafe { CStr::from_ptr(path) }.to_bytes();
    if path.starts_with(b"/") || !LiveFile::may_be(path) {
        return None;
    }
    let folder = paths::original(&paths::folder(at)?)?;
    LiveFile::find(&[&folder, &b"/"[..], path].concat())
}

/// Implements `access`. For a device node, checks that the device exists and may be opened.
///
/// # Safety
///
/// The same as for `access` of the C library.
pub unsafe fn access(path: *const c_char, mode: c_int) -> c_int {
    // SAFETY: the caller guarantees the same as for `access`.
    unsafe { faccessat(libc::AT_FDCWD, path, mode, 0) }
}

/// Implements `faccessat`, like [`access`].
///
/// # Safety
///
/// The same as for `faccessat` of the C library.
pub unsafe fn faccessat(at: c_int, path: *const c_char, mode: c_int, flags: c_int) -> c_int {
    // SAFETY: the caller guarantees the same as for `faccessat`.
    if let Some(index) = unsafe { present_node(path).or(is_cm(path).then_some(0)) } {
        return returned(current().may_open(index, mode).map(|()| 0));
    }
    // SAFETY: as above.
    let place = unsafe { CPath::of(path) };
    // SAFETY: a C string, or what the caller passed.
    unsafe { sys::access(at, place.as_ptr(), mode, flags) }
}

/// Implements `readlinkat`, and `readlink`.
///
/// # Safety
///
/// The same as for `readlinkat` of the C library.
pub unsafe fn readlinkat(at: c_int, path: *const c_char, to: *mut c_char, room: size_t) -> ssize_t {
    // SAFETY: the caller guarantees the same as for `readlinkat`.
    let place = unsafe { CPath::of(path) };
    // SAFETY: a C string, or what the caller passed.
    unsafe { sys::readlink(at, place.as_ptr(), to, room) }
}

/// Implements `stat`. For a device node, returns a character device.
///
/// # Safety
///
/// The same as for `stat` of the C library.
pub unsafe fn stat(path: *const c_char, to: *mut libc::stat) -> c_int {
    // SAFETY: the caller guarantees the same as for `stat`.
    unsafe { fstatat(libc::AT_FDCWD, path, to, 0) }
}

/// Implements `fstatat`, and `lstat`. For a device node, returns a character device.
///
/// # Safety
///
/// The same as for `fstatat` of the C library.
pub unsafe fn fstatat(at: c_int, path: *const c_char, to: *mut libc::stat, flags: c_int) -> c_int {
    // SAFETY: the caller guarantees the same as for `fstatat`.
    if let Some(number) = unsafe { node_number(path) } {
        // SAFETY: the caller provides room for one.
        unsafe { to.write(node_stat(number)) };
        return 0;
    }
    // SAFETY: as above.
    let place = unsafe { CPath::of(path) };
    // SAFETY: a C string, or what the caller passed.
    unsafe { sys::stat(at, place.as_ptr(), to, flags) }
}

/// Rights and kind of a device node.
const NODE_MODE: mode_t = libc::S_IFCHR | 0o666;

/// Returns the number of the character device that a path names, if it is a node of this process.
///
/// # Safety
///
/// `path` is null or a C string.
unsafe fn node_number(path: *const c_char) -> Option<libc::dev_t> {
    // SAFETY: the caller's promise.
    unsafe {
        let device = present_node(path).map(process::device_number);
        device.or_else(|| is_cm(path).then(cm::device_number))
    }
}

/// Returns the number of the character device that a descriptor is open on, if it is one of this process.
fn open_number(fd: c_int) -> Option<libc::dev_t> {
    current().device_number(fd).or_else(|| cm::is(fd).then(cm::device_number))
}

/// Returns the `stat` result of a device node.
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
    // SAFETY: an empty path with this flag means the descriptor; the rest is as the caller promises.
    let rc = unsafe { sys::stat(fd, c"".as_ptr(), to, libc::AT_EMPTY_PATH) };
    // A program may have duplicated the descriptor.
    if rc == 0
        && process::has_devices()
        && let Some(number) = open_number(fd)
    {
        // SAFETY: the system call has just filled it.
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
    if let Some(number) = unsafe { node_number(path) } {
        // SAFETY: plain numbers, for which zero is a value.
        let mut statx: libc::statx = unsafe { std::mem::zeroed() };
        statx.stx_mask = libc::STATX_TYPE | libc::STATX_MODE | libc::STATX_NLINK;
        statx.stx_nlink = 1;
        become_node(&mut statx, number);
        // SAFETY: the caller provides room for one.
        unsafe { to.write(statx) };
        return 0;
    }
    // SAFETY: as above.
    let place = unsafe { CPath::of(path) };
    // SAFETY: a C string, or what the caller passed.
    let rc = unsafe { sys::statx(at, place.as_ptr(), flags, mask, to) };
    if rc == 0
        && flags & libc::AT_EMPTY_PATH != 0
        && process::may_be_device(at)
        && let Some(number) = open_number(at)
    {
        // SAFETY: the system call has just filled it.
        become_node(unsafe { &mut *to }, number);
    }
    rc
}

/// Describes a character device.
fn become_node(statx: &mut libc::statx, number: libc::dev_t) {
    statx.stx_mode = NODE_MODE as u16;
    (statx.stx_rdev_major, statx.stx_rdev_minor) = (libc::major(number), libc::minor(number));
}
