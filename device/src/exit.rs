//! The end of the whole job, requested by a kernel.
#![allow(unsafe_code, reason = "writes the exit words of the control page")]

use crate::Ctx;
use crate::abi::{ControlPage, DeviceState, EXIT_ASKED};
use crate::arch::SysWord;
use crate::error::Error;

/// # End of the job
///
/// The end of all PEs, from a kernel.
impl<S> Ctx<'_, S> {
    /// Ends all processes of the job with `code`. The host does so soon, whatever they wait for and without their help.
    ///
    /// Waiting calls of this kernel end with [`Error::Aborted`]. This call returns the same error, to be returned by
    /// the kernel: `return Err(ctx.global_exit(3))`. It completes nothing.
    ///
    /// OpenSHMEM 1.6 section 9.1.5, `shmem_global_exit`.
    #[cold]
    #[inline(never)]
    pub fn global_exit(&self, code: u8) -> Error {
        // SAFETY: the host made the state and the control page, which live as long as the kernel.
        unsafe {
            let control = (*self.parts_ref().state.ptr::<DeviceState>()).control.ptr::<ControlPage>();
            <u32 as SysWord>::store_release(&raw mut (*control).exit, EXIT_ASKED | code as u32);
            <u32 as SysWord>::store_release(&raw mut (*control).abort, 1);
        }
        Error::Aborted
    }
}
