//! Sockets through which the adapters of a machine find each other and exchange descriptors.
//!
//! Each adapter listens at an abstract name derived from its address. Such a name belongs to a network namespace and
//! disappears with the process. Each ring has its own connection: the producer connects, and sends the memory file and
//! its own address. After that, a byte from either side wakes the other. When the connection is closed, the peer is
//! gone.
//!
//! An eventfd would be a cheaper way to wake a peer, but a malicious peer could hand over a full one, on which a write
//! blocks forever.
//!
//! Both sides check that the other has the same user ID. Other users could read packets, or forge them.
#![allow(unsafe_code, reason = "asks for the credentials of a peer")]

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use socket2::{Domain, SockAddr, Socket, Type};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// Prefix of socket names and greetings. The number must change with the layout of rings.
const MAGIC: &[u8; 10] = b"softnic-1\0";
/// Length of a greeting: the magic bytes, an IPv4 address and a port.
const GREETING: usize = MAGIC.len() + 6;
/// Number of connections that may be pending until the engine accepts them.
const BACKLOG: i32 = 1024;

/// Returns the abstract socket name of the adapter at address `of`. It starts with a zero byte, which makes it
/// abstract.
fn name(of: SocketAddrV4) -> io::Result<SockAddr> {
    SockAddr::unix(format!("\0rushmem-{}/{of}", String::from_utf8_lossy(&MAGIC[..MAGIC.len() - 1])))
}

/// Listens for the producers of other adapters.
///
/// # Errors
///
/// Errors of the system calls, such as `AddrInUse`.
pub(super) fn listen(local: SocketAddrV4) -> io::Result<Socket> {
    let socket = Socket::new(Domain::UNIX, Type::SEQPACKET, None)?;
    socket.set_nonblocking(true)?;
    socket.bind(&name(local)?)?;
    socket.listen(BACKLOG)?;
    Ok(socket)
}

/// Connects to the adapter at `to` and passes it the memory file of a ring.
///
/// # Errors
///
/// - `ConnectionRefused`: no adapter of this machine and network namespace listens there.
/// - `PermissionDenied`: it belongs to another user.
/// - Other errors of the system calls.
pub(super) fn connect(local: SocketAddrV4, to: SocketAddrV4, file: &OwnedFd) -> io::Result<Socket> {
    let socket = Socket::new(Domain::UNIX, Type::SEQPACKET, None)?;
    socket.set_nonblocking(true)?;
    socket.connect(&name(to)?)?;
    check_user(&socket)?;
    let mut greeting = [0; GREETING];
    greeting[..MAGIC.len()].copy_from_slice(MAGIC);
    greeting[MAGIC.len()..GREETING - 2].copy_from_slice(&local.ip().octets());
    greeting[GREETING - 2..].copy_from_slice(&local.port().to_be_bytes());
    send(&socket, &greeting, file.as_fd())?;
    Ok(socket)
}

pub(super) fn accept(listener: &Socket) -> Option<Socket> {
    let (socket, _) = listener.accept().ok()?;
    socket.set_nonblocking(true).ok()?;
    Some(socket)
}

/// Receives the greeting of a producer: its address and the memory file.
///
/// # Errors
///
/// - `WouldBlock`: it has not arrived yet.
/// - `PermissionDenied`: the producer belongs to another user.
/// - `InvalidData`: the message is not a greeting.
pub(super) fn greeted(socket: &Socket) -> io::Result<(SocketAddrV4, OwnedFd)> {
    let mut greeting = [0; GREETING];
    let (len, file) = receive(socket, &mut greeting)?;
    check_user(socket)?;
    let file = file.filter(|_| len == GREETING && greeting.starts_with(MAGIC));
    let [.., a, b, c, d, high, low] = greeting;
    let from = SocketAddrV4::new(Ipv4Addr::new(a, b, c, d), u16::from_be_bytes([high, low]));
    file.map(|file| (from, file)).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Receives a byte by which the peer has woken this side.
///
/// # Errors
///
/// - `WouldBlock`: no byte has arrived.
/// - `UnexpectedEof`: the peer has closed the connection.
/// - Other errors of the system call.
pub(super) fn hear(socket: &Socket) -> io::Result<()> {
    let mut byte = [0u8; 1];
    // The system discards the rest of a longer message.
    let (len, _) = rustix::net::recv(socket, &mut byte, RecvFlags::DONTWAIT)?;
    if len == 0 { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
}

/// Sends a byte that wakes the peer. If the socket's buffer is full, earlier bytes will wake it anyway.
pub(super) fn wake(socket: &Socket) {
    // An error means that the peer is gone, which `hear` will report.
    let _ = rustix::net::send(socket, &[0], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
}

/// Checks that the peer of a connection has the same user ID as this process.
///
/// rustix has this option too, but rejects a peer in another PID namespace, whose PID reads as 0.
fn check_user(socket: &Socket) -> io::Result<()> {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: a live variable of the type that the option has, and its length.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &raw mut len,
        )
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    if peer.uid == rustix::process::geteuid().as_raw() {
        Ok(())
    } else {
        Err(io::ErrorKind::PermissionDenied.into())
    }
}

/// Sends bytes and one file descriptor.
fn send(socket: &Socket, bytes: &[u8], fd: BorrowedFd<'_>) -> io::Result<()> {
    let (mut space, fds) = ([MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))], [fd]);
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&fds));
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    sendmsg(socket, &[IoSlice::new(bytes)], &mut control, flags)?;
    Ok(())
}

/// Receives a message of up to the length of `bytes`. Returns its length and the first file descriptor that it carries.
fn receive(socket: &Socket, bytes: &mut [u8]) -> io::Result<(usize, Option<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let received = recvmsg(socket, &mut [IoSliceMut::new(bytes)], &mut control, flags)?;
    // Any further descriptors are closed.
    let mut fds = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(fds) => Some(fds),
        _ => None,
    });
    Ok((received.bytes, fds.find_map(|mut fds| fds.next())))
}
