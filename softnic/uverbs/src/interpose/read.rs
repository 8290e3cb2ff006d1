//! Replacement for `read`, by which programs receive responses to management datagrams. It is a cancellation point,
//! like the C library's: see `write`.

use super::next::Next;
use super::write::{Command, wait};
use super::{guarded, returned};
use crate::errno::Errno;
use crate::process;
use crate::umad::{self, Read};
use libc::{c_int, c_void, size_t, ssize_t};

type Function = unsafe extern "C-unwind" fn(c_int, *mut c_void, size_t) -> ssize_t;

/// Implements `read`. Reads answers from a file for management datagrams.
///
/// # Safety
///
/// The same as for `read` of the C library.
pub unsafe extern "C-unwind" fn read(fd: c_int, to: *mut c_void, len: size_t) -> ssize_t {
    static NEXT: Next = Next::new(c"read");
    if process::may_be_device(fd) {
        loop {
            match answer(fd, to, len) {
                Command::Done(result) => return result,
                Command::NotOurs => break,
                Command::Wait if wait(fd) => {}
                // Interrupted by a signal, with `errno` set.
                Command::Wait => return -1,
            }
        }
    }
    let Some(address) = NEXT.address() else { return returned(Err(Errno::ENOSYS)) as ssize_t };
    // SAFETY: the C library's function of this name has this type, and the caller guarantees the same as for it.
    unsafe { std::mem::transmute::<*mut c_void, Function>(address)(fd, to, len) }
}

fn answer(fd: c_int, to: *mut c_void, len: size_t) -> Command {
    match guarded(|| umad::read(fd, to as u64, len).transpose()) {
        Ok(None) => Command::NotOurs,
        Ok(Some(Read::Wait)) => Command::Wait,
        Ok(Some(Read::Done(len))) => Command::Done(len as ssize_t),
        Err(error) => Command::Done(returned(Err(error)) as ssize_t),
    }
}
