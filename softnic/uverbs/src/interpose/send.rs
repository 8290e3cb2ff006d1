//! Replacements for functions that send on a socket. Messages to RDMA netlink are answered by this library.
//!
//! They are cancellation points, like the C library's: see `write`.

use super::next::Next;
use super::{guarded, returned};
use crate::abi::structs;
use crate::errno::Errno;
use crate::{netlink, process, user};
use bytemuck::{Pod, Zeroable};
use libc::{c_int, c_void, size_t, sockaddr, socklen_t, ssize_t};

type Send = unsafe extern "C-unwind" fn(c_int, *const c_void, size_t, c_int) -> ssize_t;
type SendTo =
    unsafe extern "C-unwind" fn(c_int, *const c_void, size_t, c_int, *const sockaddr, socklen_t) -> ssize_t;
type SendMessage = unsafe extern "C-unwind" fn(c_int, *const libc::msghdr, c_int) -> ssize_t;

structs! {
    /// Message to send: C's `msghdr`.
    Message[56] {
        name: u64,
        name_len: u32,
        reserved: u32,
        pieces: u64,
        count: u64,
        control: u64,
        control_len: u64,
        flags: u64,
    }

    /// Part of a message: C's `iovec`.
    Piece[16] {
        at: u64,
        len: u64,
    }
}

/// Maximum number of pieces of a message, as in the kernel.
const MAX_PIECES: u64 = 1024;

/// Implements `send`. Data sent on an RDMA netlink socket is answered by this library.
///
/// # Safety
///
/// The same as for `send` of the C library.
pub unsafe extern "C-unwind" fn send(fd: c_int, from: *const c_void, len: size_t, flags: c_int) -> ssize_t {
    static NEXT: Next = Next::new(c"send");
    if process::may_be_device(fd)
        && let Some(sent) = answered(fd, &[Piece { at: from as u64, len: len as u64 }])
    {
        return sent;
    }
    let Some(address) = NEXT.address() else { return missing() };
    // SAFETY: the C library's function of this name has this type, and the caller guarantees the same as for it.
    unsafe { std::mem::transmute::<*mut c_void, Send>(address)(fd, from, len, flags) }
}

/// Implements `sendto`. Data sent on an RDMA netlink socket is answered by this library.
///
/// # Safety
///
/// The same as for `sendto` of the C library.
pub unsafe extern "C-unwind" fn sendto(
    fd: c_int,
    from: *const c_void,
    len: size_t,
    flags: c_int,
    to: *const sockaddr,
    to_len: socklen_t,
) -> ssize_t {
    static NEXT: Next = Next::new(c"sendto");
    if process::may_be_device(fd)
        && let Some(sent) = answered(fd, &[Piece { at: from as u64, len: len as u64 }])
    {
        return sent;
    }
    let Some(address) = NEXT.address() else { return missing() };
    // SAFETY: the C library's function of this name has this type, and the caller guarantees the same as for it.
    unsafe { std::mem::transmute::<*mut c_void, SendTo>(address)(fd, from, len, flags, to, to_len) }
}

/// Implements `sendmsg`. A message sent on an RDMA netlink socket is answered by this library.
///
/// # Safety
///
/// The same as for `sendmsg` of the C library.
pub unsafe extern "C-unwind" fn sendmsg(fd: c_int, message: *const libc::msghdr, flags: c_int) -> ssize_t {
    static NEXT: Next = Next::new(c"sendmsg");
    if process::may_be_device(fd)
        && let Some(sent) = answered_message(fd, message as u64)
    {
        return sent;
    }
    let Some(address) = NEXT.address() else { return missing() };
    // SAFETY: the C library's function of this name has this type, and the caller guarantees the same as for it.
    unsafe { std::mem::transmute::<*mut c_void, SendMessage>(address)(fd, message, flags) }
}

fn missing() -> ssize_t {
    returned(Err(Errno::ENOSYS)) as ssize_t
}

/// Answers an RDMA netlink datagram that consists of `pieces`. Returns the result of `send`, or `None` if `fd` is not
/// an RDMA netlink socket.
pub(super) fn answered(fd: c_int, pieces: &[Piece]) -> Option<ssize_t> {
    if !netlink::is(fd) {
        return None;
    }
    let answered = guarded(|| {
        let len: u64 = pieces.iter().fold(0, |sum, piece| sum.saturating_add(piece.len));
        if len > netlink::MAX_REQUEST as u64 {
            return Err(Errno::EMSGSIZE);
        }
        let mut datagram = vec![0; len as usize];
        let mut rest = &mut datagram[..];
        for piece in pieces {
            let (to, after) = rest.split_at_mut(piece.len as usize);
            user::read(piece.at, to)?;
            rest = after;
        }
        netlink::send(fd, &datagram)?;
        Ok(len as c_int)
    });
    Some(returned(answered) as ssize_t)
}

fn answered_message(fd: c_int, at: u64) -> Option<ssize_t> {
    if !netlink::is(fd) {
        return None;
    }
    let pieces = guarded(|| {
        let message: Message = user::read_value(at)?;
        if message.count > MAX_PIECES {
            return Err(Errno::EMSGSIZE);
        }
        let mut pieces = vec![Piece::zeroed(); message.count as usize];
        user::read(message.pieces, bytemuck::cast_slice_mut(&mut pieces))?;
        Ok(pieces)
    });
    match pieces {
        Ok(pieces) => answered(fd, &pieces),
        Err(error) => Some(returned(Err(error)) as ssize_t),
    }
}
