//! The end of the job as a whole.
#![allow(unsafe_code, reason = "calls _exit")]

use crate::bootstrap::Bootstrap;

/// Ends all processes of the job, this one last of what is done here.
pub(crate) fn end_job(bootstrap: &dyn Bootstrap, code: u8) -> ! {
    bootstrap.exit(code);
    end_process(code)
}

/// Ends this process at once, whatever its threads do: nothing is unwound, and what runs at exit, such as the CUDA
/// driver's wait for kernels, does not run.
pub(crate) fn end_process(code: u8) -> ! {
    // SAFETY: has no preconditions; it does not return.
    unsafe { libc::_exit(code.into()) }
}
