//! Segmentation offload: one datagram of the kernel stands for many of the same length.
//!
//! The kernel carries such a datagram through its layers once. A link that cannot do so splits it.
//!
//! **Identification.** The split datagrams get ascending IPv4 identifications, and the invariant CRC covers that field. A
//! ConnectX would drop all but the first one. So only datagrams to software adapters travel like this: they cannot see the
//! field, and take it as 0. An address of 127/8 or the MAC address tells what a peer is, or else an introduction: see
//! [`crate::management::introduction`]. Receiving needs no such care.
#![allow(unsafe_code, reason = "socket options and control messages")]

use std::os::fd::{AsRawFd, BorrowedFd};

/// Maximum number of datagrams in one.
pub(super) const MAX_SEGMENTS: usize = 64;
/// Maximum number of bytes of datagrams in one.
pub(super) const MAX_BYTES: usize = 65_000;

/// Room for the control message with the length of a datagram.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
pub(super) struct Control([u8; 24]);

impl Control {
    pub(super) const EMPTY: Control = Control([0; 24]);

    /// Adds to a message of several datagrams the length of each but the last.
    ///
    /// # Safety
    ///
    /// The message may be used as long as `self` stays in its place.
    pub(super) unsafe fn announce(&mut self, message: &mut libc::msghdr, len: u16) {
        message.msg_control = self.0.as_mut_ptr().cast();
        // SAFETY: the buffer is aligned and has room for one header with four bytes.
        unsafe {
            message.msg_controllen = libc::CMSG_SPACE(size_of::<u16>() as libc::c_uint) as _;
            let header = libc::CMSG_FIRSTHDR(&raw const *message);
            (*header).cmsg_level = libc::SOL_UDP;
            (*header).cmsg_type = libc::UDP_SEGMENT;
            (*header).cmsg_len = libc::CMSG_LEN(size_of::<u16>() as libc::c_uint) as _;
            libc::CMSG_DATA(header).cast::<u16>().write_unaligned(len);
        }
    }

    /// Makes room for the control message of a message to receive.
    ///
    /// # Safety
    ///
    /// The message may be used as long as `self` stays in its place.
    pub(super) unsafe fn expect(&mut self, message: &mut libc::msghdr) {
        message.msg_control = self.0.as_mut_ptr().cast();
        message.msg_controllen = self.0.len() as _;
    }
}

/// Returns the length of each datagram but the last in a received message of several.
///
/// # Safety
///
/// The system has filled the message, and its control buffer is alive.
pub(super) unsafe fn announced(message: &libc::msghdr) -> Option<usize> {
    // SAFETY: the macros walk over the control messages that the system has written, within `msg_controllen`.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(&raw const *message);
        while !header.is_null() {
            if (*header).cmsg_level == libc::SOL_UDP && (*header).cmsg_type == libc::UDP_GRO {
                let len = libc::CMSG_DATA(header).cast::<libc::c_int>().read_unaligned();
                return usize::try_from(len).ok().filter(|len| *len != 0);
            }
            header = libc::CMSG_NXTHDR(&raw const *message, header);
        }
    }
    None
}

/// Returns whether the socket takes several datagrams in one.
pub(super) fn sends(socket: BorrowedFd<'_>) -> bool {
    // 0 is the default: no datagram is split without a control message.
    set(socket, libc::UDP_SEGMENT, 0)
}

/// Lets the system deliver several datagrams in one. Returns whether it can.
pub(super) fn receives(socket: BorrowedFd<'_>) -> bool {
    set(socket, libc::UDP_GRO, 1)
}

fn set(socket: BorrowedFd<'_>, option: libc::c_int, value: libc::c_int) -> bool {
    let len = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the option is an int, and the length says so.
    unsafe {
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_UDP, option, (&raw const value).cast(), len) == 0
    }
}
