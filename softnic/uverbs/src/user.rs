//! Memory of the calling program, as a system call may touch it: a bad address is `EFAULT`, not a crash.

use crate::errno::Errno;
use bytemuck::{NoUninit, Pod, Zeroable};

/// Fills `to` from address `at`.
pub(crate) fn read(at: u64, to: &mut [u8]) -> Result<(), Errno> {
    let local = libc::iovec { iov_base: to.as_mut_ptr().cast(), iov_len: to.len() };
    let remote = libc::iovec { iov_base: at as *mut _, iov_len: to.len() };
    // SAFETY: `local` is all of `to`; the kernel checks `remote`, which is an address of this process, itself.
    let got = unsafe { libc::process_vm_readv(libc::getpid(), &raw const local, 1, &raw const remote, 1, 0) };
    whole(got, to.len())
}

/// Copies `from` to address `at`.
pub(crate) fn write(at: u64, from: &[u8]) -> Result<(), Errno> {
    let local = libc::iovec { iov_base: from.as_ptr().cast_mut().cast(), iov_len: from.len() };
    let remote = libc::iovec { iov_base: at as *mut _, iov_len: from.len() };
    // SAFETY: `local` is all of `from`, which is only read. `remote` is memory that the program has handed over to be
    // written, as it does to a system call; the kernel checks that it is mapped and writable.
    let put =
        unsafe { libc::process_vm_writev(libc::getpid(), &raw const local, 1, &raw const remote, 1, 0) };
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

/// Returns the value at address `at`.
pub(crate) fn read_value<T: Pod>(at: u64) -> Result<T, Errno> {
    let mut value = T::zeroed();
    read(at, bytemuck::bytes_of_mut(&mut value))?;
    Ok(value)
}

/// Copies a value to address `at`.
pub(crate) fn write_value<T: NoUninit>(at: u64, value: &T) -> Result<(), Errno> {
    write(at, bytemuck::bytes_of(value))
}

/// Returns a value that begins with `bytes`. The rest is zero.
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
