//! Memory and descriptors of the calling program, accessed as by a system call: a bad address is `EFAULT`, not a crash.
//!
//! The caller is this process, or another one while [`on_behalf_of`] runs.

use crate::errno::Errno;
use crate::sys;
use bytemuck::{NoUninit, Pod, Zeroable};
use std::cell::RefCell;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;

/// Another process, whose calls this process executes because it has opened the device.
pub(crate) struct OtherProcess {
    pid: libc::pid_t,
    /// Descriptor of the process (pidfd), which refers to it even after its exit.
    handle: OwnedFd,
}

/// Descriptor to pass to another process, with the address in that process for the new descriptor's number.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Handed {
    pub(crate) fd: RawFd,
    reserved: u32,
    pub(crate) at: u64,
}

/// Call of another process that the current thread executes.
struct Caller {
    process: Arc<OtherProcess>,
    handed: Vec<Handed>,
    /// Duplicates of the caller's descriptors, closed after the call.
    files: Vec<OwnedFd>,
}

thread_local! {
    static CALLER: RefCell<Option<Caller>> = const { RefCell::new(None) };
}

impl OtherProcess {
    pub(crate) fn new(pid: libc::pid_t) -> Result<OtherProcess, Errno> {
        Ok(OtherProcess { pid, handle: sys::process(pid)? })
    }

    /// Returns the process ID, or `ESRCH` after the process's exit, when the ID may be reused.
    pub(crate) fn pid(&self) -> Result<libc::pid_t, Errno> {
        if sys::is_ready(self.handle.as_raw_fd()) { Err(Errno::ESRCH) } else { Ok(self.pid) }
    }
}

/// Executes a call of another process. Returns the result and the descriptors to pass to it.
pub(crate) fn on_behalf_of<T>(process: &Arc<OtherProcess>, run: impl FnOnce() -> T) -> (T, Vec<Handed>) {
    let caller = Caller { process: Arc::clone(process), handed: Vec::new(), files: Vec::new() };
    CALLER.set(Some(caller));
    let result = run();
    (result, CALLER.take().map(|caller| caller.handed).unwrap_or_default())
}

/// Returns the caller if it is another process.
pub(crate) fn other_process() -> Option<Arc<OtherProcess>> {
    CALLER.with_borrow(|caller| caller.as_ref().map(|caller| Arc::clone(&caller.process)))
}

fn pid() -> Result<libc::pid_t, Errno> {
    // SAFETY: always succeeds.
    other_process().map_or_else(|| Ok(unsafe { libc::getpid() }), |process| process.pid())
}

/// Returns a descriptor of this process for the caller's descriptor `fd`. It is valid during the call.
pub(crate) fn descriptor(fd: RawFd) -> Result<RawFd, Errno> {
    CALLER.with_borrow_mut(|caller| {
        let Some(caller) = caller else { return Ok(fd) };
        let copy = sys::take_descriptor(&caller.process.handle, fd)?;
        let number = copy.as_raw_fd();
        caller.files.push(copy);
        Ok(number)
    })
}

/// Passes descriptor `fd` to the caller if that is another process. The number it gets there is stored at the caller's
/// address `at`.
pub(crate) fn hand_over(fd: RawFd, at: u64) {
    CALLER.with_borrow_mut(|caller| {
        if let Some(caller) = caller {
            caller.handed.push(Handed { fd, reserved: 0, at });
        }
    });
}

/// Reads memory of the caller at address `at`.
pub(crate) fn read(at: u64, to: &mut [u8]) -> Result<(), Errno> {
    read_of(pid()?, at, to)
}

/// Reads memory of a process at address `at`.
pub(crate) fn read_of(pid: libc::pid_t, at: u64, to: &mut [u8]) -> Result<(), Errno> {
    let local = libc::iovec { iov_base: to.as_mut_ptr().cast(), iov_len: to.len() };
    let remote = libc::iovec { iov_base: at as *mut _, iov_len: to.len() };
    // SAFETY: `local` is all of `to`; the kernel checks `remote`, an address of the process, itself.
    let got = unsafe { libc::process_vm_readv(pid, &raw const local, 1, &raw const remote, 1, 0) };
    whole(got, to.len())
}

/// Writes memory of the caller at address `at`.
pub(crate) fn write(at: u64, from: &[u8]) -> Result<(), Errno> {
    write_of(pid()?, at, from)
}

/// Writes memory of a process at address `at`.
pub(crate) fn write_of(pid: libc::pid_t, at: u64, from: &[u8]) -> Result<(), Errno> {
    let local = libc::iovec { iov_base: from.as_ptr().cast_mut().cast(), iov_len: from.len() };
    let remote = libc::iovec { iov_base: at as *mut _, iov_len: from.len() };
    // SAFETY: `local` is all of `from`, which is only read. `remote` is memory that the program has handed over to be
    // written, as it does to a system call; the kernel checks that it is mapped and writable.
    let put = unsafe { libc::process_vm_writev(pid, &raw const local, 1, &raw const remote, 1, 0) };
    whole(put, from.len())
}

fn whole(done: isize, wanted: usize) -> Result<(), Errno> {
    match usize::try_from(done) {
        Ok(done) if done == wanted => Ok(()),
        Ok(_) => Err(Errno::EFAULT),
        Err(_) => {
            let error = Errno::last();
            if error != Errno::EFAULT {
                tracing::error!(?error, "the system refuses process_vm_readv and process_vm_writev");
            }
            Err(error)
        }
    }
}

/// Reads a value of the caller at address `at`.
pub(crate) fn read_value<T: Pod>(at: u64) -> Result<T, Errno> {
    let mut value = T::zeroed();
    read(at, bytemuck::bytes_of_mut(&mut value))?;
    Ok(value)
}

/// Writes a value of the caller at address `at`.
pub(crate) fn write_value<T: NoUninit>(at: u64, value: &T) -> Result<(), Errno> {
    write(at, bytemuck::bytes_of(value))
}

/// Returns a value whose first bytes are `bytes`. The others are zero.
pub(crate) fn prefix<T: Pod + Zeroable>(bytes: &[u8]) -> T {
    let mut value = T::zeroed();
    let to = bytemuck::bytes_of_mut(&mut value);
    let len = bytes.len().min(to.len());
    to[..len].copy_from_slice(&bytes[..len]);
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_addresses_are_errors() {
        let mut byte = [7];
        assert_eq!(read(0x10, &mut byte), Err(Errno::EFAULT));
        assert_eq!(write(0x10, &byte), Err(Errno::EFAULT));
        assert_eq!(read(u64::MAX - 3, &mut [0; 16]), Err(Errno::EFAULT));
        let text = "constant";
        assert_eq!(read(text.as_ptr() as u64, &mut byte), Ok(()));
        assert_eq!(byte, *b"c");
    }
}
