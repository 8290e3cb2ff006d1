//! Replacements for functions of the C library: they act on device nodes and opened devices, and pass other calls on.
//!
//! The preloaded library exports them under the C library's names. This crate does not, so a program may link it.

use crate::errno::Errno;
use crate::process::{self, current};
use crate::{attrs, sys};
use libc::{c_char, c_int, c_ulong, mode_t};
use std::ffi::CStr;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The netlink protocol that lists the host's RDMA devices.
const NETLINK_RDMA: c_int = 20;

/// Sets `errno`.
fn set_errno(error: Errno) {
    // SAFETY: the C library's own variable of this thread.
    unsafe { *libc::__errno_location() = error.0 };
}

/// Runs code of this library for a program; a panic in it becomes an error.
fn guarded<T>(run: impl FnOnce() -> Result<T, Errno>) -> Result<T, Errno> {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| {
        tracing::error!("internal error of the software ConnectX; please report it");
        Err(Errno::EIO)
    })
}

fn returned(result: Result<c_int, Errno>) -> c_int {
    result.unwrap_or_else(|error| {
        set_errno(error);
        -1
    })
}

/// Returns the device number of a node, found by the node's name or by its character device number.
///
/// # Safety
///
/// `path` is null or a C string.
unsafe fn node(path: *const c_char) -> Option<u32> {
    if path.is_null() {
        return None;
    }
    // SAFETY: the caller passes a C string.
    let path = unsafe { CStr::from_ptr(path) }.to_bytes();
    // libibverbs tries the second path if the first does not open.
    if let Some(index) = number(path, b"/dev/infiniband/uverbs") {
        return Some(index);
    }
    let minor = number(path, b"/dev/char/231:")?;
    minor.checked_sub(process::FIRST_MINOR)
}

/// Returns the number that follows `prefix`.
fn number(path: &[u8], prefix: &[u8]) -> Option<u32> {
    std::str::from_utf8(path.strip_prefix(prefix)?).ok()?.parse().ok()
}

/// Implements `open`. For a device node, returns a descriptor of the software ConnectX.
///
/// # Safety
///
/// The same as for `open` of the C library.
pub unsafe fn open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: the caller guarantees the same as for `open`.
    match unsafe { node(path) } {
        // SAFETY: the caller guarantees the same as for `open`.
        None => unsafe { sys::open(path, flags, mode) },
        Some(index) => returned(guarded(|| current().open(index, flags & libc::O_CLOEXEC != 0))),
    }
}

/// Implements `access`. For a device node, checks that the device exists and may be opened.
///
/// # Safety
///
/// The same as for `access` of the C library.
pub unsafe fn access(path: *const c_char, mode: c_int) -> c_int {
    // SAFETY: the caller guarantees the same as for `access`.
    match unsafe { node(path) } {
        Some(index) if current().has(index) => returned(current().may_open(index, mode).map(|()| 0)),
        // SAFETY: the caller guarantees the same as for `access`.
        _ => unsafe { sys::access(path, mode) },
    }
}

/// Implements `close`. For an opened device, destroys its objects.
pub fn close(fd: c_int) -> c_int {
    if process::may_be_device(fd) {
        // A child of vfork shares this memory, but its descriptors are its own.
        let closed = guarded(|| Ok(process::existing().map(|process| process.close(fd))));
        tracing::trace!(fd, ?closed, "close");
    }
    sys::close(fd)
}

/// Implements `stat`. For a device node, returns a character device.
///
/// # Safety
///
/// The same as for `stat` of the C library.
pub unsafe fn stat(path: *const c_char, to: *mut libc::stat) -> c_int {
    // SAFETY: the caller guarantees the same as for `stat`.
    match unsafe { node(path) } {
        Some(index) if current().has(index) => {
            // SAFETY: the caller provides room for one.
            unsafe { to.write(node_stat(index)) };
            0
        }
        // SAFETY: the caller guarantees the same as for `stat`.
        _ => unsafe { sys::stat(libc::AT_FDCWD, path, to, 0) },
    }
}

/// Returns the `stat` result of a device node.
fn node_stat(index: u32) -> libc::stat {
    // SAFETY: plain numbers, for which zero is a value.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    stat.st_mode = libc::S_IFCHR | 0o666;
    stat.st_nlink = 1;
    stat.st_rdev = process::device_number(index);
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
    if rc == 0
        && process::may_be_device(fd)
        && let Some(number) = current().device_number(fd)
    {
        // SAFETY: the system call has just filled it.
        unsafe {
            (*to).st_mode = libc::S_IFCHR | 0o666;
            (*to).st_rdev = number;
        }
    }
    rc
}

/// Implements `ioctl`. Executes uverbs ioctls on an opened device.
///
/// # Safety
///
/// The same as for `ioctl` of the C library.
pub unsafe fn ioctl(fd: c_int, request: c_ulong, argument: usize) -> c_int {
    if request as u32 == attrs::REQUEST as u32
        && let Some(done) = guarded(|| current().ioctl(fd, argument as u64).transpose()).transpose()
    {
        return returned(done.map(|()| 0));
    }
    // SAFETY: the caller guarantees the same as for `ioctl`.
    unsafe { sys::ioctl(fd, request, argument) }
}

/// Implements `socket`. Refuses RDMA netlink, because it would list the host's own devices instead.
pub fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    if domain == libc::AF_NETLINK && protocol == NETLINK_RDMA {
        return returned(Err(Errno::EPROTONOSUPPORT));
    }
    sys::socket(domain, kind, protocol)
}
