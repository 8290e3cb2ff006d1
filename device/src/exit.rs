//! The end of the whole job, asked for by a kernel.
#![allow(unsafe_code, reason = "writes the exit words of the control page")]

use crate::Ctx;
use crate::abi::{ControlPage, DeviceState, EXIT_ASKED};
use crate::arch::SysWord;
use crate::error::Error;

impl<S> Ctx<S> {
    /// Has the host end all processes of the job with `code`, without their help; soon, and whatever they wait for. The
    /// waiting calls of this kernel end with [`Error::Aborted`], which is also what this call gives back, to be
    /// returned: `return Err(ctx.global_exit(3))`. Nothing is completed. OpenSHMEM 1.6 section 9.1.5,
    /// `shmem_global_exit`.
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
