//! UDP segmentation offload: one message to the kernel carries many datagrams of the same length.
//!
//! Such a message passes through the network stack once. The kernel splits it for a link that cannot.
//!
//! **Identification.** The datagrams of a message get ascending IPv4 identifications, a field covered by the invariant
//! CRC, so a ConnectX would drop all but the first. Only datagrams to software adapters are therefore sent this way:
//! those cannot see the field and assume 0. A 127/8 address or the MAC address identifies a software adapter, and
//! otherwise an introduction does: see [`crate::management::introduction`]. Receiving needs no such care.
#![allow(unsafe_code, reason = "socket options and control messages")]

use std::os::fd::{AsRawFd, BorrowedFd};

/// Maximum number of datagrams in one message to the kernel.
pub(super) const MAX_SEGMENTS: usize = 64;
/// Maximum length of a message of several datagrams, in bytes.
pub(super) const MAX_BYTES: usize = 65_000;

/// Buffer for the control message that tells the kernel the length of each datagram.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
pub(super) struct Control([u8; 24]);

impl Control {
    pub(super) const EMPTY: Control = Control([0; 24]);

    /// Announces that a message to be sent consists of datagrams of `len` bytes, of which the last may be shorter.
    ///
    /// # Safety
    ///
    /// `message` may be used only while `self` is not moved.
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

    /// Prepares a message to be received: its control message is written to this buffer.
    ///
    /// # Safety
    ///
    /// `message` may be used only while `self` is not moved.
    pub(super) unsafe fn expect(&mut self, message: &mut libc::msghdr) {
        message.msg_control = self.0.as_mut_ptr().cast();
        message.msg_controllen = self.0.len() as _;
    }
}

/// Returns the length of each datagram except the last in a received message, if it carries several.
///
/// # Safety
///
/// The system must have filled the message, and its control buffer must be alive.
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

/// Whether the socket supports segmentation offload: several datagrams per message.
pub(super) fn sends(socket: BorrowedFd<'_>) -> bool {
    // 0 is the default: only messages with a control message are split.
    set(socket, libc::UDP_SEGMENT, 0)
}

/// Enables receive offload on the socket: several datagrams per message. Returns whether the system supports it.
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
