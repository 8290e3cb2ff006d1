//! Termination of the whole job by a kernel.
#![allow(unsafe_code, reason = "writes the exit words of the control page")]

use crate::Ctx;
use crate::abi::{ControlPage, DeviceState, EXIT_ASKED};
use crate::arch::SysWord;
use crate::error::Error;

/// # End of the job
///
/// Termination of all PEs by a kernel.
impl<S> Ctx<'_, S> {
    /// Terminates all processes of the job with exit code `code`. The host does this soon after, whatever the processes
    /// are waiting for, and without their cooperation.
    ///
    /// Waiting calls of this kernel fail with [`Error::Aborted`]. This call returns the same error, for the kernel to
    /// return: `return Err(ctx.global_exit(3))`. It does not complete any operation.
    ///
    /// OpenSHMEM 1.6 section 9.1.5, `shmem_global_exit`.
    #[cold]
    #[inline(never)]
    pub fn global_exit(&self, code: u8) -> Error {
        // SAFETY: the host made the state and the control page, which live as long as the kernel.
        unsafe {
            let control = (*self.parts_ref().state.ptr::<DeviceState>()).control.ptr::<ControlPage>();
            // `exit` comes before `abort`: whoever sees the abort must find the exit code.
            <u32 as SysWord>::store_release(&raw mut (*control).exit, EXIT_ASKED | code as u32);
            <u32 as SysWord>::store_release(&raw mut (*control).abort, 1);
        }
        Error::Aborted
    }
}
