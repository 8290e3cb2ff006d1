//! Terminating the job and this process.
#![allow(unsafe_code, reason = "calls _exit")]

use std::io::Write;
use std::sync::Mutex;

use rushmem_base::lock;
use rushmem_bootstrap::Bootstrap;

/// Terminates all processes of the job, this one last.
pub fn end_job(bootstrap: &dyn Bootstrap, code: u8) -> ! {
    bootstrap.exit(code);
    end_process(code)
}

/// Terminates this process after printing the error `text`. The other PEs of the job see this PE as lost, with `text`
/// as the reason.
pub fn end_with(bootstrap: &dyn Bootstrap, text: &str) -> ! {
    static ENDING: Mutex<()> = Mutex::new(());
    // Another PE of this process may call this, too. Only the first prints its error; the others block until the exit.
    let _first = lock(&ENDING);
    // If standard error is closed, there is nowhere to report that.
    let _ = writeln!(std::io::stderr(), "Error: {text}");
    bootstrap.abort(text);
    end_process(1)
}

/// Terminates this process immediately, whatever its threads are doing. Nothing is unwound, and exit handlers do not
/// run: the CUDA driver's would wait for the very kernels that hang.
pub fn end_process(code: u8) -> ! {
    // SAFETY: has no preconditions; it does not return.
    unsafe { libc::_exit(code.into()) }
}
