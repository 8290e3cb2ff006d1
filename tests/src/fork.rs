//! Action of the multi-process tests in which a PE forks.
#![allow(unsafe_code, reason = "forks the process")]

use rushmem::{Error, Operations, Pe};

unsafe extern "C" {
    fn fork() -> i32;
    fn waitpid(pid: i32, status: *mut i32, options: i32) -> i32;
}

/// Forks a child that returns from the application's function, waits for it, and synchronises with the other PEs.
pub(crate) fn fork_and_meet(pe: &Pe) -> Result<(), Error> {
    // SAFETY: the child only returns and exits within the runtime.
    let child = unsafe { fork() };
    if child == 0 {
        return Ok(());
    }
    let mut status = 0;
    // SAFETY: the status is live.
    let waited = unsafe { waitpid(child, &mut status, 0) };
    println!("PE {} of {} has waited: {}, status {status:#x}", pe.my_pe(), pe.n_pes(), waited == child);
    pe.barrier_all()
}
