//! Replacement for `write`, by which programs issue commands to the RDMA connection manager.
//!
//! It is a cancellation point, like the C library's: a thread may be unwound in it. So no function on the stack at that
//! point has anything to drop.

use super::next::Next;
use super::send::{self, Piece};
use super::{guarded, returned};
use crate::cm::{self, Done};
use crate::{process, umad};
use libc::{c_int, c_void, nfds_t, pollfd, size_t, ssize_t};

unsafe extern "C-unwind" {
    fn poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int;
}

type Write = unsafe extern "C-unwind" fn(c_int, *const c_void, size_t) -> ssize_t;

fn next() -> Option<Write> {
    static NEXT: Next = Next::new(c"write");
    // SAFETY: the C library's function of this name has this type.
    NEXT.address().map(|address| unsafe { std::mem::transmute::<*mut c_void, Write>(address) })
}

/// Implements `write`. Executes commands on a file of the RDMA connection manager.
///
/// # Safety
///
/// The same as for `write` of the C library.
pub unsafe extern "C-unwind" fn write(fd: c_int, from: *const c_void, len: size_t) -> ssize_t {
    if process::may_be_device(fd) {
        loop {
            match command(fd, from, len) {
                Command::Done(result) => return result,
                Command::NotOurs => break,
                Command::Wait if wait(fd) => {}
                // Interrupted by a signal, with `errno` set.
                Command::Wait => return -1,
            }
        }
    }
    let Some(next) = next() else { return returned(Err(crate::errno::Errno::ENOSYS)) as ssize_t };
    // SAFETY: the caller guarantees the same as for `write`.
    unsafe { next(fd, from, len) }
}

/// Waits until a file is readable. Returns false if interrupted by a signal.
pub(super) extern "C-unwind" fn wait(fd: c_int) -> bool {
    let mut event = pollfd { fd, events: libc::POLLIN, revents: 0 };
    // SAFETY: one valid entry.
    let mut woken = unsafe { poll(&raw mut event, 1, -1) };
    if woken > 0 && event.revents & libc::POLLHUP != 0 {
        // Another thread has closed the file. As in the kernel, wait forever.
        // SAFETY: no entries.
        woken = unsafe { poll(std::ptr::null_mut(), 0, -1) };
    }
    woken >= 0
}

pub(super) enum Command {
    Done(ssize_t),
    /// GET_EVENT found no event, so the caller must wait and repeat the command.
    Wait,
    NotOurs,
}

fn command(fd: c_int, from: *const c_void, len: size_t) -> Command {
    if let Some(sent) = send::answered(fd, &[Piece { at: from as u64, len: len as u64 }]) {
        return Command::Done(sent);
    }
    match guarded(|| umad::write(fd, from as u64, len).transpose()) {
        Ok(None) => {}
        Ok(Some(())) => return Command::Done(len as ssize_t),
        Err(error) => return Command::Done(returned(Err(error)) as ssize_t),
    }
    match guarded(|| cm::write(fd, from as u64, len).transpose()) {
        Ok(None) => Command::NotOurs,
        Ok(Some(Done::Wait)) => Command::Wait,
        Ok(Some(Done::Taken)) => Command::Done(len as ssize_t),
        Err(error) => Command::Done(returned(Err(error)) as ssize_t),
    }
}
