//! Direct system calls. The C library's names would call this library again when it is preloaded.

use crate::errno::Errno;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// The identity of an open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Identity {
    device: u64,
    inode: u64,
}

/// Makes the system call `openat` for a path.
///
/// # Safety
///
/// The path is a C string. The system call checks the pointer.
pub(crate) unsafe fn open(path: *const libc::c_char, flags: libc::c_int, mode: libc::mode_t) -> libc::c_int {
    // SAFETY: the system call checks its arguments.
    unsafe { libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path, flags, mode) as libc::c_int }
}

/// Makes the system call `faccessat` for a path.
///
/// # Safety
///
/// The path is a C string. The system call checks the pointer.
pub(crate) unsafe fn access(path: *const libc::c_char, mode: libc::c_int) -> libc::c_int {
    // SAFETY: the system call checks its arguments.
    unsafe { libc::syscall(libc::SYS_faccessat, libc::AT_FDCWD, path, mode) as libc::c_int }
}

/// Makes the system call `close`.
pub(crate) fn close(fd: RawFd) -> libc::c_int {
    // SAFETY: closing any number is memory-safe. The caller owns the descriptor, as for the C library's function.
    unsafe { libc::syscall(libc::SYS_close, fd) as libc::c_int }
}

/// Makes the system call `ioctl`.
///
/// # Safety
///
/// The same as for the system call.
pub(crate) unsafe fn ioctl(fd: RawFd, request: libc::c_ulong, argument: usize) -> libc::c_int {
    // SAFETY: the arguments are passed on unchanged.
    unsafe { libc::syscall(libc::SYS_ioctl, fd, request, argument) as libc::c_int }
}

/// Makes the system call `socket`.
pub(crate) fn socket(domain: libc::c_int, kind: libc::c_int, protocol: libc::c_int) -> libc::c_int {
    // SAFETY: takes numbers only.
    unsafe { libc::syscall(libc::SYS_socket, domain, kind, protocol) as libc::c_int }
}

/// Makes the system call `newfstatat`: `stat` with a path, or `fstat` with an empty path.
///
/// # Safety
///
/// The same as for the system call, which checks its pointers.
pub(crate) unsafe fn stat(
    at: RawFd,
    path: *const libc::c_char,
    to: *mut libc::stat,
    flags: libc::c_int,
) -> libc::c_int {
    // SAFETY: the system call checks its arguments.
    unsafe { libc::syscall(libc::SYS_newfstatat, at, path, to, flags) as libc::c_int }
}

/// Returns the identity of the file behind `fd`, if it is open.
pub(crate) fn identity(fd: RawFd) -> Option<Identity> {
    let mut stat = std::mem::MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: an empty path with this flag means the descriptor itself, and `stat` is a live local variable.
    let rc = unsafe { self::stat(fd, c"".as_ptr(), stat.as_mut_ptr(), libc::AT_EMPTY_PATH) };
    // SAFETY: plain numbers, zeroed at first.
    let stat = unsafe { stat.assume_init() };
    (rc == 0).then_some(Identity { device: stat.st_dev, inode: stat.st_ino })
}

/// Creates a memory file, which programs may map.
pub(crate) fn memory_file(close_on_exec: bool) -> Result<OwnedFd, Errno> {
    let flags = if close_on_exec { libc::MFD_CLOEXEC } else { 0 };
    // SAFETY: takes a C string and a number.
    owned(unsafe { libc::memfd_create(MEMORY_FILE.as_ptr(), flags) })
}

/// Name of the memory files.
const MEMORY_FILE: &std::ffi::CStr = c"rushmem-uverbs";

/// Returns whether this is a memory file of this library, in any process.
pub(crate) fn is_memory_file(fd: RawFd) -> bool {
    let target = std::fs::read_link(format!("/proc/self/fd/{fd}"));
    target.is_ok_and(|path| path.to_string_lossy().starts_with("/memfd:rushmem-uverbs "))
}

/// Sets the length of a file.
pub(crate) fn set_len(file: &OwnedFd, len: u64) -> Result<(), Errno> {
    let len = libc::off_t::try_from(len).map_err(|_| Errno::ENOSPC)?;
    // SAFETY: takes numbers only.
    if unsafe { libc::ftruncate(file.as_raw_fd(), len) } == 0 { Ok(()) } else { Err(Errno::last()) }
}

/// Zeroes part of a file and releases its memory.
pub(crate) fn erase(file: &OwnedFd, offset: u64, len: u64) -> Result<(), Errno> {
    let number = |value| libc::off_t::try_from(value).map_err(|_| Errno::EINVAL);
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    // SAFETY: takes numbers only.
    let rc = unsafe { libc::fallocate(file.as_raw_fd(), mode, number(offset)?, number(len)?) };
    if rc == 0 { Ok(()) } else { Err(Errno::last()) }
}

/// Returns a second descriptor of a program's file.
pub(crate) fn duplicate(fd: RawFd) -> Result<OwnedFd, Errno> {
    // SAFETY: takes numbers only.
    owned(unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 3) })
}

/// Takes over a descriptor that a system call made.
pub(crate) fn owned(fd: libc::c_int) -> Result<OwnedFd, Errno> {
    if fd < 0 {
        return Err(Errno::last());
    }
    // SAFETY: the descriptor is new, and only this call has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
