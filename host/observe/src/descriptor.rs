//! Passes file descriptors between processes over Unix sockets (`SCM_RIGHTS`).
#![allow(unsafe_code, reason = "receives a file descriptor in a control message")]

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;

use socket2::{MaybeUninitSlice, MsgHdr, MsgHdrMut, SockRef};

/// A `cmsghdr` with one descriptor, as words: the length, the level and type, the descriptor with padding.
type Control = [u64; 3];
/// Value of `cmsg_len` in a [`Control`] message: its length in bytes, without padding.
const CONTROL_LEN: u64 = 20;
const RIGHTS: u64 = (libc::SCM_RIGHTS as u64) << 32 | libc::SOL_SOCKET as u64;

/// Sends `bytes` together with a duplicate of the file descriptor of `file`.
///
/// # Errors
/// Errors of the operating system.
pub fn send(stream: &UnixStream, bytes: &[u8], file: &impl AsFd) -> io::Result<()> {
    let control: Control = [CONTROL_LEN, RIGHTS, file.as_fd().as_raw_fd() as u32 as u64];
    let parts = [IoSlice::new(bytes)];
    let message = MsgHdr::new().with_buffers(&parts).with_control(bytemuck::cast_slice(&control));
    match SockRef::from(stream).sendmsg(&message, libc::MSG_NOSIGNAL)? {
        sent if sent == bytes.len() => Ok(()),
        _ => Err(io::ErrorKind::WriteZero.into()),
    }
}

/// Receives `N` bytes, and the file descriptor sent with them, if any.
///
/// # Errors
/// - [`io::ErrorKind::UnexpectedEof`] if fewer bytes arrive.
/// - Errors of the operating system.
pub fn receive<const N: usize>(stream: &UnixStream) -> io::Result<([u8; N], Option<OwnedFd>)> {
    let mut bytes = [MaybeUninit::new(0u8); N];
    let mut control = [MaybeUninit::new(0u8); size_of::<Control>()];
    let mut parts = [MaybeUninitSlice::new(&mut bytes)];
    let mut message = MsgHdrMut::new().with_buffers(&mut parts).with_control(&mut control);
    let len = SockRef::from(stream).recvmsg(&mut message, libc::MSG_CMSG_CLOEXEC)?;
    let control_len = message.control_len() as u64;
    // SAFETY: zeroed before the first write.
    let bytes = bytes.map(|byte| unsafe { byte.assume_init() });
    // SAFETY: zeroed before the first write.
    let control: Control = bytemuck::cast(control.map(|byte| unsafe { byte.assume_init() }));
    let has_file = control_len >= CONTROL_LEN && control[0] == CONTROL_LEN && control[1] == RIGHTS;
    // SAFETY: the system has just created the descriptor for this process.
    let file = has_file.then(|| unsafe { OwnedFd::from_raw_fd(control[2] as u32 as i32) });
    if len == N { Ok((bytes, file)) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}
