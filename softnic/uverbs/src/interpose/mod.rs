//! Replacements for functions of the C library. They handle device nodes, opened devices and sysfs, and forward any
//! other call to the C library.
//!
//! The preloaded library exports them under the C library's names. This crate does not, so a program may link it.

mod files;
mod folders;
mod next;
mod read;
mod send;
mod target;
mod write;

pub use files::{access, faccessat, fstat, fstatat, lstat, open, openat, readlink, readlinkat, stat, statx};
pub use folders::{chdir, fopen, getcwd, getxattr, glob, opendir, realpath, scandir, scandirat};
pub use next::{Filter, Order};
pub use next::{Glob, GlobError};
pub use read::read;
pub use send::{send, sendmsg, sendto};
pub use write::write;

use crate::errno::Errno;
use crate::process::{self, current};
use crate::{attrs, cm, netlink, umad};
use libc::{c_int, c_ulong};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Netlink protocol of RDMA.
const NETLINK_RDMA: c_int = 20;

fn set_errno(error: Errno) {
    // SAFETY: the C library's own variable of this thread.
    unsafe { *libc::__errno_location() = error.0 };
}

/// Runs library code inside a call of the program. A panic becomes an error.
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

/// Implements `close`. Closing an opened device destroys its objects.
pub fn close(fd: c_int) -> c_int {
    if process::may_be_device(fd) {
        // A vfork child shares this memory but not the descriptors.
        let closed = guarded(|| Ok(process::existing().map(|process| process.close(fd))));
        tracing::trace!(fd, ?closed, "close");
        let forgotten = guarded(|| {
            umad::close(fd);
            netlink::close(fd);
            Ok(())
        });
        tracing::trace!(fd, ?forgotten, "close of management datagrams and netlink");
        if guarded(|| Ok(cm::close(fd))) == Ok(true) {
            return 0;
        }
    }
    // SAFETY: the caller owns the descriptor, as for the C library's function.
    unsafe { next::close(fd) }
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
    if process::may_be_device(fd)
        && let Some(done) =
            guarded(|| umad::ioctl(fd, request as u32, argument as u64).transpose()).transpose()
    {
        return returned(done.map(|()| 0));
    }
    // SAFETY: the caller guarantees the same as for `ioctl`.
    unsafe { next::ioctl(fd, request, argument) }
}

/// Implements `socket`. RDMA netlink sockets list this library's devices.
pub fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    if domain == libc::AF_NETLINK && protocol == NETLINK_RDMA {
        return returned(guarded(|| netlink::open(kind)));
    }
    // SAFETY: takes numbers only.
    unsafe { next::socket(domain, kind, protocol) }
}
