//! The end of the job as a whole.
#![allow(unsafe_code, reason = "calls _exit")]

use std::io::Write;
use std::sync::Mutex;

use rushmem_base::lock;
use rushmem_bootstrap::Bootstrap;

/// Ends all processes of the job, this one last of what is done here.
pub fn end_job(bootstrap: &dyn Bootstrap, code: u8) -> ! {
    bootstrap.exit(code);
    end_process(code)
}

/// Ends this process with the error `text`. The other PEs of the job see this PE as lost, with `text` as the reason.
pub fn end_with(bootstrap: &dyn Bootstrap, text: &str) -> ! {
    static ENDING: Mutex<()> = Mutex::new(());
    // Another PE of this process may end it, too. Only the first writes its error.
    let _first = lock(&ENDING);
    // Nothing can be done about a standard error that is closed.
    let _ = writeln!(std::io::stderr(), "Error: {text}");
    bootstrap.abort(text);
    end_process(1)
}

/// Ends this process at once, whatever its threads do: nothing is unwound, and what runs at exit, such as the CUDA
/// driver's wait for kernels, does not run.
pub fn end_process(code: u8) -> ! {
    // SAFETY: has no preconditions; it does not return.
    unsafe { libc::_exit(code.into()) }
}
