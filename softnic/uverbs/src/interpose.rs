//! The C library's functions as a program with devices finds them. The preloaded library exports these under the C
//! library's names; this crate does not, so that a program may link it without being changed.

use crate::errno::Errno;
use crate::process::{self, current};
use crate::{attrs, sys};
use libc::{c_char, c_int, c_ulong, mode_t};
use std::ffi::CStr;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The protocol of netlink by which a host's own RDMA devices are listed.
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

/// The number of the device whose node this is, by name or by device number.
///
/// # Safety
///
/// `path` is null or a C string.
unsafe fn node(path: *const c_char) -> Option<u32> {
    if path.is_null() {
        return None;
    }
    // SAFETY: a C string, says the caller.
    let path = unsafe { CStr::from_ptr(path) }.to_bytes();
    // libibverbs tries the second where the first does not open.
    if let Some(index) = number(path, b"/dev/infiniband/uverbs") {
        return Some(index);
    }
    let minor = number(path, b"/dev/char/231:")?;
    minor.checked_sub(process::FIRST_MINOR)
}

/// The number that follows `prefix`.
fn number(path: &[u8], prefix: &[u8]) -> Option<u32> {
    std::str::from_utf8(path.strip_prefix(prefix)?).ok()?.parse().ok()
}

/// `open`: a device's node gives a descriptor of the software ConnectX.
///
/// # Safety
///
/// As for `open` of the C library.
pub unsafe fn open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: as the caller promises for `open`.
    match unsafe { node(path) } {
        // SAFETY: as the caller promises for `open`.
        None => unsafe { sys::open(path, flags, mode) },
        Some(index) => returned(guarded(|| current().open(index, flags & libc::O_CLOEXEC != 0))),
    }
}

/// `access`: whether the nodes are there, and may be opened.
///
/// # Safety
///
/// As for `access` of the C library.
pub unsafe fn access(path: *const c_char, mode: c_int) -> c_int {
    // SAFETY: as the caller promises for `access`.
    match unsafe { node(path) } {
        Some(index) if current().has(index) => returned(current().may_open(index, mode).map(|()| 0)),
        // SAFETY: as the caller promises for `access`.
        _ => unsafe { sys::access(path, mode) },
    }
}

/// `close`: an opened device's objects go with it.
pub fn close(fd: c_int) -> c_int {
    if process::may_be_device(fd) {
        // A child of vfork shares this memory, but its descriptors are its own.
        let closed = guarded(|| Ok(process::existing().map(|process| process.close(fd))));
        tracing::trace!(fd, ?closed, "close");
    }
    sys::close(fd)
}

/// `stat`: the nodes are there.
///
/// # Safety
///
/// As for `stat` of the C library.
pub unsafe fn stat(path: *const c_char, to: *mut libc::stat) -> c_int {
    // SAFETY: as the caller promises for `stat`.
    match unsafe { node(path) } {
        Some(index) if current().has(index) => {
            // SAFETY: the caller gives room for one.
            unsafe { to.write(node_stat(index)) };
            0
        }
        // SAFETY: as the caller promises for `stat`.
        _ => unsafe { sys::stat(libc::AT_FDCWD, path, to, 0) },
    }
}

/// What `stat` says of a node.
fn node_stat(index: u32) -> libc::stat {
    // SAFETY: plain numbers, for which zero is a value.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    stat.st_mode = libc::S_IFCHR | 0o666;
    stat.st_nlink = 1;
    stat.st_rdev = process::device_number(index);
    stat
}

/// `fstat`: an opened device is a character device.
///
/// # Safety
///
/// As for `fstat` of the C library.
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

/// `ioctl`: those of uverbs on an opened device are executed here.
///
/// # Safety
///
/// As for `ioctl` of the C library.
pub unsafe fn ioctl(fd: c_int, request: c_ulong, argument: usize) -> c_int {
    if request as u32 == attrs::REQUEST as u32
        && let Some(done) = guarded(|| current().ioctl(fd, argument as u64).transpose()).transpose()
    {
        return returned(done.map(|()| 0));
    }
    // SAFETY: as the caller promises for `ioctl`.
    unsafe { sys::ioctl(fd, request, argument) }
}

/// `socket`: there is no netlink of RDMA, which would list the host's own devices instead.
pub fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    if domain == libc::AF_NETLINK && protocol == NETLINK_RDMA {
        return returned(Err(Errno::EPROTONOSUPPORT));
    }
    sys::socket(domain, kind, protocol)
}
