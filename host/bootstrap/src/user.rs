//! Checks that both ends of a Unix socket belong to the same user.
#![allow(unsafe_code, reason = "asks the system for users")]

use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;

/// Checks that the peer of the socket is a process of the same user.
///
/// # Errors
///
/// `PermissionDenied` with a message that names the other process and its user.
pub fn check_same_user(stream: &UnixStream) -> io::Result<()> {
    check_user(stream, uid())
}

fn check_user(stream: &UnixStream, user: u32) -> io::Result<()> {
    let mut peer = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: both pointers refer to live variables, and `len` is the size of `peer`.
    let status = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &mut len,
        )
    };
    match status {
        0 if peer.uid == user => Ok(()),
        0 => {
            let why = format!("the other end of the socket is process {} of user {}", peer.pid, peer.uid);
            Err(io::Error::new(ErrorKind::PermissionDenied, why))
        }
        _ => Err(io::Error::last_os_error()),
    }
}

/// Returns the real user ID of this process.
pub(crate) fn uid() -> u32 {
    // SAFETY: the call has no preconditions.
    unsafe { libc::getuid() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_user_passes() {
        let (one, other) = UnixStream::pair().unwrap();
        check_same_user(&one).unwrap();
        let error = check_user(&other, uid().wrapping_add(1)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied);
        let us = format!("process {} of user {}", std::process::id(), uid());
        assert!(error.to_string().ends_with(&us), "{error}");
    }
}
