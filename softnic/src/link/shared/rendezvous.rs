//! Sockets by which the adapters of a machine find each other and exchange descriptors.
//!
//! Each adapter listens at an abstract name made of its address. Such a name belongs to a network namespace, and it ends
//! with the process. A connection belongs to one ring: its producer connects and sends the memory file with its own
//! address. Afterwards a byte from one side wakes the other side. The end of the connection says that the peer is gone.
//!
//! An eventfd would wake a peer for less. But a peer could hand over a full one on which a write waits for ever.
//!
//! Both sides check that the other one has the same user. Other users could read the packets, or invent some.
#![allow(unsafe_code, reason = "messages with descriptors, and the credentials of a peer")]

use super::mapping::checked;
use socket2::{Domain, SockAddr, Socket, Type};
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// Begins the name and the greeting. The number changes with the layout of rings.
const MAGIC: &[u8; 10] = b"softnic-1\0";
/// Bytes of a greeting: the magic bytes, an IPv4 address and a port.
const GREETING: usize = MAGIC.len() + 6;
/// Connections that wait until the engine looks.
const BACKLOG: libc::c_int = 1024;

/// Room for the control message with one descriptor. Alignment makes it large enough for two.
#[repr(C, align(8))]
struct Control([u8; 24]);

/// Returns the name of the adapter with this address. Its first byte is 0, so that it is no path.
fn name(of: SocketAddrV4) -> io::Result<SockAddr> {
    SockAddr::unix(format!("\0rushmem-{}/{of}", String::from_utf8_lossy(&MAGIC[..MAGIC.len() - 1])))
}

/// Listens for the producers of other adapters.
///
/// # Errors
///
/// The errors of the system calls, such as `AddrInUse`.
pub(super) fn listen(local: SocketAddrV4) -> io::Result<Socket> {
    let socket = Socket::new(Domain::UNIX, Type::SEQPACKET, None)?;
    socket.set_nonblocking(true)?;
    socket.bind(&name(local)?)?;
    socket.listen(BACKLOG)?;
    Ok(socket)
}

/// Connects to the adapter at `to` and passes the memory file of a ring.
///
/// # Errors
///
/// - `ConnectionRefused`: no adapter of this machine and network namespace listens there.
/// - `PermissionDenied`: it belongs to another user.
/// - The errors of the system calls.
pub(super) fn connect(local: SocketAddrV4, to: SocketAddrV4, file: &OwnedFd) -> io::Result<Socket> {
    let socket = Socket::new(Domain::UNIX, Type::SEQPACKET, None)?;
    socket.set_nonblocking(true)?;
    socket.connect(&name(to)?)?;
    check_user(&socket)?;
    let mut greeting = [0; GREETING];
    greeting[..MAGIC.len()].copy_from_slice(MAGIC);
    greeting[MAGIC.len()..GREETING - 2].copy_from_slice(&local.ip().octets());
    greeting[GREETING - 2..].copy_from_slice(&local.port().to_be_bytes());
    send(&socket, &greeting, file.as_raw_fd())?;
    Ok(socket)
}

/// Accepts a connection; `None` if none waits.
pub(super) fn accept(listener: &Socket) -> Option<Socket> {
    let (socket, _) = listener.accept().ok()?;
    socket.set_nonblocking(true).ok()?;
    Some(socket)
}

/// Receives the greeting of a producer: its address and the memory file.
///
/// # Errors
///
/// - `WouldBlock`: it has not come yet.
/// - `PermissionDenied`: the producer belongs to another user.
/// - `InvalidData`: it is no greeting.
pub(super) fn greeted(socket: &Socket) -> io::Result<(SocketAddrV4, OwnedFd)> {
    let mut greeting = [0; GREETING];
    let (len, file) = receive(socket, &mut greeting)?;
    check_user(socket)?;
    let file = file.filter(|_| len == GREETING && greeting.starts_with(MAGIC));
    let [.., a, b, c, d, high, low] = greeting;
    let from = SocketAddrV4::new(Ipv4Addr::new(a, b, c, d), u16::from_be_bytes([high, low]));
    file.map(|file| (from, file)).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Takes a byte of the peer, which had the only purpose to wake this side.
///
/// # Errors
///
/// - `WouldBlock`: there is none.
/// - `UnexpectedEof`: the peer is gone.
/// - The errors of the system call.
pub(super) fn hear(socket: &Socket) -> io::Result<()> {
    let mut byte = [0u8; 1];
    // SAFETY: one writable byte. The system discards the rest of a longer message.
    let len =
        unsafe { libc::recv(socket.as_raw_fd(), byte.as_mut_ptr().cast(), byte.len(), libc::MSG_DONTWAIT) };
    match len {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        1.. => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Wakes the peer. It wakes anyway if the connection is full.
pub(super) fn wake(socket: &Socket) {
    let byte = [0u8; 1];
    // SAFETY: one readable byte. The call never waits. An error means that the peer is gone, which `hear` reports.
    unsafe {
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        libc::send(socket.as_raw_fd(), byte.as_ptr().cast(), byte.len(), flags)
    };
}

/// Checks that the peer of a connection has the same user as this process.
fn check_user(socket: &Socket) -> io::Result<()> {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: a live variable of the type that the option has, and its length.
    checked(unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &raw mut len,
        )
    })?;
    // SAFETY: takes no arguments and cannot fail.
    let own = unsafe { libc::geteuid() };
    if peer.uid == own { Ok(()) } else { Err(io::ErrorKind::PermissionDenied.into()) }
}

/// Sends bytes and one descriptor.
fn send(socket: &Socket, bytes: &[u8], fd: RawFd) -> io::Result<()> {
    let mut control = Control([0; 24]);
    let mut vector = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    // SAFETY: a C struct for which all zeroes is a value.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut vector;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    // SAFETY: the control buffer is aligned and has room for one header with one descriptor. The call reads both vectors,
    // which outlive it.
    let sent = unsafe {
        let fd_bytes = size_of::<RawFd>() as libc::c_uint;
        message.msg_controllen = libc::CMSG_SPACE(fd_bytes) as _;
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = libc::CMSG_LEN(fd_bytes) as _;
        libc::CMSG_DATA(header).cast::<RawFd>().write_unaligned(fd);
        libc::sendmsg(socket.as_raw_fd(), &raw const message, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL)
    };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Receives a message of at most the length of `bytes`. Returns its length and its first descriptor.
fn receive(socket: &Socket, bytes: &mut [u8]) -> io::Result<(usize, Option<OwnedFd>)> {
    let mut control = Control([0; 24]);
    let mut vector = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    // SAFETY: a C struct for which all zeroes is a value.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut vector;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = control.0.len() as _;
    let flags = libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
    // SAFETY: the call fills both buffers, which outlive it, up to their lengths.
    let len = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, flags) };
    if len < 0 {
        return Err(io::Error::last_os_error());
    }
    let mut first = None;
    // SAFETY: the macros walk over the control messages that the system has written, within `msg_controllen`. Each
    // descriptor in them is new and owned by nobody else; those after the first one are closed.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(&raw const message);
        while !header.is_null() {
            if (*header).cmsg_level == libc::SOL_SOCKET && (*header).cmsg_type == libc::SCM_RIGHTS {
                let data = libc::CMSG_DATA(header).cast::<RawFd>();
                let bytes = (*header).cmsg_len as usize - libc::CMSG_LEN(0) as usize;
                for i in 0..bytes / size_of::<RawFd>() {
                    let fd = OwnedFd::from_raw_fd(data.add(i).read_unaligned());
                    first.get_or_insert(fd);
                }
            }
            header = libc::CMSG_NXTHDR(&raw const message, header);
        }
    }
    Ok((len as usize, first))
}
