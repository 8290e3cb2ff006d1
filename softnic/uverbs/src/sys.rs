//! Direct system calls. The C library's functions would call the preloaded library again.

use crate::errno::Errno;
use bytemuck::{Pod, Zeroable};
use std::ffi::{CStr, CString};
use std::io::{Seek as _, Write as _};
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::time::Duration;

/// Identity of an open file, which all its duplicated descriptors share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Identity {
    device: u64,
    inode: u64,
}

/// Invokes `openat`.
///
/// # Safety
///
/// The path is a C string. The system call checks the pointer.
pub(crate) unsafe fn open(
    at: RawFd,
    path: *const libc::c_char,
    flags: libc::c_int,
    mode: libc::mode_t,
) -> libc::c_int {
    // SAFETY: the system call checks its arguments.
    unsafe { libc::syscall(libc::SYS_openat, at, path, flags, mode) as libc::c_int }
}

/// Invokes `faccessat`, or `faccessat2` if there are flags.
///
/// # Safety
///
/// The path is a C string. The system call checks the pointer.
pub(crate) unsafe fn access(
    at: RawFd,
    path: *const libc::c_char,
    mode: libc::c_int,
    flags: libc::c_int,
) -> libc::c_int {
    let call = if flags == 0 { libc::SYS_faccessat } else { libc::SYS_faccessat2 };
    // SAFETY: the system call checks its arguments.
    unsafe { libc::syscall(call, at, path, mode, flags) as libc::c_int }
}

/// Invokes `readlinkat`.
///
/// # Safety
///
/// The same as for the system call, which checks its pointers.
pub(crate) unsafe fn readlink(
    at: RawFd,
    path: *const libc::c_char,
    to: *mut libc::c_char,
    room: usize,
) -> isize {
    // SAFETY: the system call checks its arguments.
    unsafe { libc::syscall(libc::SYS_readlinkat, at, path, to, room) as isize }
}

/// Invokes `chdir`.
///
/// # Safety
///
/// The path is a C string. The system call checks the pointer.
pub(crate) unsafe fn chdir(path: *const libc::c_char) -> libc::c_int {
    // SAFETY: the system call checks its arguments.
    unsafe { libc::syscall(libc::SYS_chdir, path) as libc::c_int }
}

/// Invokes `statx`.
///
/// # Safety
///
/// The same as for the system call, which checks its pointers.
pub(crate) unsafe fn statx(
    at: RawFd,
    path: *const libc::c_char,
    flags: libc::c_int,
    mask: libc::c_uint,
    to: *mut libc::statx,
) -> libc::c_int {
    // SAFETY: the system call checks its arguments.
    unsafe { libc::syscall(libc::SYS_statx, at, path, flags, mask, to) as libc::c_int }
}

/// Returns the name of the network device with this address, or `EINVAL` if there is none.
pub(crate) fn network_device(ip: Ipv4Addr) -> Result<String, Errno> {
    let mut list = std::ptr::null_mut();
    // SAFETY: room for the head of a list, which is freed below.
    if unsafe { libc::getifaddrs(&raw mut list) } != 0 {
        return Err(Errno::last());
    }
    let (mut found, mut at) = (Err(Errno::EINVAL), list);
    // SAFETY: null, or an entry of the list.
    while let Some(entry) = unsafe { at.as_ref() } {
        at = entry.ifa_next;
        let address = entry.ifa_addr.cast::<libc::sockaddr_in>();
        // SAFETY: null, or an address of some family. The family is the first member of every address.
        if address.is_null() || i32::from(unsafe { (*address).sin_family }) != libc::AF_INET {
            continue;
        }
        // SAFETY: an address of this family.
        if unsafe { (*address).sin_addr.s_addr } == u32::from(ip).to_be() {
            // SAFETY: a C string of the list.
            found = Ok(unsafe { CStr::from_ptr(entry.ifa_name) }.to_string_lossy().into_owned());
            break;
        }
    }
    // SAFETY: the list made above. Nothing refers to it any more.
    unsafe { libc::freeifaddrs(list) };
    found
}

/// Returns the index of a network device, or 0 if there is none with this name.
pub(crate) fn interface_index(name: &str) -> u32 {
    // SAFETY: a C string that lives.
    CString::new(name).map_or(0, |name| unsafe { libc::if_nametoindex(name.as_ptr()) })
}

/// Invokes `close`.
pub(crate) fn close(fd: RawFd) -> libc::c_int {
    // SAFETY: closing any number is memory-safe. The caller owns the descriptor, as for the C library's function.
    unsafe { libc::syscall(libc::SYS_close, fd) as libc::c_int }
}

/// Invokes `ioctl`.
///
/// # Safety
///
/// The same as for the system call.
pub(crate) unsafe fn ioctl(fd: RawFd, request: libc::c_ulong, argument: usize) -> libc::c_int {
    // SAFETY: the arguments are passed on unchanged.
    unsafe { libc::syscall(libc::SYS_ioctl, fd, request, argument) as libc::c_int }
}

/// Invokes `socket`.
pub(crate) fn socket(domain: libc::c_int, kind: libc::c_int, protocol: libc::c_int) -> libc::c_int {
    // SAFETY: takes numbers only.
    unsafe { libc::syscall(libc::SYS_socket, domain, kind, protocol) as libc::c_int }
}

/// Whether this is a netlink socket of a protocol.
pub(crate) fn is_netlink(fd: RawFd, protocol: libc::c_int) -> bool {
    socket_option(fd, libc::SO_DOMAIN) == Some(libc::AF_NETLINK)
        && socket_option(fd, libc::SO_PROTOCOL) == Some(protocol)
}

/// Returns an integer option of a socket.
fn socket_option(fd: RawFd, option: libc::c_int) -> Option<libc::c_int> {
    let mut value: libc::c_int = 0;
    let (to, mut len) = (&raw mut value, size_of::<libc::c_int>() as libc::socklen_t);
    // SAFETY: a live local variable, and its length.
    let rc = unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, option, to.cast(), &raw mut len) };
    (rc == 0).then_some(value)
}

/// Returns the address of a netlink port. 0 lets the system choose one.
fn netlink_address(port: u32) -> libc::sockaddr_nl {
    // SAFETY: plain numbers, for which zero is a value.
    let mut address: libc::sockaddr_nl = unsafe { std::mem::zeroed() };
    address.nl_family = libc::AF_NETLINK as libc::sa_family_t;
    address.nl_pid = port;
    address
}

/// Returns the port of a netlink socket, binding it first if needed.
pub(crate) fn netlink_port(fd: RawFd) -> Result<u32, Errno> {
    let mut own = netlink_address(0);
    let mut len = size_of_val(&own) as libc::socklen_t;
    let at: *mut libc::sockaddr_nl = &raw mut own;
    // SAFETY: a live address of the length given.
    let mut get = || match unsafe { libc::getsockname(fd, at.cast(), &raw mut len) } {
        // SAFETY: the live address.
        0 => Ok(unsafe { (*at).nl_pid }),
        _ => Err(Errno::last()),
    };
    let port = get()?;
    if port != 0 {
        return Ok(port);
    }
    let any = netlink_address(0);
    // SAFETY: a live address of the length given.
    let rc = unsafe { libc::bind(fd, (&raw const any).cast(), size_of_val(&any) as libc::socklen_t) };
    if rc == 0 { get() } else { Err(Errno::last()) }
}

/// Sends a datagram to a netlink port. Fails with `EAGAIN` if its queue is full.
pub(crate) fn send_netlink(fd: RawFd, port: u32, datagram: &[u8]) -> Result<(), Errno> {
    let (from, len) = (datagram.as_ptr().cast::<libc::c_void>(), datagram.len());
    let to = netlink_address(port);
    let to_len = size_of_val(&to) as libc::socklen_t;
    let flags = libc::MSG_DONTWAIT;
    // Not by name, which would resolve to this library's `sendto`.
    // SAFETY: the datagram's own bytes, and a live address.
    let sent = unsafe { libc::syscall(libc::SYS_sendto, fd, from, len, flags, &raw const to, to_len) };
    if usize::try_from(sent) == Ok(len) { Ok(()) } else { Err(Errno::last()) }
}

/// Invokes `newfstatat`: `stat` with a path, or `fstat` with an empty path.
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

/// Returns the identity of the file that `fd` refers to, if it is open.
pub(crate) fn identity(fd: RawFd) -> Option<Identity> {
    let mut stat = std::mem::MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: an empty path with this flag means the descriptor itself, and `stat` is a live local variable.
    let rc = unsafe { self::stat(fd, c"".as_ptr(), stat.as_mut_ptr(), libc::AT_EMPTY_PATH) };
    // SAFETY: plain numbers, zeroed at first.
    let stat = unsafe { stat.assume_init() };
    (rc == 0).then_some(Identity { device: stat.st_dev, inode: stat.st_ino })
}

/// Waits until a descriptor is readable or closed by its peer, for at most `time`.
pub(crate) fn wait(fds: &[RawFd], time: Option<Duration>) {
    let mut fds: Vec<_> =
        fds.iter().map(|fd| libc::pollfd { fd: *fd, events: libc::POLLIN, revents: 0 }).collect();
    let time = time.map(|time| libc::timespec {
        tv_sec: time.as_secs() as libc::time_t,
        tv_nsec: time.subsec_nanos().into(),
    });
    let time = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: valid entries, a valid time or none, and no signal mask. The caller polls for work after any result.
    unsafe { libc::ppoll(fds.as_mut_ptr(), fds.len() as _, time, std::ptr::null()) };
}

/// Whether a descriptor is readable or closed by its peer.
pub(crate) fn is_ready(fd: RawFd) -> bool {
    let mut fd = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // SAFETY: one valid entry.
    unsafe { libc::poll(&raw mut fd, 1, 0) == 1 }
}

pub(crate) fn is_nonblocking(fd: RawFd) -> bool {
    // SAFETY: takes numbers only.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    flags >= 0 && flags & libc::O_NONBLOCK != 0
}

pub(crate) fn set_nonblocking(fd: RawFd) -> Result<(), Errno> {
    // SAFETY: takes numbers only.
    if unsafe { libc::fcntl(fd, libc::F_SETFL, libc::O_NONBLOCK) } == 0 { Ok(()) } else { Err(Errno::last()) }
}

/// Keeps a descriptor open across `exec`.
pub(crate) fn keep_on_exec(fd: RawFd) -> Result<(), Errno> {
    // SAFETY: takes numbers only.
    if unsafe { libc::fcntl(fd, libc::F_SETFD, 0) } == 0 { Ok(()) } else { Err(Errno::last()) }
}

/// Creates an in-memory file with these contents, for reading.
pub(crate) fn file_of(contents: &str, close_on_exec: bool) -> Result<RawFd, Errno> {
    let flags = if close_on_exec { libc::MFD_CLOEXEC } else { 0 };
    // SAFETY: takes a C string and a number.
    let file = owned(unsafe { libc::memfd_create(c"sysfs".as_ptr(), flags) })?;
    let mut file = std::fs::File::from(file);
    let written = file.write_all(contents.as_bytes()).and_then(|()| file.rewind());
    written.map_err(|_| Errno::EIO)?;
    Ok(file.into_raw_fd())
}

/// Creates a memory file that programs may map.
pub(crate) fn memory_file(close_on_exec: bool) -> Result<OwnedFd, Errno> {
    let flags = if close_on_exec { libc::MFD_CLOEXEC } else { 0 };
    // SAFETY: takes a C string and a number.
    owned(unsafe { libc::memfd_create(MEMORY_FILE.as_ptr(), flags) })
}

/// Name by which memory files of this library are recognized in `/proc`.
const MEMORY_FILE: &CStr = c"rushmem-uverbs";

/// Whether `fd` is the memory file of an opened device, in whichever process it was opened.
pub(crate) fn is_memory_file(fd: RawFd) -> bool {
    is_memory_link(Path::new(&format!("/proc/self/fd/{fd}")))
}

/// Whether a link in `/proc/PID/fd` refers to the memory file of an opened device.
pub(crate) fn is_memory_link(link: &Path) -> bool {
    std::fs::read_link(link).is_ok_and(|path| path.to_string_lossy().starts_with("/memfd:rushmem-uverbs "))
}

/// Registers a function to run before each fork.
pub(crate) fn before_fork(prepare: extern "C" fn()) {
    // SAFETY: a function that lives as long as the process.
    if unsafe { libc::pthread_atfork(Some(prepare), None, None) } != 0 {
        tracing::error!("forked children cannot use the devices");
    }
}

/// Returns the process at the other end of a socket, if it has the same user.
pub(crate) fn peer(socket: RawFd) -> Option<libc::pid_t> {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    let to: *mut libc::ucred = &raw mut peer;
    // SAFETY: a live local variable, and its length.
    let rc =
        unsafe { libc::getsockopt(socket, libc::SOL_SOCKET, libc::SO_PEERCRED, to.cast(), &raw mut len) };
    // SAFETY: always succeeds.
    (rc == 0 && peer.uid == unsafe { libc::geteuid() }).then_some(peer.pid)
}

/// Returns a descriptor (pidfd) of a process, which becomes readable when the process exits.
pub(crate) fn process(pid: libc::pid_t) -> Result<OwnedFd, Errno> {
    // SAFETY: takes numbers only.
    owned(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) as libc::c_int })
}

/// Duplicates a descriptor of another process.
pub(crate) fn take_descriptor(process: &OwnedFd, fd: RawFd) -> Result<OwnedFd, Errno> {
    // SAFETY: takes numbers only.
    owned(unsafe { libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), fd, 0) as libc::c_int })
}

/// Reopens a file of another process's descriptor for reading.
pub(crate) fn reopen(pid: libc::pid_t, fd: RawFd) -> Result<RawFd, Errno> {
    let name = CString::new(format!("/proc/{pid}/fd/{fd}")).map_err(|_| Errno::EIO)?;
    // SAFETY: a C string that lives.
    let fd = unsafe { open(libc::AT_FDCWD, name.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC, 0) };
    owned(fd).map(IntoRawFd::into_raw_fd)
}

pub(crate) fn set_len(file: &OwnedFd, len: u64) -> Result<(), Errno> {
    let len = libc::off_t::try_from(len).map_err(|_| Errno::ENOSPC)?;
    // SAFETY: takes numbers only.
    if unsafe { libc::ftruncate(file.as_raw_fd(), len) } == 0 { Ok(()) } else { Err(Errno::last()) }
}

/// Zeroes part of a file and frees its memory.
pub(crate) fn erase(file: &OwnedFd, offset: u64, len: u64) -> Result<(), Errno> {
    let number = |value| libc::off_t::try_from(value).map_err(|_| Errno::EINVAL);
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    // SAFETY: takes numbers only.
    let rc = unsafe { libc::fallocate(file.as_raw_fd(), mode, number(offset)?, number(len)?) };
    if rc == 0 { Ok(()) } else { Err(Errno::last()) }
}

/// Duplicates a descriptor of the program.
pub(crate) fn duplicate(fd: RawFd) -> Result<OwnedFd, Errno> {
    // SAFETY: takes numbers only.
    owned(unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 3) })
}

/// Wraps a descriptor returned by a system call, or returns the call's error.
pub(crate) fn owned(fd: libc::c_int) -> Result<OwnedFd, Errno> {
    if fd < 0 {
        return Err(Errno::last());
    }
    // SAFETY: the descriptor is new, and only this call has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
