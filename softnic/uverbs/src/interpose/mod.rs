//! Replacements for functions of the C library: they act on device nodes, opened devices and sysfs, and pass other
//! calls on.
//!
//! The preloaded library exports them under the C library's names. This crate does not, so a program may link it.

mod files;
mod folders;
mod next;
mod write;

pub use files::{access, faccessat, fstat, fstatat, open, openat, readlinkat, stat, statx};
pub use folders::{chdir, fopen, getcwd, getxattr, opendir, realpath, scandir};
pub use next::{Filter, Order};
pub use write::write;

use crate::errno::Errno;
use crate::process::{self, current};
use crate::{attrs, cm, paths, sys};
use libc::{c_char, c_int, c_ulong};
use std::ffi::{CStr, CString};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The netlink protocol that lists the host's RDMA devices.
const NETLINK_RDMA: c_int = 20;

/// The file of the RDMA connection manager.
const CM_NODE: &CStr = c"/dev/infiniband/rdma_cm";

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

/// Returns the device number of a node like [`node`], if this process has the device.
///
/// # Safety
///
/// `path` is null or a C string.
unsafe fn present_node(path: *const c_char) -> Option<u32> {
    // SAFETY: the caller's promise.
    unsafe { node(path) }.filter(|index| current().has(*index))
}

/// Returns whether a path is the file of the RDMA connection manager, and this process has devices.
///
/// # Safety
///
/// `path` is null or a C string.
unsafe fn is_cm(path: *const c_char) -> bool {
    // SAFETY: the caller passes a C string.
    !path.is_null() && unsafe { CStr::from_ptr(path) } == CM_NODE && current().has(0)
}

/// A path as the C library's function gets it: the program's, or its place in the launcher's tree.
struct CPath {
    path: *const c_char,
    moved: Option<CString>,
}

impl CPath {
    /// Finds the place of a path.
    ///
    /// # Safety
    ///
    /// `path` is null or a C string.
    unsafe fn of(path: *const c_char) -> CPath {
        // SAFETY: the caller's promise.
        CPath { path, moved: unsafe { moved(path) } }
    }

    /// Returns a C string that lives as long as this, or what the program passed.
    fn as_ptr(&self) -> *const c_char {
        self.moved.as_ref().map_or(self.path, |moved| moved.as_ptr())
    }
}

/// Returns the place of a path in the launcher's tree, or `None` if the path is not about RDMA devices.
///
/// # Safety
///
/// `path` is null or a C string.
unsafe fn moved(path: *const c_char) -> Option<CString> {
    if path.is_null() {
        return None;
    }
    // SAFETY: the caller passes a C string.
    paths::moved(unsafe { CStr::from_ptr(path) }.to_bytes())
}

/// Implements `close`. For an opened device, destroys its objects.
pub fn close(fd: c_int) -> c_int {
    if process::may_be_device(fd) {
        // A child of vfork shares this memory, but its descriptors are its own.
        let closed = guarded(|| Ok(process::existing().map(|process| process.close(fd))));
        tracing::trace!(fd, ?closed, "close");
        if guarded(|| Ok(cm::close(fd))) == Ok(true) {
            return 0;
        }
    }
    sys::close(fd)
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
